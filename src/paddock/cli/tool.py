"""``paddock tool``: calls the tools of a sandbox, as an agent would."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from paddock.cli import output
from paddock.cli.arguments import SandboxId
from paddock.cli.session import CliSession, command
from paddock.errors import ToolNotFound

tool = typer.Typer(help="The tools that agents have in a sandbox.", no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="TOOL", help="The tool's name, e.g. read_file.")]


@tool.command("list")
@command
def list_(session: CliSession, sandbox_id: SandboxId) -> None:
    """List the tools of a sandbox."""
    found = session.client.list_tools(sandbox_id)
    session.answer(
        {"tools": [dict(each) for each in found]},
        lambda: output.print_table(
            ("TOOL", "KIT", "WHAT IT DOES"),
            ((each.name, each.kit, output.escape(each.description.splitlines()[0])) for each in found),
        ),
    )


@tool.command("show")
@command
def show(session: CliSession, sandbox_id: SandboxId, name: Name) -> None:
    """Show a tool's description and arguments."""
    found = _find(session, sandbox_id, name)
    session.answer(found, lambda: output.print_text(_described(found)))


@tool.command("call")
@command
def call(
    session: CliSession,
    sandbox_id: SandboxId,
    name: Name,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE...", help="Arguments. A value of @FILE is read from that file, @- from stdin."
        ),
    ] = None,
    arguments: Annotated[
        str | None, typer.Option("--arguments", "-a", metavar="JSON", help="Arguments as one JSON object.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(metavar="SECONDS", help="Timeout of the call.")] = None,
    pictures: Annotated[
        Path | None, typer.Option("--pictures", metavar="DIR", help="Save the result's pictures in this directory.")
    ] = None,
) -> None:
    """Call a tool. Exits with 1 if the tool failed."""
    given: dict[str, Any] = _object(arguments) if arguments else {}
    if words:
        given |= _typed(words, _find(session, sandbox_id, name).input_schema)
    result = session.client.call_tool(sandbox_id, name, given, timeout=timeout)
    kept = _keep(result.pictures, pictures, name) if pictures else []
    session.answer(result, lambda: output.print_text(result.text, stderr=result.failed))
    for path in kept:
        output.print_text(str(path), stderr=True)
    if result.failed:
        raise typer.Exit(1)


def _find(session: CliSession, sandbox_id: str, name: str) -> Any:
    for each in session.client.list_tools(sandbox_id):
        if name in (each.name, each.langchain_name):
            return each
    raise ToolNotFound(f"There is no tool {name!r}. `paddock tool list {sandbox_id}` shows them.")


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as problem:
        raise typer.BadParameter(f"is not JSON: {problem}", param_hint="--arguments") from None
    if not isinstance(found, dict):
        raise typer.BadParameter("must be a JSON object", param_hint="--arguments")
    return found


def _typed(words: Sequence[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Text arguments as they are; others (numbers, lists, true) as JSON."""
    found: dict[str, Any] = {}
    fields = schema.get("properties", {})
    for word in words:
        name, equals, value = word.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{word!r} is not of the form KEY=VALUE", param_hint="KEY=VALUE")
        if name not in fields:
            raise typer.BadParameter(f"there is no argument {name!r}; there are {', '.join(fields)}", param_hint=word)
        if value.startswith("@"):
            value = sys.stdin.read() if value == "@-" else Path(value[1:]).read_text(encoding="utf-8")
        found[name] = value if _takes_text(fields[name]) else _json(name, value)
    return found


def _takes_text(field: Mapping[str, Any]) -> bool:
    kinds = [each.get("type") for each in field.get("anyOf", [field])]
    return "string" in kinds


def _json(name: str, value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value  # the server reports what it should have been


def _described(found: Any) -> str:
    lines = [f"{found.name}: {found.title}", "", found.description]
    required = found.input_schema.get("required", [])
    fields = found.input_schema.get("properties", {})
    if fields:
        lines += ["", "Arguments:"]
    for name, field in fields.items():
        default = "required" if name in required else f"default {json.dumps(field.get('default'))}"
        lines.append(f"  {name} ({default}): {field.get('description', '')}")
    return "\n".join(lines)


def _keep(pictures: Sequence[Any], folder: Path, name: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    kept = []
    for number, picture in enumerate(pictures, 1):
        path = folder / f"{name}-{number}.{picture.media_type.rpartition('/')[2]}"
        path.write_bytes(base64.b64decode(picture.data))
        kept.append(path)
    return kept
