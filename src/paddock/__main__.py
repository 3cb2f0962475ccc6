"""``paddock`` and ``python -m paddock``: the command line."""

from __future__ import annotations

import sys

from paddock.distribution import CLIENT, install_command

_COMMAND_LINE = {"click", "rich", "typer"}


def main() -> None:
    try:
        from paddock.cli.app import main as run
    except ModuleNotFoundError as missing:
        if missing.name not in _COMMAND_LINE:
            raise
        command = install_command("cli", CLIENT)
        sys.exit(f"paddock: the command line needs {missing.name}, which is not installed here. Install it: {command}")
    run()


if __name__ == "__main__":
    main()
