"""What every tool promises: words for models, marks for clients, data that is as its schema says."""

from __future__ import annotations

from pathlib import Path

import jsonschema_rs
import pytest

from paddock.tools.catalogue import TOOLS, find
from paddock.tools.reference import reference
from paddock.tools.tool import Tool
from tests.tools.workbench import Workbench

ROOT = Path(__file__).parents[2]
EVERY = pytest.mark.parametrize("tool", TOOLS.values(), ids=TOOLS)

FIXED = {"read_file", "write_file", "list_directory", "search_files", "run_command", "claude_code"}
LANGCHAIN = {
    "file_read", "file_write", "file_delete", "file_list", "file_search", "shell_exec", "shell_interactive",
    "git_clone", "git_commit", "git_push", "git_status", "python_exec", "pip_install", "http_request", "env_get",
    "env_set", "process_list",
}  # fmt: skip


def test_the_promised_names_are_there() -> None:
    assert TOOLS.keys() >= FIXED
    assert {tool.langchain_name for tool in TOOLS.values()} >= LANGCHAIN
    assert find("shell_exec") is TOOLS["run_command"]


def test_no_name_means_two_tools() -> None:
    names = [name for tool in TOOLS.values() for name in {tool.name, tool.langchain_name}]
    assert len(names) == len(set(names))


@EVERY
def test_a_tool_says_what_it_does_and_what_each_argument_means(tool: Tool) -> None:
    assert len(tool.description) >= 30
    assert tool.description.split("\n")[0].endswith((".", ":"))
    assert tool.title
    for name, field in tool.input_schema.get("properties", {}).items():
        assert field.get("description") or field.get("examples"), name
    for definition in tool.input_schema.get("$defs", {}).values():
        assert all("description" in field for field in definition.get("properties", {}).values())


@EVERY
def test_schemas_are_schemas_and_marks_make_sense(tool: Tool) -> None:
    jsonschema_rs.meta.validate(tool.input_schema)
    jsonschema_rs.meta.validate(tool.output_schema)
    assert tool.input_schema["additionalProperties"] is False
    assert tool.output_schema["type"] == "object"
    assert not (tool.read_only and tool.destructive)


CALLS = {
    "read_file": {"path": "sample/a.txt"},
    "write_file": {"path": "sample/b.txt", "content": "b"},
    "edit_file": {"path": "sample/a.txt", "old_string": "a", "new_string": "b"},
    "multi_edit": {"path": "sample/a.txt", "edits": [{"old_string": "b", "new_string": "a"}]},
    "apply_patch": {"patch": "*** Begin Patch\n*** Add File: sample/c.txt\n+c\n*** End Patch"},
    "list_directory": {},
    "move_file": {"source": "sample/c.txt", "destination": "sample/d.txt"},
    "delete_file": {"path": "sample/d.txt"},
    "glob_files": {"pattern": "*.txt"},
    "grep_files": {"pattern": "a"},
    "search_files": {"query": "a"},
    "run_command": {"command": "true"},
    "task_list": {},
    "shell_run": {"command": "true"},
    "shell_list": {},
    "env_set": {"name": "A", "value": "a"},
    "env_get": {},
    "process_list": {},
    "port_list": {},
    "expose_port": {"port": 3000},
    "todo_write": {"todos": [{"content": "a"}]},
    "todo_read": {},
}


async def test_what_tools_answer_is_as_their_schemas_say(fresh: Workbench) -> None:
    await fresh.does("write_file", path="sample/a.txt", content="a")
    for name, arguments in CALLS.items():
        data = await fresh.does(name, **arguments)
        jsonschema_rs.validate(TOOLS[name].output_schema, data)


def test_the_page_of_tools_is_as_the_code_is() -> None:
    written = (ROOT / "docs" / "tools.md").read_text(encoding="utf-8")
    assert written == reference(), "run `python -m paddock.tools.reference docs/tools.md`"
