"""Suggests known names for one that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

_MAX_NAME_LENGTH = 80
_MAX_SUGGESTIONS = 3
_MIN_SIMILARITY = 0.6


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The most similar names first: by letters, or because they share a whole word such as `grep`."""
    asked = name[:_MAX_NAME_LENGTH].lower()
    words = {word for word in asked.replace("-", "_").split("_") if len(word) > 2}

    def alike(other: str) -> float:
        shared = len(words & set(other.lower().split("_")))
        return SequenceMatcher(None, asked, other.lower()).ratio() + shared * 0.3

    ranked = sorted(((alike(other), other) for other in known), key=lambda pair: (-pair[0], pair[1]))
    return [other for likeness, other in ranked[:_MAX_SUGGESTIONS] if likeness >= _MIN_SIMILARITY]


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """An error sentence with suggestions."""
    known = list(known)
    found = nearest(name, known)
    hint = f"The nearest: {', '.join(found)}." if found else f"There are: {', '.join(known)}."
    return f"There is no {what} {name[:_MAX_NAME_LENGTH]!r}. {hint}"
