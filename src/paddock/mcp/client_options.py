"""Options that a client sets in the endpoint's URL: which tools it is shown, and the form of results."""

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
        """Parse ``tools=files,shell&structured=true``; other parameters are ignored. ``usual``: the default
        selection."""
        given = dict(parse_qsl(query[:_MAX_QUERY]))
        structured = given.get("structured", "").strip().lower()
        if structured not in _YES | _NO:
            raise errors.Invalid("`structured` is true or false.")
        tools = given.get("tools", "").strip()
        return cls(Selection.parse(tools) if tools else usual, structured in _YES)
