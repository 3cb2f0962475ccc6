"""Writes docs/tools.md from the catalogue: ``python -m paddock.tools.reference docs/tools.md``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from paddock.tools.catalogue import TOOLS
from paddock.tools.tool import Tool

_HEAD = """# Tools

What an agent can do in a sandbox. This page is made from the code: `python -m paddock.tools.reference docs/tools.md`.

Each tool is one typed function on a sandbox of any provider. The same tools are served over [HTTP](api.md#tools), by
the [Python client](client.md) (`call_tool`) and by the [command line](cli.md) (`paddock tool`), and they are what MCP
and LangChain show; none of these has a tool of its own.

- A call runs as `user`, wakes a paused sandbox, and is counted as a command.
- An answer has a short `text` for a model, the same as `data` for programs, and pictures where there are any.
- A tool that cannot do it answers with `failed` and says what to try next; nothing is lost by wrong arguments.
- Paths are absolute or relative to `/workspace`; `~` is `/home/user`.
- At most 30000 characters are answered. The rest is kept in a file below `~/.paddock/outputs`, whose path is given.
- Nothing that is sent, or lies in the sandbox, may hold up the server. Work on more than 128 KB of text has 10 seconds
  and 1 GB of memory; what needs more is refused with `input_too_costly`: have a program in the sandbox do it.
- A call has at most 20,000 values of JSON; a patch 1,000 files; a pattern of paths 1,000 characters and braces that
  stand for 100 patterns; a file that is changed as a whole 16 MB; a list of git's files 10,000 entries.
- Calls that take long say every few seconds how far they are, to those who listen (MCP).
- Nothing is needed in the sandbox but a shell, and what a tool is about: git, Python, curl. What is missing is said.

Marks: *reads* changes nothing; *destroys* may overwrite or end what cannot be had back; *repeatable* has the same
effect when it is done twice; *outside* reaches beyond the sandbox.
"""


def reference() -> str:
    parts = [_HEAD, _overview()]
    for kit in dict.fromkeys(tool.kit for tool in TOOLS.values()):
        parts.append(f"## {kit.capitalize()}")
        parts += [_tool(tool) for tool in TOOLS.values() if tool.kit == kit]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _overview() -> str:
    rows = ["| tool | LangChain | what it does |", "|---|---|---|"]
    for tool in TOOLS.values():
        first = tool.description.split("\n")[0].split(". ")[0].rstrip(".")
        rows.append(f"| [`{tool.name}`](#{tool.name}) | `{tool.langchain_name}` | {first} |")
    return "\n".join(rows)


def _tool(tool: Tool) -> str:
    traits = {
        "reads": tool.read_only,
        "destroys": tool.destructive,
        "repeatable": tool.idempotent,
        "outside": tool.open_world,
    }
    marks = ", ".join(name for name, given in traits.items() if given)
    parts = [f"### {tool.name}", f"*{marks}*" if marks else "", _prose(tool.description)]
    required = tool.input_schema.get("required", [])
    rows = [
        f"| `{name}` | {_kind(field)} | {_default(name, field, required)} | {_cell(field.get('description', ''))} |"
        for name, field in tool.input_schema.get("properties", {}).items()
    ]
    if rows:
        parts.append("\n".join(["| argument | type | default | |", "|---|---|---|---|", *rows]))
    answered = [f"`{name}`" for name in tool.output_schema.get("properties", {})]
    parts.append(f"Answers with {', '.join(answered)}.")
    return "\n\n".join(part for part in parts if part)


def _prose(description: str) -> str:
    """Keep significant line breaks: those of an indented or marked block."""
    if "*** Begin Patch" not in description:
        return description
    before, form = description.split("\n*** Begin Patch", 1)
    inside, after = form.split("*** End Patch\n", 1)
    return f"{before}\n\n```\n*** Begin Patch{inside}*** End Patch\n```\n\n{after}"


def _kind(field: dict[str, Any]) -> str:
    if "enum" in field:
        return " \\| ".join(f"`{value}`" for value in field["enum"])
    if "anyOf" in field:
        return " \\| ".join(_kind(each) for each in field["anyOf"])
    if "$ref" in field:
        return "object"
    kind = str(field.get("type", "any"))
    if kind == "array":
        return f"list of {_kind(field.get('items', {}))}"
    limits = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤"}
    return " ".join([kind, *(f"{sign} {field[name]:g}" for name, sign in limits.items() if name in field)])


def _default(name: str, field: dict[str, Any], required: list[str]) -> str:
    if name in required:
        return "required"
    value = field.get("default")
    return "" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(reference(), encoding="utf-8")
