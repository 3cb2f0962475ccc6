"""A tour: calls of tools in an order in which each finds what it needs, with what every answer must hold.

The tour itself is plain JSON, so that clients in other environments and languages can make it; what they bring back is
judged here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paddock.tools.catalogue import TOOLS


@dataclass(frozen=True, slots=True)
class Call:
    tool: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """A value ``@name`` stands for what an earlier call kept under that name."""
    says: str = ""
    """Is in the text."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Is in the structured result; of a list, each of these is in one of its members."""
    fails: bool = False
    pictures: int = 0
    keep: str | None = None
    """A field of the structured result, kept under its own name."""


def asked(calls: Iterable[Call]) -> list[dict[str, Any]]:
    """The tour as clients are told it."""
    return [{"tool": call.tool, "arguments": dict(call.arguments), "keep": call.keep} for call in calls]


def filled(arguments: Mapping[str, Any], kept: Mapping[str, Any]) -> dict[str, Any]:
    """What clients do with ``@name`` before they call."""
    return {name: kept.get(value, value) if isinstance(value, str) else value for name, value in arguments.items()}


def judge(calls: Sequence[Call], answers: Sequence[Mapping[str, Any]]) -> None:
    """Every answer as it must be."""
    assert [each["tool"] for each in answers] == [call.tool for call in calls]
    for call, answer in zip(calls, answers, strict=True):
        where = f"{call.tool} {dict(call.arguments)}: {str(answer)[:2000]}"
        assert answer["failed"] is call.fails, where
        assert answer["text"] and call.says in answer["text"], where
        assert answer["pictures"] == call.pictures, where
        relayed = call.tool not in TOOLS  # others may answer with text alone
        assert call.fails or relayed or answer["data"] is not None, where
        assert _holds(answer["data"] or {}, call.data), where


def _holds(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            name in found and _holds(found[name], each) for name, each in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(found, list) and all(any(_holds(one, each) for one in found) for each in wanted)
    return bool(found == wanted)
