"""The add-on as its users install it, once for all test processes; it is kept under ``build/`` for the next run."""

from __future__ import annotations

import fcntl
import hashlib
import time
from pathlib import Path

import pytest

from paddock import errors
from paddock.addons.addon_store import AddonStore
from paddock.addons.browser import Browser

ROOT = Path(__file__).resolve().parents[2]
ADDONS = ROOT / "build" / "addons"
_LOCK = ROOT / "src/paddock/addons/locks/browser/package-lock.json"
_RECIPE = ROOT / "src/paddock/addons/browser.py"
_ATTEMPTS = 2
_RECENT_SECONDS = 900


def installed() -> Path:
    """The folder of add-ons with the browser in it. Skips where a registry does not answer, or it cannot be had."""
    ADDONS.mkdir(parents=True, exist_ok=True)
    addon_store, stamp, failed = AddonStore(ADDONS), ADDONS / ".stamp", ADDONS / ".failed"
    wanted = hashlib.sha256(_LOCK.read_bytes() + _RECIPE.read_bytes()).hexdigest()
    with (ADDONS / ".tests").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if addon_store.installed("browser") is not None and stamp.is_file() and stamp.read_text() == wanted:
            return ADDONS
        if failed.is_file() and time.time() - failed.stat().st_mtime < _RECENT_SECONDS:
            pytest.skip(f"the add-on could not be installed: {failed.read_text()}")
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                addon_store.install(Browser(), lambda line: None)
                stamp.write_text(wanted)
                return ADDONS
            except (errors.AddonFailed, errors.Unsupported) as problem:
                if attempt == _ATTEMPTS:
                    failed.write_text(problem.message[-500:])
                    pytest.skip(f"the add-on could not be installed: {problem.message}")
    raise AssertionError("unreachable")
