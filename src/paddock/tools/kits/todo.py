"""A list of things to do, for an agent that has none of its own."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from paddock import errors, json_limits
from paddock.tools.contents import turn
from paddock.tools.context import ToolContext
from paddock.tools.excerpt import once
from paddock.tools.tool import ToolFailed, ToolKit, ToolReply

kit = ToolKit("todo")

_MARKS = {"pending": "[ ]", "in_progress": "[>]", "completed": "[x]"}


class Todo(BaseModel):
    content: str = Field(min_length=1, max_length=2000, description="The task.")
    status: Literal["pending", "in_progress", "completed"] = Field(default="pending", description="Its status.")
    priority: Literal["low", "medium", "high"] = Field(default="medium", description="Its priority.")


class Todos(BaseModel):
    todos: list[Todo]


_todos = TypeAdapter(list[Todo])


@kit.tool("todo_read", "Read the to-do list", read_only=True, idempotent=True)
async def todo_read(ctx: ToolContext) -> ToolReply[Todos]:
    """The list of things to do, as todo_write left it. It is kept in the sandbox."""
    try:
        data = b"".join([chunk async for chunk in ctx.machine.read_file(_file(ctx), 0, 1 << 22, user=ctx.user)])
        json_limits.check(data)
        todos = _todos.validate_json(data)
    except errors.NotFound:
        todos = []
    except (ValidationError, errors.Invalid):
        raise ToolFailed(f"{_file(ctx)} is not a to-do list any more. Write a new one with todo_write.") from None
    return ToolReply(_tell(todos), Todos(todos=todos))


@kit.tool("todo_write", "Write the to-do list", destructive=True, idempotent=True)
async def todo_write(
    ctx: ToolContext,
    todos: Annotated[list[Todo], Field(max_length=200, description="The whole list, in order; empty to clear it.")],
) -> ToolReply[Todos]:
    """Replace the list of things to do: plan work of several steps, and mark each as it is begun and done.

    At most one is in progress at a time.
    """
    if sum(todo.status == "in_progress" for todo in todos) > 1:
        raise ToolFailed("Only one thing can be in progress at a time. Mark the others pending or completed.")
    path = _file(ctx)
    async with turn(ctx, path):
        text = json.dumps([todo.model_dump() for todo in todos], ensure_ascii=False, indent=1)
        await ctx.machine.write_file(path, once(text.encode(errors="replace")), user=ctx.user)
    return ToolReply(_tell(todos), Todos(todos=todos))


def _file(ctx: ToolContext) -> str:
    return f"{ctx.folder}/todo.json"


def _tell(todos: list[Todo]) -> str:
    lines = [f"{_MARKS[todo.status]} {todo.content}{' (high)' * (todo.priority == 'high')}" for todo in todos]
    return "\n".join(lines) or "Nothing to do."
