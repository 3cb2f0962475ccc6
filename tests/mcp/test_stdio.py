"""What a server may write to its output without doing harm."""

from __future__ import annotations

import json
from typing import cast

import pytest

from paddock.machine.base import Machine, ProcessInfo, ProcessStatus
from paddock.mcp.relay.stdio import StdioWire


@pytest.fixture
async def wire() -> StdioWire:
    process = ProcessInfo("p_1", ProcessStatus.RUNNING, None, 1, "", 0.0, None, 0, 0, False)
    return StdioWire(cast(Machine, None), process)


@pytest.mark.parametrize(
    "line", [b"", b"hello", b"{", b"[]", b"null", b"{}", b"\xff\xfe", b"{" * 5000, b'{"jsonrpc": 1}']
)
async def test_what_is_no_message_is_passed_over(wire: StdioWire, line: bytes) -> None:
    assert wire._message(line) is None


async def test_an_answer_to_another_session_is_nobodys(wire: StdioWire) -> None:
    for name in (1, "1", "00000000:1", f"{wire._session}:", f"{wire._session}:{{"):
        assert wire._message(json.dumps({"jsonrpc": "2.0", "id": name, "result": {}}).encode()) is None
    ours = wire._message(json.dumps({"jsonrpc": "2.0", "id": wire._ours(7), "result": {}}).encode())
    assert ours is not None and ours.message.id == 7  # type: ignore[union-attr]
