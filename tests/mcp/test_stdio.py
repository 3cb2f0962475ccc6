"""What a server may write to its output without doing harm."""

from __future__ import annotations

import json
from typing import cast

import pytest

from paddock.machine.base import Machine, ProcessInfo, ProcessStatus
from paddock.mcp.relay.incoming import MAX_ANSWER, MAX_OTHER
from paddock.mcp.relay.stdio import StdioWire
from paddock.memory import unlimited


@pytest.fixture
async def wire() -> StdioWire:
    process = ProcessInfo("p_1", ProcessStatus.RUNNING, None, 1, "", 0.0, None, 0, 0, False)
    return StdioWire(cast(Machine, None), process, unlimited())


@pytest.mark.parametrize(
    "line", [b"", b"hello", b"{", b"[]", b"null", b"{}", b"\xff\xfe", b"{" * 5000, b'{"jsonrpc": 1}']
)
async def test_what_is_no_message_is_passed_over(wire: StdioWire, line: bytes) -> None:
    assert await wire._message(line) is None


async def test_an_answer_to_another_session_is_nobodys(wire: StdioWire) -> None:
    for name in (1, "1", "00000000:1", f"{wire._session}:", f"{wire._session}:{{"):
        assert await wire._message(json.dumps({"jsonrpc": "2.0", "id": name, "result": {}}).encode()) is None
    ours = await wire._message(json.dumps({"jsonrpc": "2.0", "id": wire._ours(7), "result": {}}).encode())
    assert ours is not None and ours.message.id == 7  # type: ignore[union-attr]


async def test_an_answer_that_is_too_large_is_an_error_for_whoever_waits_for_it(wire: StdioWire) -> None:
    name = wire._ours(7)
    for result in ({"text": "x" * MAX_OTHER}, {"values": [0] * 60_000}):
        for line in ({"id": name, "result": result}, {"result": result, "id": name}):
            refused = await wire._message(json.dumps({"jsonrpc": "2.0", **line}).encode())
            assert refused is not None and refused.message.id == 7  # type: ignore[union-attr]
            assert "more than" in refused.message.error.message or "larger" in refused.message.error.message  # type: ignore[union-attr]
    wire._long.add(name)
    answer = {"jsonrpc": "2.0", "result": {"text": f'"{name[:9]}x' + "x" * (MAX_ANSWER - 200)}, "id": name}
    taken = await wire._message(json.dumps(answer).encode())
    assert taken is not None and taken.message.result == answer["result"]  # type: ignore[union-attr]
    assert wire._long == set()
