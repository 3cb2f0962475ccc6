"""What somebody may have meant who gave a name that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher

_LONGEST = 80
_SHOWN = 3
_ALIKE = 0.6


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """The most alike first: by their letters, or because they share a whole word such as `grep`."""
    asked = name[:_LONGEST].lower()
    words = {word for word in asked.replace("-", "_").split("_") if len(word) > 2}

    def alike(other: str) -> float:
        shared = len(words & set(other.lower().split("_")))
        return SequenceMatcher(None, asked, other.lower()).ratio() + shared * 0.3

    ranked = sorted(((alike(other), other) for other in known), key=lambda pair: (-pair[0], pair[1]))
    return [other for likeness, other in ranked[:_SHOWN] if likeness >= _ALIKE]


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """A sentence."""
    known = list(known)
    found = nearest(name, known)
    hint = f"The nearest: {', '.join(found)}." if found else f"There are: {', '.join(known)}."
    return f"There is no {what} {name[:_LONGEST]!r}. {hint}"
