"""Claude Code's and Codex's own MCP servers by name, with programs in their place."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.mcp.world import PLAIN, Box

SERVES = """#!/bin/sh
[ "$1 $2" = "mcp serve" ] || [ "$1" = mcp-server ] || exit 3
[ "$2" = --help ] && { echo "Usage: codex mcp-server [OPTIONS]"; exit; }
exec python3 /workspace/plain.py
"""
# As 0.154.0 and later do.
TAKES_IT_FOR_A_PROMPT = """#!/bin/sh
[ "$1" = --version ] && { echo codex-cli 9.9.9; exit; }
[ "$2" = --help ] && { echo "Usage: codex [OPTIONS] [PROMPT]"; exit; }
echo "Error: stdin is not a terminal" >&2
exit 1
"""


def install(box: Box, name: str, program: str) -> None:
    box.write("/workspace/plain.py", PLAIN)
    box.call("write_file", path=f"~/.local/bin/{name}", content=program)
    box.call("run_command", command=f"chmod +x ~/.local/bin/{name}")


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_a_preset_is_the_agents_own_server_where_it_is_installed(new_box: Callable[..., Box], name: str) -> None:
    box = new_box()
    box.put(name, preset=name).raise_for_status()
    assert f"{name} is not installed here" in box.wait_for(name, "failed")["reason"]
    install(box, name, SERVES)
    box.wait_for(name, "ready")
    assert box.call(f"mcp_{name}_echo", text="relayed")["text"] == "relayed"


def test_a_codex_without_a_server_of_its_own_is_told_apart(new_box: Callable[..., Box]) -> None:
    box = new_box()
    install(box, "codex", TAKES_IT_FOR_A_PROMPT)
    box.put("codex", preset="codex").raise_for_status()
    reason = box.wait_for("codex", "failed")["reason"]
    assert "codex-cli 9.9.9 has no MCP server" in reason and "the tool codex" in reason
