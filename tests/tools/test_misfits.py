"""Arguments that do not fit a tool: sentences of our own, whatever pydantic found."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic_core import ErrorTypeInfo, InitErrorDetails
from pydantic_core._pydantic_core import list_all_errors

from paddock.tools.argument_errors import explain
from paddock.tools.catalogue import TOOLS
from paddock.tools.tool import Tool

_ITS_WORDS = re.compile(r"\b(?:[Ii]nput|valid|instance|permitted|required(?!\))|validation|pydantic|parsing)\b")
_ODD: list[Any] = [
    None, True, -1, 0.5, 10**30, "9" * 5000, float("nan"), float("inf"), "", "\ud800", "-", "x" * 2_000_000, b"\xff",
    [], {}, [None], [[]], [{}], {"a": None}, {"": [1]}, ["x"] * 5000, object(),
]  # fmt: skip


def _problem(tool: Tool, arguments: dict[str, Any]) -> ValidationError | None:
    try:
        tool.arguments.model_validate(arguments)
    except ValidationError as problem:
        return problem
    return None


@pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)
def test_whatever_is_given_is_answered_in_our_own_words(tool: Tool) -> None:
    for name in [*tool.arguments.model_fields, "unknown"]:
        for odd in _ODD:
            if (problem := _problem(tool, {name: odd})) is not None:
                said = explain(tool.name, tool.arguments, problem)
                assert not _ITS_WORDS.search(said), said


@pytest.mark.parametrize("info", list_all_errors(), ids=lambda info: info["type"])
def test_none_of_pydantics_errors_is_told_in_its_words(info: ErrorTypeInfo) -> None:
    """Also those that no argument of today can have."""
    found = InitErrorDetails(type=info["type"], ctx=info.get("example_context") or {}, loc=("path",), input=17)
    problem = ValidationError.from_exception_data("tool", [found])
    said = explain("read_file", TOOLS["read_file"].arguments, problem)
    assert "`path`" in said and not _ITS_WORDS.search(said), said
