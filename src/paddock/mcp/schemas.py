"""Schemas as models need them: what tells how to call, without what only a validator reads.

A list of tools is paid for in every conversation. Whatever is left out here is still checked when a tool is called,
and said in a sentence.
"""

from __future__ import annotations

from typing import Any

_LEFT_OUT = {
    "additionalProperties", "examples", "maxItems", "maxLength", "minItems", "minLength", "pattern", "exclusiveMinimum",
}  # fmt: skip
_NAMED = {"properties", "$defs"}
"""Whose keys are names, not words of JSON Schema."""


def compact(schema: Any) -> Any:
    if isinstance(schema, list):
        return [compact(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    schema = _optional(schema)
    return {
        word: {name: compact(each) for name, each in value.items()} if word in _NAMED else compact(value)
        for word, value in schema.items()
        if not (word in _LEFT_OUT and not isinstance(value, dict)) and not (word == "default" and _implied(value))
    }


def _implied(value: Any) -> bool:
    """An argument that is left out is off, or nothing."""
    return value is None or value is False


def _optional(schema: dict[str, Any]) -> dict[str, Any]:
    """Of `anyOf: [X, null]` that defaults to null just X: who has nothing to say leaves it out."""
    options = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if "default" in schema and schema["default"] is None and len(options) == 1:
        return {**{word: value for word, value in schema.items() if word != "anyOf"}, **options[0]}
    return schema
