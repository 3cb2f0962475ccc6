"""Finds programs of languages that are not part of every sandbox: on the path, or in an add-on of the server."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

FOLDER = "/opt/paddock"


def programs(addon: str, name: str) -> Iterator[str]:
    """Paths of this program: on PATH, and in the add-on."""
    if found := shutil.which(name):
        yield found
    if found := shutil.which(os.path.join(FOLDER, addon, "bin", name)):
        yield found


def missing(language: str, addon: str, otherwise: str) -> str:
    return (
        f"There is no {language} in this sandbox: run `paddock addon install {addon}` on the server (once, for all of "
        f"its local sandboxes), or {otherwise}"
    )
