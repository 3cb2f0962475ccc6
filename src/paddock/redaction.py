"""Keeps secrets out of what is written down: logs, events, reasons, error messages.

A secret is known by its form (a key of ours, a ticket, a signed link), by the place where it stands (the user part of a
URL, a query parameter, a header), or because the operator has given it to this server. What is written by people who
want to reveal a secret cannot be caught; what is written by accident is.

The other half: text that somebody else chose cannot act on a terminal or begin a new line of a log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from typing import Any

HIDDEN = "***"
_MIN_SECRET_LENGTH = 6
"""Shorter ones would be found in words that are none."""
_MAX_DEPTH = 6

_USER_PART = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{1,20}://)([^\s/?#\"'<>\\]*)@")
_NAMED_SO = (
    r"[\w.-]{0,40}(?:token|ticket|secret|passw|pwd|signature|api[-_]?key|credential|auth(?!or)|paddock_link|\bsig\b)"
    r"[\w.-]{0,40}"
)
_PARAMETER = re.compile(rf"([?&;](?:{_NAMED_SO})=)[^&;#\s\"'<>]+", re.IGNORECASE)
_HEADER = re.compile(
    r"\b((?:authorization|x-[\w-]{0,40}(?:key|token)|e2b-traffic-access-token|cookie)[\"']?\s{0,3}[:=]\s{0,3}[\"']?"
    r"(?:(?:bearer|basic|token)\s{1,3})?)[A-Za-z0-9._~+/=-]{12,}",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(bearer\s{1,3})[A-Za-z0-9._~+/=-]{16,}", re.IGNORECASE)
_FORMS = re.compile(
    r"\b(?:"
    r"(e2b_)[0-9a-fA-F]{40}"  # an API key, ours or E2B's
    r"|(dtn_)[0-9a-fA-F]{32,}"  # Daytona's
    r"|(t_)[A-Za-z0-9_-]{32}(?![A-Za-z0-9_-])"  # a ticket
    r"|([0-9]{9,12}\.)[0-9a-f]{64}"  # a signed link or a cookie: when it ends, and the signature
    r"|(gh[pousr]_|github_pat_|glpat-)[A-Za-z0-9_-]{20,}"  # of the places that git_url leads to
    r")"
)
_COLOURS = re.compile(r"\x1b\[[0-9;:]*m")
_ANY = re.compile(r"://|[?&;=:]|bearer|e2b_|dtn_|t_|gh|glpat-|\.", re.IGNORECASE)


def redact(text: str) -> str:
    """The text without the secrets that can be told by their form or place."""
    if _ANY.search(text) is None:
        return text
    if "@" in text:
        text = _USER_PART.sub(_hidden_user, text)
    text = _PARAMETER.sub(rf"\1{HIDDEN}", text)
    text = _HEADER.sub(rf"\1{HIDDEN}", text)
    text = _BEARER.sub(rf"\1{HIDDEN}", text)
    return _FORMS.sub(lambda found: next(filter(None, found.groups()), "") + HIDDEN, text)


def redact_all(value: Any, text: Callable[[str], str] = redact, depth: int = 0) -> Any:
    """The same for every text in a document. Values under a secret's name are hidden, whatever they look like."""
    if isinstance(value, str):
        return text(value)
    if depth >= _MAX_DEPTH:
        return value
    if isinstance(value, Mapping):
        return {
            text(name) if isinstance(name, str) else name: HIDDEN
            if isinstance(name, str) and isinstance(item, str) and item and _is_secret_name(name)
            else redact_all(item, text, depth + 1)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [redact_all(item, text, depth + 1) for item in value]
    return value


def without_credentials(url: str) -> str:
    """The URL of a repository, with its user and password hidden. A user that is no secret stays (``git@``)."""
    return _USER_PART.sub(_hidden_user, url)


def has_credentials(url: str) -> bool:
    return without_credentials(url) != url


def visible(text: object, *, keep: str = "") -> str:
    """Text that others chose, without anything that a terminal would obey: control characters are shown, not sent."""
    given = str(text)
    if given.isprintable():
        return given
    return "".join(each if each.isprintable() or each in keep else repr(each)[1:-1] for each in given)


def without_colours(text: str) -> str:
    """Text of a program that takes its output for a terminal."""
    return _COLOURS.sub("", text) if "\x1b" in text else text


_TRACES = ("exception", "stack")
"""What the log has on lines of its own."""


class LogRedactor:
    """A processor of structured logs, before the one that renders. ``secrets``: those that this server was given."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {secret for secret in secrets if len(secret) >= _MIN_SECRET_LENGTH}
        longest_first = sorted(map(re.escape, known), key=len, reverse=True)
        self._known = re.compile("|".join(longest_first)) if longest_first else None

    def __call__(self, logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        found: dict[str, Any] = redact_all({name: self._plain(item) for name, item in event.items()}, self._text)
        for name in _TRACES:
            if isinstance(trace := event.get(name), str):
                # Indented, so that no line of it can pass for one of the log.
                lines = self._secretless(trace).splitlines()
                found[name] = "\n".join(f"    {visible(line)}" for line in lines)
        return found

    def _text(self, text: str) -> str:
        return visible(self._secretless(text))

    def _secretless(self, text: str) -> str:
        return redact(text if self._known is None else self._known.sub(HIDDEN, text))

    @staticmethod
    def _plain(item: Any) -> Any:
        """What a renderer would turn into a text by itself is turned into one here, where it can be looked at."""
        plain = item is None or isinstance(item, str | int | float | bool | list | tuple | Mapping)
        return item if plain else str(item)


def _hidden_user(found: re.Match[str]) -> str:
    scheme, user = found.groups()
    return found[0] if user in ("git", HIDDEN, "") else f"{scheme}{HIDDEN}@"


def _is_secret_name(name: str) -> bool:
    return re.fullmatch(_NAMED_SO, name, re.IGNORECASE) is not None
