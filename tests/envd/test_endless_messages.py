"""Streams of very many tiny messages: the server's loop has time for others, and none of them is lost."""

from __future__ import annotations

import pytest

from paddock.server.context import ServerContext
from tests.envd.box import Box, collected, envelope, envelopes
from tests.support.stalls import free_loop

ENVELOPES = 300_000
PARTS = 60_000
STREAM = {"Content-Type": "application/connect+json"}


async def test_very_many_empty_messages_of_streamed_input_hold_nobody_up(box: Box, context: ServerContext) -> None:
    async with box.running("cat", stdin=True) as stream:
        pid = await stream.pid()
        start = envelope({"start": {"process": {"pid": pid}}})
        last = envelope({"data": {"input": {"stdin": "bGFzdA=="}}})
        with free_loop(context.watchdog):
            body = start + envelope(b"") * ENVELOPES + last
            answer = await box.post("/process.Process/StreamInput", body, **STREAM)
        assert list(envelopes(answer.content)) == [(0, {}), (2, {})]
        await box.ok("process.Process/CloseStdin", {"process": {"pid": pid}})
        ran = collected([(0, {"event": {"start": {"pid": pid}}}), *await stream.rest()])
    assert ran.stdout == "last"


@pytest.mark.parametrize("part", [b"\r\n--x\r\n\r\n", b'\r\n--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n'])
async def test_very_many_empty_parts_of_a_form_hold_nobody_up(box: Box, context: ServerContext, part: bytes) -> None:
    last = b'\r\n--x\r\nContent-Disposition: form-data; name="file"; filename="last"\r\n\r\nlast\r\n--x--\r\n'
    with free_loop(context.watchdog):
        kind = {"Content-Type": "multipart/form-data; boundary=x"}
        answer = await box.client.post("/files", content=part * PARTS + last, headers=box.headers(**kind))
    assert answer.status_code == 200, answer.text
    assert (await box.get("last")).content == b"last"
