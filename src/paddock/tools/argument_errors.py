"""Explains invalid tool arguments in sentences that a model can act on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from typing import Any

from pydantic import BaseModel, ValidationError

_SHOWN_PROBLEMS = 5
_MAX_VALUE_LENGTH = 60
_KINDS = {
    "string": "text", "int": "a whole number", "float": "a number", "finite_number": "a finite number",
    "bool": "true or false", "list": "a list", "dict": "an object", "model": "an object",
}  # fmt: skip
"""By the prefix of pydantic's error types."""


def explain(tool: str, arguments: type[BaseModel], problem: ValidationError) -> str:
    """What is wrong, and which arguments there are."""
    found = problem.errors(include_url=False)
    said = [_sentence(each, arguments) for each in found[:_SHOWN_PROBLEMS]]
    if len(found) > _SHOWN_PROBLEMS:
        said.append(f"And {len(found) - _SHOWN_PROBLEMS} more.")
    return f"{tool} was not called. {' '.join(said)} {_takes(tool, arguments)}"


def _takes(tool: str, arguments: type[BaseModel]) -> str:
    if not arguments.model_fields:
        return f"{tool} takes no arguments."
    named = [f"{name} (required)" if field.is_required() else name for name, field in arguments.model_fields.items()]
    return f"{tool} takes: {', '.join(named)}."


def _sentence(each: Mapping[str, Any], arguments: type[BaseModel]) -> str:
    where, context = each["loc"], each.get("ctx") or {}
    name = ".".join(str(part) for part in where if not _branch(part))[:200] or "arguments"
    match each["type"]:
        case "missing":
            return f"The argument `{name}` is missing."
        case "extra_forbidden":
            close = nearest(str(where[-1]), arguments.model_fields) if len(where) == 1 else []
            return f"There is no argument `{name}`{f': did you mean `{close[0]}`?' if close else '.'}"
        case "literal_error" | "enum":
            return f"`{name}` is one of {context['expected']}, not {_shown(each['input'])}."
        case "string_pattern_mismatch":
            return f"`{name}` does not look as it must ({context['pattern']}): it is {_shown(each['input'])}."
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal" as kind:
            limit = next(iter(context.values()))
            words = {"greater_than": "above", "greater_than_equal": "at least", "less_than": "below"}
            return f"`{name}` must be {words.get(kind, 'at most')} {limit:g}, not {_shown(each['input'])}."
        case "string_too_short" | "too_short":
            least = context["min_length"]
            return f"`{name}` may not be empty." if least == 1 else f"`{name}` must have at least {least} items."
        case "string_too_long" | "too_long":
            return f"`{name}` is too long: {context['max_length']} at most."
    kind = next((words for begin, words in _KINDS.items() if str(each["type"]).startswith(begin)), None)
    if kind is None:  # no tool has arguments of this kind yet
        return f"`{name}` cannot be {_shown(each['input'])}."
    return f"`{name}` must be {kind}, not {_shown(each['input'])}."


def _branch(part: int | str) -> bool:
    """Whether a part of a location is a union branch, which pydantic adds."""
    return isinstance(part, str) and (part in _KINDS or part == "str" or "[" in part)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}…"


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
