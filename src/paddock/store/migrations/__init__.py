"""The schema's history. A released migration is never edited."""

from __future__ import annotations

from pathlib import Path


def newest() -> str:
    """The revision that this version's tables stand at; the files of revisions begin with their numbers."""
    return max(path.name for path in (Path(__file__).parent / "versions").glob("[0-9]*_*.py")).partition("_")[0]
