"""Patterns of paths: ``*`` and ``?`` within a name, ``**`` across directories, ``[…]`` and ``{a,b}``."""

from __future__ import annotations

import re

from paddock.tools.tool import ToolFailed

_MAX_PATTERN = 1000


def compile_glob(pattern: str) -> re.Pattern[str]:
    """For paths relative to where the search begins. A pattern without a slash fits a name in any directory."""
    if len(pattern) > _MAX_PATTERN:
        raise ToolFailed(f"The pattern is longer than {_MAX_PATTERN} characters.")
    pattern = pattern.removeprefix("./")
    if "/" not in pattern:
        pattern = f"**/{pattern}"
    try:
        return re.compile(_translate(pattern), re.DOTALL)
    except re.error as problem:
        raise ToolFailed(f"{pattern!r} is no pattern of paths: {problem}. An example: src/**/*.py") from None


def _translate(pattern: str) -> str:
    out, at, braces = [], 0, 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            if pattern[at - 1 : at + 2] == "**/":
                out.append("(?:[^/]+/)*")
                at += 2
            elif pattern[at : at + 1] == "*":
                out.append(".*")
                at += 1
            else:
                out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[" and (end := pattern.find("]", at + 1)) != -1:
            inside = pattern[at:end].replace("\\", "\\\\")
            out.append(f"[{'^' + inside[1:] if inside[0] in '!^' else inside}]")
            at = end + 1
        elif char == "{" and "}" in pattern[at:]:
            out.append("(?:")
            braces += 1
        elif char == "}" and braces:
            out.append(")")
            braces -= 1
        elif char == "," and braces:
            out.append("|")
        else:
            out.append(re.escape(char))
    return "".join(out)
