"""Directories that are there whole or not at all."""

from __future__ import annotations

import contextlib
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def made_aside(target: Path) -> Iterator[Path]:
    """An empty directory beside ``target``, which takes its place at the end unless another server was quicker."""
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    draft.mkdir(mode=0o755, parents=True)
    yield draft
    try:
        draft.rename(target)
    except OSError:  # another server was quicker
        shutil.rmtree(draft)
