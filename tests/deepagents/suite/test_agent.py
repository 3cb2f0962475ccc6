"""Agents on the backend: the example as it stands, and what a model sees of a command that fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from deepagents import create_deep_agent
from langchain_core.messages import AIMessage, ToolMessage

from paddock.deepagents import PaddockSandbox
from paddock.session import SandboxSession, SyncSandboxSession

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
sys.path.insert(0, str(EXAMPLES))
import models  # noqa: E402


def test_the_example_runs() -> None:
    ran = subprocess.run(
        [sys.executable, EXAMPLES / "deep_agent.py"], capture_output=True, text=True, timeout=500, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "2 3 5 7 11 13 17 19 23 29" in ran.stdout


async def test_a_model_sees_what_happened_in_the_sandbox() -> None:
    script = (
        models.calls("write_file", file_path="/workspace/a.txt", content="one two"),
        models.calls("edit_file", file_path="/workspace/a.txt", old_string="two", new_string="three"),
        models.calls("execute", command="cat /workspace/a.txt; exit 3"),
        models.calls("grep", pattern="three", path="/workspace"),
        AIMessage("done"),
    )
    async with await SandboxSession.create() as session:
        agent = create_deep_agent(model=models.ScriptedModel(messages=iter(script)), backend=PaddockSandbox.of(session))
        said = (await agent.ainvoke({"messages": [("user", "go")]}))["messages"]
        assert await session.read_file("/workspace/a.txt") == "one three"
    results = {message.name: message for message in said if isinstance(message, ToolMessage)}
    assert "one three" in results["execute"].text and "exit code 3" in results["execute"].text
    assert "/workspace/a.txt" in results["grep"].text


def test_a_model_hears_of_a_file_that_is_not_there() -> None:
    script = (models.calls("read_file", file_path="/workspace/none"), AIMessage("done"))
    with SyncSandboxSession.create() as session:
        agent = create_deep_agent(model=models.ScriptedModel(messages=iter(script)), backend=PaddockSandbox.of(session))
        said = agent.invoke({"messages": [("user", "go")]})["messages"]
    assert any("not_found" in message.text for message in said if isinstance(message, ToolMessage))
