"""What a client asks for in the address that it was given: which tools it is shown, and in which form they answer."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl

from paddock import errors
from paddock.tools.selection import Selection

_MAX_QUERY = 4096
_YES, _NO = {"1", "true", "yes", "on"}, {"0", "false", "no", "off", ""}


@dataclass(frozen=True, slots=True)
class ClientOptions:
    selection: Selection
    structured: bool = False
    """With `structuredContent` and `outputSchema`, for programs."""

    @classmethod
    def of(cls, query: str, usual: Selection) -> ClientOptions:
        """``tools=files,shell&structured=true``; anything else is not ours. ``usual``: what is shown unasked."""
        given = dict(parse_qsl(query[:_MAX_QUERY]))
        structured = given.get("structured", "").strip().lower()
        if structured not in _YES | _NO:
            raise errors.Invalid("`structured` is true or false.")
        tools = given.get("tools", "").strip()
        return cls(Selection.parse(tools) if tools else usual, structured in _YES)
