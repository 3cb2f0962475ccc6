"""How a user's server is written down, what is made of it, and what is shown of it."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from paddock import errors
from paddock.mcp.relay.definitions import define, masked, read_document
from paddock.mcp.relay.tools import MAX_NAME_LENGTH, tool_name
from paddock.models.mcp import McpServer, McpTransport


def test_variables_come_from_the_sandboxs_environment() -> None:
    server = McpServer(command="${TOOL:-npx}", args=["--as", "${NAME}"], env={"KEY": "${SECRET}"}, cwd="sub")
    made = define(server, {"NAME": "alice", "SECRET": "s"})
    assert made.argv == ("npx", "--as", "alice") and made.env == {"KEY": "s"} and made.cwd == "/workspace/sub"


def test_a_variable_without_a_value_is_an_error_that_names_it() -> None:
    with pytest.raises(errors.Invalid, match="no SECRET"):
        define(McpServer(url="https://example.org/mcp", headers={"Authorization": "Bearer ${SECRET}"}), {})


@pytest.mark.parametrize(
    ("written", "transport"),
    [
        ({"command": "x"}, McpTransport.STDIO),
        ({"preset": "claude"}, McpTransport.STDIO),
        ({"url": "https://example.org/mcp"}, McpTransport.HTTP),
        ({"httpUrl": "https://example.org/mcp"}, McpTransport.HTTP),
        ({"type": "streamable-http", "url": "https://example.org/mcp"}, McpTransport.HTTP),
        ({"type": "sse", "url": "https://example.org/sse"}, McpTransport.SSE),
    ],
)
def test_every_usual_way_to_write_one_is_understood(written: dict[str, str], transport: McpTransport) -> None:
    document = {"mcpServers": {"it": {**written, "autoApprove": ["x"], "timeout": 5}}, "inputs": []}
    assert read_document(json.dumps(document).encode())["it"].transport is transport


@pytest.mark.parametrize(
    "written",
    [
        {},
        {"command": "x", "url": "https://example.org"},
        {"type": "stdio", "url": "https://example.org"},
        {"type": "carrier-pigeon", "url": "https://example.org"},
        {"url": "file:///etc/passwd"},
        {"url": "https://example.org", "headers": {"X": "a\r\nHost: b"}},
        {"command": "a\0b"},
        {"preset": "other"},
    ],
)
def test_what_cannot_be_is_refused(written: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        McpServer.model_validate(written)
    with pytest.raises(errors.Invalid, match="json is not right"):
        read_document(json.dumps({"mcpServers": {"it": written}}).encode())


def test_secrets_are_hidden_and_references_to_them_are_not() -> None:
    shown = masked(
        McpServer(
            command="x",
            args=["--api-key", "hidden1", "--token=hidden2", "--verbose", "plain"],
            env={"A": "hidden3", "B": "${B}", "C": "${C:-hidden4}"},
        )
    )
    assert shown["args"] == ["--api-key", "***", "--token=***", "--verbose", "plain"]
    assert shown["env"] == {"A": "***", "B": "${B}", "C": "***"}
    remote = masked(
        McpServer(
            url="https://me:hidden5@example.org/mcp?key=hidden6",
            headers={"Authorization": "Bearer hidden7", "X": "Bearer ${X}"},
        )
    )
    assert "hidden" not in json.dumps([shown, remote])
    assert remote["url"] == "https://***@example.org/mcp?***" and remote["headers"]["X"] == "Bearer ${X}"


def test_names_of_tools_are_such_as_every_model_takes() -> None:
    assert tool_name("time", "get_current_time") == "mcp_time_get_current_time"
    assert tool_name("a.b", "x/y z") == "mcp_a_b_x_y_z"
    long = [tool_name("server", "t" * 80 + end) for end in "ab"]
    assert len(long[0]) == MAX_NAME_LENGTH and long[0] != long[1]
