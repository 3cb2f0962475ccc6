"""The template ``debian`` as its users make it, once for all test processes; it is kept under ``build/`` for the next
run."""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
import time
from pathlib import Path

import pytest

from paddock import errors
from paddock.providers.local import debian
from paddock.removal import remove
from tests.e2b.environments import locked

_KEPT = Path(__file__).resolve().parents[2] / "build" / f"templates-{os.getuid()}"
_RECENT_S = 900


def put_debian_into(home: Path) -> None:
    """Among the templates of a server. Skips where it cannot be made."""
    templates = home / "templates"
    templates.mkdir(mode=0o755, parents=True, exist_ok=True)
    (templates / "debian").symlink_to(_made())


def _made() -> Path:
    if shutil.which("mmdebstrap") is None:
        pytest.skip("the template debian is made by mmdebstrap, which is not here")
    _KEPT.mkdir(mode=0o755, parents=True, exist_ok=True)
    template, stamp, failed = _KEPT / "debian", _KEPT / ".stamp", _KEPT / ".failed"
    wanted = hashlib.sha256(inspect.getsource(debian).encode()).hexdigest()
    with locked(_KEPT / ".turn"):
        if template.is_dir() and stamp.is_file() and stamp.read_text() == wanted:
            return template
        if failed.is_file() and time.time() - failed.stat().st_mtime < _RECENT_S:
            pytest.skip(f"the template debian could not be made: {failed.read_text()}")
        if template.exists():
            remove(template)
        try:
            debian.build(template, suite=None, packages=[], mirror=None, say=lambda line: None)
        except (errors.ProviderUnavailable, errors.Unsupported) as problem:
            failed.write_text(problem.message[-500:])
            pytest.skip(f"the template debian could not be made: {problem.message}")
        stamp.write_text(wanted)
    return template
