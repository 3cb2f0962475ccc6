"""gVisor for the tests, where it is installed: ``runsc`` on the path, or the one that ``PADDOCK_RUNSC`` names."""

from __future__ import annotations

import functools
import os

import pytest

from paddock import errors
from paddock.providers.common.programs import Programs
from paddock.providers.local.gvisor.runsc import RunscSettings, find
from paddock.providers.local.host import local_problems, looked_at


def wanted() -> RunscSettings:
    """Skips at once where sandboxes cannot have a kernel of their own, and says why."""
    if (reason := missing()) is not None:
        pytest.skip(reason)
    return _named()


def _named() -> RunscSettings:
    return RunscSettings(os.environ.get("PADDOCK_RUNSC", ""), os.environ.get("PADDOCK_RUNSC_PLATFORM", ""))


@functools.cache
def missing() -> str | None:
    """Why sandboxes cannot have a kernel of their own here."""
    if problems := local_problems():
        return " ".join(problems)
    try:
        with looked_at(Programs.find()) as host:
            find(_named(), host)
    except errors.ProviderRefused as refusal:
        return refusal.message
    return None
