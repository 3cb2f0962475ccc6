"""``python -m paddock``: the command line, also where its program is not on the PATH."""

from __future__ import annotations

from paddock.cli.app import main

if __name__ == "__main__":
    main()
