"""Shortens JSON schemas for models: keeps what explains a call, drops what only a validator needs.

The list of tools costs tokens in every conversation. Constraints dropped here are still checked when a tool is called,
and violations are explained in a sentence.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_LEFT_OUT = {
    "additionalProperties", "examples", "exclusiveMinimum", "maximum", "maxItems", "maxLength", "minimum", "minItems",
    "minLength", "pattern",
}  # fmt: skip
_EXPLAINED_ONCE = {
    "clear", "command", "cwd", "glob", "limit", "model", "new_string", "offset", "old_string", "path", "prompt", "ref",
    "replace_all", "screenshot", "selector", "session_id", "shell", "task_id", "text", "timeout", "x", "y",
}  # fmt: skip
"""Arguments that many tools share with the same meaning."""
_EXPLAINED_AGAIN = {"The repository."}
"""Descriptions that are repeated, since the name alone would mislead: the `path` of git_add is not one of its files."""
_NAMED = {"properties", "$defs"}
"""Whose keys are names, not keywords of JSON Schema."""


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


def explain_once(schemas: Iterable[Any]) -> None:
    """In place, for one list of tools: a description of a shared argument is kept only where it first appears."""
    said: set[tuple[str, str]] = set()
    for schema in schemas:
        for part in (schema, *schema.get("$defs", {}).values()):
            for name, field in part.get("properties", {}).items():
                if name in _EXPLAINED_ONCE and field.get("description", "") not in ("", *_EXPLAINED_AGAIN):
                    if (name, field["description"]) in said:
                        del field["description"]
                    else:
                        said.add((name, field["description"]))


def _implied(value: Any) -> bool:
    """Defaults that are obvious: off, nothing, or here."""
    return value in (None, False, 0, "", ".")


def _optional(schema: dict[str, Any]) -> dict[str, Any]:
    """Reduces `anyOf: [X, null]` with default null to X: the argument can be omitted."""
    options = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if "default" in schema and schema["default"] is None and len(options) == 1:
        return {**{word: value for word, value in schema.items() if word != "anyOf"}, **options[0]}
    return schema
