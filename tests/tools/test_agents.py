"""Claude Code and Codex: the way they are called and heard, with programs in their place that speak as they do."""

from __future__ import annotations

from paddock.tools.kits.agents import _Claude, _Codex
from tests.tools.workbench import Workbench

CLAUDE = r"""#!/bin/sh
case "$*" in
  *--model\ broken*)
    echo '{"type":"result","subtype":"success","is_error":true,"result":"Not logged in · Please run /login"}'
    exit 1;;
  *--model\ crash*) echo 'it went wrong' >&2; exit 3;;
  *--model\ slow*) echo '{"type":"system","subtype":"init","session_id":"s-9"}'; sleep 600;;
esac
echo '{"type":"system","subtype":"init","session_id":"s-1"}'
echo 'a line that is no JSON'
echo '{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Bash","input":{}}]},"session_id":"s-1"}'
printf '{"type":"result","subtype":"success","is_error":false,"session_id":"s-1","total_cost_usd":0.5,'
printf '"result":"%s | %s | %s | %s"}' "$(cat)" "$*" "$(pwd)" "$ANTHROPIC_API_KEY"
"""
CODEX = r"""#!/bin/sh
echo '{"type":"thread.started","thread_id":"t-1"}'
echo '{"type":"item.completed","item":{"type":"command_execution","command":"ls"}}'
printf '{"type":"item.completed","item":{"type":"agent_message",'
printf '"text":"%s | %s | %s"}}\n' "$(cat)" "$*" "$CODEX_API_KEY"
case "$*" in *--model\ broken*) echo '{"type":"turn.failed","error":{"message":"no such model"}}'; exit 1;; esac
echo '{"type":"turn.completed","usage":{}}'
"""


async def install(work: Workbench, name: str, program: str) -> None:
    await work.does("write_file", path=f"~/.local/bin/{name}", content=program)
    await work.shell(f"chmod +x ~/.local/bin/{name}")


async def test_claude_code_is_asked_and_answers(fresh: Workbench) -> None:
    assert "npm install" in await fresh.fails("claude_code", prompt="hello")
    await install(fresh, "claude", CLAUDE)
    await fresh.does("env_set", name="ANTHROPIC_API_KEY", value="key")
    await fresh.put("x", "")
    answer = await fresh.does("claude_code", prompt="do it", cwd=fresh.folder, session_id="s-1")
    prompt, words, cwd, key = answer["result"].split(" | ")
    assert (prompt, cwd, key) == ("do it", fresh.folder, "key")
    assert "--permission-mode bypassPermissions --resume s-1" in words
    assert (answer["session_id"], answer["steps"], answer["cost_usd"]) == ("s-1", 1, 0.5)
    assert "ANTHROPIC_API_KEY" in await fresh.fails("claude_code", prompt="hello", model="broken")
    assert "it went wrong" in await fresh.fails("claude_code", prompt="hello", model="crash")
    for seconds in (2, 30):  # to say how its session is called; the first is enough where nothing is busy
        if "'s-9'" in (said := await fresh.fails("claude_code", prompt="hello", model="slow", timeout=seconds)):
            break
    assert "'s-9'" in said


async def test_codex_is_asked_and_answers(fresh: Workbench) -> None:
    assert "npm install" in await fresh.fails("codex", prompt="hello")
    await install(fresh, "codex", CODEX)
    assert "OPENAI_API_KEY" in await fresh.fails("codex", prompt="hello")
    await fresh.does("env_set", name="OPENAI_API_KEY", value="key")
    answer = await fresh.does("codex", prompt="do it")
    assert answer["result"] == "do it | exec --json --skip-git-repo-check --sandbox danger-full-access - | key"
    assert (answer["session_id"], answer["steps"]) == ("t-1", 1)
    again = await fresh.does("codex", prompt="more", session_id="t-1", access="read-only")
    assert "--sandbox read-only resume t-1 -" in again["result"]
    assert "no such model" in await fresh.fails("codex", prompt="hello", model="broken")


def test_what_agents_say_that_is_not_expected_is_passed_over() -> None:
    for conversation in (_Claude(), _Codex()):
        for event in ({}, {"type": "assistant", "message": 1}, {"type": "item.completed"}, {"type": "new"}):
            assert conversation.hear(event) is None
