"""Entry point: ``python3 <this folder>/__main__.py ROLE …``, a role is a module of this package with a ``main``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def run() -> None:
    # Python adds this directory to the front of its path, where `http` would hide the standard library's module.
    sys.path[0] = os.path.dirname(_HERE)
    options = _options().parse_args()
    if options.kit:
        sys.path.insert(_before_packages(), options.kit)
    importlib.import_module(f"{os.path.basename(_HERE)}.{options.role}").main(options)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("supervisor", "server", "fork_server"))
    parser.add_argument("--port", type=int, help="where the supervisor listens")
    parser.add_argument("--socket", type=int, help="the descriptor to listen on, or to take orders from")
    parser.add_argument("--parent", type=int, help="with whom to end")
    parser.add_argument("--kit", default="", help="a folder of packages to use where Python has none of its own")
    parser.add_argument("--known-as", help="means nothing here; see commandline.NAMES")
    return parser


def _before_packages() -> int:
    """Insert after the standard library and before installed packages, so that the kit's versions are used together."""
    for place, path in enumerate(sys.path):
        if path.endswith(("site-packages", "dist-packages")):
            return place
    return len(sys.path)


if __name__ == "__main__":
    run()
