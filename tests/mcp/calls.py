"""A simple call of every tool, in an order in which each finds what it needs; and of those that cannot succeed here."""

from __future__ import annotations

from typing import Any

PATCH = "*** Begin Patch\n*** Add File: patched.txt\n+hello\n*** End Patch\n"

CALLS: list[tuple[str, dict[str, Any], bool | None]] = [
    # name, arguments, whether it fails; None: as the machine has it
    ("write_file", {"path": "calls/a.txt", "content": "one\ntwo\n"}, False),
    ("read_file", {"path": "calls/a.txt"}, False),
    ("edit_file", {"path": "calls/a.txt", "old_string": "one", "new_string": "three"}, False),
    ("multi_edit", {"path": "calls/a.txt", "edits": [{"old_string": "two", "new_string": "four"}]}, False),
    ("list_directory", {"path": "calls"}, False),
    ("glob_files", {"pattern": "calls/*.txt"}, False),
    ("grep_files", {"pattern": "three"}, False),
    ("search_files", {"query": "three"}, False),
    ("apply_patch", {"patch": PATCH}, None),
    ("move_file", {"source": "calls/a.txt", "destination": "calls/b.txt"}, False),
    ("delete_file", {"path": "calls/b.txt"}, False),
    ("run_command", {"command": "echo hello"}, False),
    ("task_list", {}, False),
    ("task_output", {"task_id": "p_0000000000000000"}, True),
    ("task_input", {"task_id": "p_0000000000000000", "text": "x"}, True),
    ("task_stop", {"task_id": "p_0000000000000000"}, True),
    ("env_set", {"name": "A_NAME", "value": "a value"}, False),
    ("env_get", {"name": "A_NAME"}, False),
    ("process_list", {}, False),
    ("port_list", {}, False),
    ("expose_port", {"port": 3000}, False),
    ("todo_write", {"todos": []}, None),
    ("todo_read", {}, False),
    ("git_status", {"path": "/workspace"}, None),
    ("git_log", {"path": "/nowhere"}, True),
    ("git_push", {"path": "/nowhere"}, True),
    ("shell_list", {}, False),
    ("claude_code", {"prompt": "hello", "timeout": 5}, None),
]
"""A tool that is not here is called with an argument that no tool has, which it must refuse in words."""


def every(listed: list[str]) -> list[tuple[str, dict[str, Any], bool | None]]:
    known = {name for name, _, _ in CALLS}
    here = [call for call in CALLS if call[0] in listed]
    return here + [(name, {"no such argument": 1}, True) for name in listed if name not in known]
