"""One installation as its own process: ``python -m paddock.addons.installer HOME NAME [--full] [--fresh]``.

Started by the server, so that unpacking and compiling does not load the server's process and can be killed. Prints its
progress as JSON lines: ``progress`` repeatedly, and ``installed`` or ``error`` at the end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from argparse import ArgumentParser
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NoReturn

from paddock.addons.addon_store import AddonStore
from paddock.addons.cache import Cache, default_folder
from paddock.addons.progress import Progress
from paddock.addons.recipes import recipe
from paddock.errors import AddonFailed, PaddockError

_NICE = 10
_MAX_DETAIL = 500


def main() -> None:
    parser = ArgumentParser()
    parser.add_argument("home", type=Path)
    parser.add_argument("name")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--fresh", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _exit)
    os.nice(_NICE)
    addon_store = AddonStore(options.home / "addons", Cache(default_folder()))
    try:
        made = addon_store.install(recipe(options.name, full=options.full), _hear, fresh=options.fresh)
        _print(installed={"version": made.version})
    except PaddockError as error:
        _print(error={"code": error.code, "status": error.status, "message": error.message})
    except OSError as error:
        failed = AddonFailed(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        _print(error={"code": failed.code, "status": failed.status, "message": failed.message})


def _hear(progress: Progress) -> None:
    _print(progress=asdict(replace(progress, detail=progress.detail[:_MAX_DETAIL])))


def _print(**said: Any) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def _exit(number: int, frame: object) -> NoReturn:
    """Exit through all ``finally`` blocks, which end programs and delete incomplete files."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()
