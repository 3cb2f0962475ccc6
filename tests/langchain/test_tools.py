"""LangChain tools in a real sandbox."""

from __future__ import annotations

import asyncio
import base64
import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolCall, ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from paddock import errors
from paddock.client import SyncSandboxClient
from paddock.langchain import SandboxToolkit
from paddock.session import SandboxSession, SyncSandboxSession
from tests.e2b.server import PaddockServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # the first one waits for a server to start

PROMISED = {
    *("file_read", "file_write", "file_delete", "file_list", "file_search", "shell_exec", "shell_interactive"),
    *("git_clone", "git_commit", "git_push", "git_status", "python_exec", "pip_install", "http_request"),
    *("browser_open", "env_get", "env_set", "process_list"),
}

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture(scope="module")
def session(local_server: PaddockServer) -> Iterator[SyncSandboxSession]:
    with SyncSandboxSession.create(server_url=local_server.url, api_key=local_server.key) as session:
        yield session


@pytest.fixture(scope="module")
def tools(session: SyncSandboxSession) -> dict[str, BaseTool]:
    return {tool.name: tool for tool in session.get_tools()}


def call(name: str, **arguments: Any) -> ToolCall:
    """As a model would."""
    return ToolCall(name=name, args=arguments, id="call-1", type="tool_call")


def invoke(tool: BaseTool, **arguments: Any) -> ToolMessage:
    message = tool.invoke(call(tool.name, **arguments))
    assert isinstance(message, ToolMessage)
    return message


def test_every_tool_of_the_catalogue_is_there_by_its_langchain_name(
    session: SyncSandboxSession, tools: dict[str, BaseTool]
) -> None:
    assert list(tools) == [info.langchain_name for info in session.catalogue]
    assert len(tools) >= 23
    assert tools.keys() >= PROMISED


def test_a_model_is_shown_the_schema_of_the_catalogue(session: SyncSandboxSession, tools: dict[str, BaseTool]) -> None:
    for info in session.catalogue:
        shown = convert_to_openai_tool(tools[info.langchain_name])["function"]
        assert shown["description"].split("\n")[0].split()[:2] == info.description.split()[:2]
        assert shown["parameters"]["properties"].keys() == info.input_schema["properties"].keys()
        # LangChain keeps these for itself.
        assert not {"config", "run_manager", "callbacks"} & info.input_schema["properties"].keys()


def test_a_tool_answers_with_text_and_with_data(tools: dict[str, BaseTool], session: SyncSandboxSession) -> None:
    message = invoke(tools["file_write"], path="/workspace/greeting", content="hello")
    assert message.status == "success" and "/workspace/greeting" in message.text
    assert message.artifact["path"] == "/workspace/greeting"
    assert session.read_file("/workspace/greeting") == "hello"


async def test_coroutines_call_the_same_tools(tools: dict[str, BaseTool]) -> None:
    message = await tools["shell_exec"].ainvoke(call("shell_exec", command="echo $((6 * 7)); exit 3"))
    assert "42" in message.text
    assert message.artifact["exit_code"] == 3


def test_tools_outlive_an_event_loop(tools: dict[str, BaseTool]) -> None:
    for number in ("1", "2"):
        message = asyncio.run(tools["shell_exec"].ainvoke(call("shell_exec", command=f"echo {number}")))
        assert number in message.text


async def test_tools_of_an_async_session_work_in_plain_code() -> None:
    async with await SandboxSession.create() as session:
        tool = session.get_tools(["shell_exec"])[0]
        message = await asyncio.to_thread(invoke, tool, command="echo plain")
        assert "plain" in message.text


def test_a_tool_that_fails_tells_the_model(tools: dict[str, BaseTool]) -> None:
    message = invoke(tools["file_read"], path="/workspace/none")
    assert message.status == "error"
    assert "none" in message.text and message.artifact is None


def test_arguments_that_do_not_fit_are_told_to_the_model(tools: dict[str, BaseTool]) -> None:
    message = invoke(tools["file_read"], colour="blue")
    assert message.status == "error"
    assert "path" in message.text and "colour" in message.text


def test_a_picture_is_an_image_block(tools: dict[str, BaseTool], session: SyncSandboxSession) -> None:
    session.upload("/workspace/dot.png", PNG)
    message = invoke(tools["file_read"], path="dot.png")
    (image,) = [block for block in message.content_blocks if block["type"] == "image"]
    assert image["mime_type"] == "image/png"
    assert base64.b64decode(image["base64"]) == PNG


def test_tools_are_chosen_by_either_name(session: SyncSandboxSession) -> None:
    assert [tool.name for tool in session.get_tools(["write_file", "shell_exec"])] == ["file_write", "shell_exec"]


def test_tools_are_chosen_by_kit_and_by_what_they_may(session: SyncSandboxSession) -> None:
    files = session.get_tools(kits=["files"])
    assert "file_read" in {tool.name for tool in files} and "shell_exec" not in {tool.name for tool in files}
    reading = session.get_tools(read_only=True)
    assert reading and all(tool.metadata and tool.metadata["readOnlyHint"] for tool in reading)
    assert SandboxToolkit.of(session, kits=["files"]).get_tools()[0].name == files[0].name
    assert "files" in SandboxToolkit.of(session).known_kits


def test_a_tool_or_a_kit_that_does_not_exist_is_an_error(session: SyncSandboxSession) -> None:
    with pytest.raises(errors.ToolNotFound, match="file_read"):
        session.get_tools(["file_reed"])
    with pytest.raises(errors.ToolNotFound, match="files"):
        session.get_tools(kits=["kitchen"])


def test_that_the_sandbox_is_gone_is_told_to_the_program() -> None:
    with SyncSandboxSession.create() as session:
        tool = session.get_tools(["file_read"])[0]
        with SyncSandboxClient() as client:
            client.delete_sandbox(session.sandbox_id)
        with pytest.raises((errors.SandboxNotFound, errors.SandboxGone)):
            invoke(tool, path="note")


def test_without_langchain_it_says_what_to_install(
    session: SyncSandboxSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "paddock.langchain", None)
    with pytest.raises(errors.Unsupported, match="pip install 'langchain-core"):
        session.get_tools()


def test_the_example_runs() -> None:
    ran = subprocess.run(
        [sys.executable, EXAMPLES / "langchain_agent.py"], capture_output=True, text=True, timeout=280, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "2 3 5 7 11 13 17 19 23 29" in ran.stdout


def _png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    pixel = zlib.compress(b"\0\xff\0\0")
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", pixel)
        + chunk(b"IEND", b"")
    )


PNG = _png()


def test_a_model_hears_of_other_tools_by_the_names_that_it_has(tools: dict[str, BaseTool]) -> None:
    """In descriptions, errors and hints; what a file or a command says stays as it is."""
    strange = {
        "run_command",
        "read_file",
        "write_file",
        "list_directory",
        "grep_files",
        "shell_run",
        "browser_navigate",
    }
    for tool in tools.values():
        said = f"{tool.description} {convert_to_openai_tool(tool)}"
        assert not strange & set(re.findall(r"\w+", said)), tool.name
    assert "shell_interactive" in tools["shell_exec"].description
    refused = invoke(tools["shell_exec"], comand="true")
    assert refused.status == "error" and refused.text.startswith("shell_exec was not called.")
    missing = invoke(tools["file_read"], path="/workspace/none")
    assert "file_list" in missing.text and "list_directory" not in missing.text
    long = invoke(tools["shell_exec"], command="echo run_command; seq 20000")
    assert "read it with file_read" in long.text and long.text.startswith("run_command\n")
    assert "with shell_exec and background" in invoke(tools["expose_port"], port=3999).text
