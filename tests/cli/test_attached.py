"""What ``exec`` shows of a command, on a server that follows a script."""

from __future__ import annotations

import pytest

from paddock.cli.attached import AttachedProcess
from paddock.cli.exec import ExecRequest
from tests.client.script import script
from tests.client.test_streams import EXIT, STARTED, output, stream

WANTED = ExecRequest("alice_1f2e3d4c", "echo hi", None, None, None, None, None, interactive=False)


async def test_output_that_went_missing_is_owned_up_to(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    server = script(stream(STARTED, output("begin", 0), output("end", 2_000_005), EXIT))
    assert await AttachedProcess(server.async_client(), WANTED).run() == 0
    shown = capfdbinary.readouterr()
    assert shown.out == b"beginend"
    assert b"Warning: 2.0 MB of output" in shown.err


async def test_output_that_is_whole_is_shown_without_a_word(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    server = script(stream(STARTED, output("be", 0), breaks=True), stream(output("gin", 2), EXIT))
    assert await AttachedProcess(server.async_client(), WANTED).run() == 0
    shown = capfdbinary.readouterr()
    assert (shown.out, shown.err) == (b"begin", b"")
