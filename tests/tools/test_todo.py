"""The to-do list."""

from __future__ import annotations

from tests.tools.workbench import Workbench


async def test_a_list_is_kept_and_replaced(fresh: Workbench) -> None:
    assert (await fresh.call("todo_read")).text == "Nothing to do."
    todos = [
        {"content": "plan ✓", "status": "completed"},
        {"content": "do", "status": "in_progress", "priority": "high"},
    ]
    written = await fresh.call("todo_write", todos=todos)
    assert written.text == "[x] plan ✓\n[>] do (high)"
    assert (await fresh.does("todo_read"))["todos"][0] == {**todos[0], "priority": "medium"}
    two = [{"content": "a", "status": "in_progress"}, {"content": "b", "status": "in_progress"}]
    assert "one thing" in await fresh.fails("todo_write", todos=two)
    assert len((await fresh.does("todo_read"))["todos"]) == 2
    await fresh.shell("echo '{' > ~/.paddock/todo.json")
    assert "todo_write" in await fresh.fails("todo_read")
    assert (await fresh.does("todo_write", todos=[]))["todos"] == []
