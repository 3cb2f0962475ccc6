"""The real Claude Code and Codex, from npm, with a program in the place of their model: they are asked by their tools,
their own MCP servers are relayed, and what they lack is said.

Each is a download of some hundred megabytes, so only on request: ``PADDOCK_TEST_AGENT_CLIS=1``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2b.environments import Environment, Language
from tests.mcp.environments import prepared
from tests.mcp.world import Box

CLAUDE = Environment("agent-claude", Language.JAVASCRIPT, ("@anthropic-ai/claude-code@2.1.197",))
CODEX = Environment("agent-codex", Language.JAVASCRIPT, ("@openai/codex@0.153.4",))
NEWEST_CODEX = Environment("agent-codex-newest", Language.JAVASCRIPT, ("@openai/codex@0.166.0",))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not os.environ.get("PADDOCK_TEST_AGENT_CLIS"),
        reason="downloads a gigabyte: PADDOCK_TEST_AGENT_CLIS=1 runs it",
    ),
]


MODEL = (Path(__file__).parent / "servers" / "model.py").read_text()
SAID = "The model was reached."
CODEX_SETTINGS = """
model = "stand-in"
model_provider = "here"
[model_providers.here]
name = "here"
base_url = "http://127.0.0.1:3300/v1"
wire_api = "responses"
"""

Having = Callable[[Environment], Box]


@pytest.fixture
def having(new_box: Callable[..., Box]) -> Having:
    """A sandbox that has it on its PATH."""

    def make(environment: Environment) -> Box:
        folder = str(prepared(environment).folder)
        return new_box(
            env={"PATH": f"{folder}/node_modules/.bin:/usr/local/bin:/usr/bin:/bin"},
            mounts=[{"source": folder, "target": folder, "read_only": True}],
            resources={"memory_mb": 1024},
        )

    return make


def give_model(box: Box) -> None:
    box.write("/workspace/model.py", MODEL)
    task = box.call("run_command", command="python3 model.py | tee model.log", background=True)["data"]["task_id"]
    assert "listening" in box.call("task_output", task_id=task, stdout_offset=0, wait=60)["text"]
    box.call("env_set", name="ANTHROPIC_BASE_URL", value="http://127.0.0.1:3300")
    box.call("env_set", name="ANTHROPIC_API_KEY", value="none")
    box.call("write_file", path="~/.codex/config.toml", content=CODEX_SETTINGS)


@pytest.mark.parametrize(
    ("tool", "environment"),
    [("claude_code", CLAUDE), ("codex", CODEX), ("codex", NEWEST_CODEX)],
    ids=["claude", "codex", "newest codex"],
)
def test_it_is_asked_answers_and_goes_on_where_it_was(having: Having, tool: str, environment: Environment) -> None:
    box = having(environment)
    give_model(box)
    first = box.call(tool, prompt="say something", timeout=300)
    assert not first["failed"] and first["data"]["result"] == SAID, first["text"]
    session = first["data"]["session_id"]
    again = box.call(tool, prompt="once more", session_id=session, timeout=300)
    assert not again["failed"] and again["data"] == {**again["data"], "result": SAID, "session_id": session}, again


def test_claude_code_without_a_login_says_what_it_needs(having: Having) -> None:
    answer = having(CLAUDE).call("claude_code", prompt="hello", timeout=300)
    assert answer["failed"] and "ANTHROPIC_API_KEY" in answer["text"]


def test_codex_without_a_key_says_what_it_needs(having: Having) -> None:
    answer = having(NEWEST_CODEX).call("codex", prompt="hello", timeout=300)
    assert answer["failed"] and "OPENAI_API_KEY" in answer["text"]


def test_claude_codes_own_server_is_relayed(having: Having) -> None:
    box = having(CLAUDE)
    box.put("claude", preset="claude").raise_for_status()
    box.wait_for("claude", "ready")
    assert {"mcp_claude_Bash", "mcp_claude_Read", "mcp_claude_Edit"} <= set(box.tools())
    box.write("/workspace/note.txt", "from a file")
    read = box.call("mcp_claude_Read", file_path="/workspace/note.txt")
    assert not read["failed"] and "from a file" in read["text"]


def test_codexs_own_server_is_relayed(having: Having) -> None:
    box = having(CODEX)
    give_model(box)
    box.put("codex", preset="codex").raise_for_status()
    box.wait_for("codex", "ready")
    assert {"mcp_codex_codex", "mcp_codex_codex-reply"} <= set(box.tools())
    first = box.call("mcp_codex_codex", prompt="say something")
    assert not first["failed"] and first["text"] == SAID
    thread = first["data"]["threadId"]
    assert box.call("mcp_codex_codex-reply", prompt="once more", threadId=thread)["text"] == SAID


def test_a_codex_that_has_no_server_of_its_own_is_said_to_be_so(having: Having) -> None:
    box = having(NEWEST_CODEX)
    box.put("codex", preset="codex").raise_for_status()
    assert "@openai/codex@0.153.4" in box.wait_for("codex", "failed")["reason"]


def test_claude_code_in_the_sandbox_finds_its_tools(having: Having) -> None:
    box = having(CLAUDE)
    header = '--header "Authorization: Bearer $PADDOCK_MCP_TOKEN"'
    box.run(f'claude mcp add --transport http paddock "$PADDOCK_MCP_URL" {header}')
    assert "Connected" in box.run("claude mcp list 2>&1")


@pytest.mark.parametrize("environment", [CODEX, NEWEST_CODEX], ids=["codex", "newest codex"])
def test_codex_in_the_sandbox_offers_its_tools_to_the_model(having: Having, environment: Environment) -> None:
    box = having(environment)
    give_model(box)
    box.run('codex mcp add paddock --url "$PADDOCK_MCP_URL" --bearer-token-env-var PADDOCK_MCP_TOKEN')
    assert not box.call("codex", prompt="say something", timeout=300)["failed"]
    offered = box.run("cat /workspace/model.log")
    assert all(name in offered for name in ("apply_patch", "grep_files", "run_command"))
