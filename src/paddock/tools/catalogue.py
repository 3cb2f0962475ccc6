"""All tools, by name."""

from __future__ import annotations

from collections.abc import Sequence

from paddock import errors
from paddock.tools.argument_errors import unknown
from paddock.tools.kits import (
    agents,
    browser,
    browser_pages,
    code,
    commands,
    environment,
    files,
    git,
    network,
    patch,
    search,
    shells,
    todo,
)
from paddock.tools.selection import Selection
from paddock.tools.tool import Tool, ToolKit

KITS: Sequence[ToolKit] = (
    files.kit,
    patch.kit,
    search.kit,
    commands.kit,
    shells.kit,
    code.kit,
    git.kit,
    network.kit,
    browser.kit,
    browser_pages.kit,
    environment.kit,
    todo.kit,
    agents.kit,
)

TOOLS: dict[str, Tool] = {tool.name: tool for kit in KITS for tool in kit.tools}


def find(name: str) -> Tool:
    """Find a tool by its own name, or by its LangChain name."""
    for tool in TOOLS.values():
        if name in (tool.name, tool.langchain):
            return tool
    raise errors.ToolNotFound(unknown("tool", name, TOOLS))


def usual_tools(text: str) -> Selection:
    """Parse the setting for the tools that MCP clients are shown. Raises if it names an unknown tool."""
    selection = Selection.parse(text)
    selection.of(list(TOOLS.values()))
    return selection
