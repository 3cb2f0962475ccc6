"""The latest of a stream, in one answer: exactly so much, no half characters, and what is missing is told."""

from __future__ import annotations

import json

import pytest

from paddock.accounts.byte_budget import ByteBudget, Reservation
from paddock.api.compat.daytona.toolbox.charting import with_charts
from paddock.api.compat.daytona.toolbox.output import LatestOutput, json_text
from paddock.machine.base import OutputChunk, Stream

DIGITS = b"0123456789" * 1000
WORDS = "é€😀".encode() * 100
CHART = json.dumps({"type": "line", "elements": []})


def latest(limit: int, data: bytes, piece: int, *, skipped: int = 0, budget: int = 0) -> tuple[bytes, bytes]:
    """The output, and the note before it. ``skipped``: bytes that were lost before the first."""
    kept = LatestOutput(Reservation(ByteBudget(0, budget)), limit)
    for at in range(0, len(data), piece):
        kept.add(OutputChunk(Stream.STDOUT, at, data[at : at + piece], 0 if at else skipped))
    output = kept.whole()
    return output, kept.note(len(output))


@pytest.mark.parametrize("piece", [1, 3, 64, 10_000])
@pytest.mark.parametrize("limit", [1, 7, 64, 9_999])
def test_the_latest_bytes_are_kept_and_the_others_counted(limit: int, piece: int) -> None:
    output, note = latest(limit, DIGITS, piece)
    assert output == DIGITS[-limit:]
    assert b"%d bytes of stdout are missing here: an answer has the latest %d" % (len(DIGITS) - limit, limit) in note


@pytest.mark.parametrize("limit", [10_000, 20_000])
def test_what_fits_is_whole(limit: int) -> None:
    assert latest(limit, DIGITS, 64) == (DIGITS, b"")


@pytest.mark.parametrize("limit", range(1, 20))
def test_no_character_is_cut_in_two(limit: int) -> None:
    output, note = latest(limit, WORDS, 5)
    assert WORDS.decode().endswith(output.decode())
    assert b"%d bytes of stdout" % (len(WORDS) - len(output)) in note


def test_what_was_lost_before_is_told_too() -> None:
    output, note = latest(100, b"x" * 10, 5, skipped=7)
    assert (b"7 bytes of stdout are missing" in output, output[-10:], note) == (True, b"x" * 10, b"")
    output, note = latest(4, b"x" * 10, 5, skipped=7)
    assert (output, b"13 bytes of stdout" in note) == (b"xxxx", True)


def test_where_there_is_no_room_less_is_kept() -> None:
    output, note = latest(8 << 20, b"y" * (2 << 20), 1 << 16, budget=3 << 20)
    assert 0 < len(output) <= 1 << 20
    assert b"%d bytes" % ((2 << 20) - len(output)) in note


async def test_texts_become_one_string_of_json() -> None:
    text = b'a"\\\n\x00\xff' + WORDS * 1000
    assert json.loads(await json_text(b"note", text, b"")) == "note" + text.decode(errors="replace")


def test_a_chart_whose_beginning_is_missing_hides_no_other() -> None:
    whole = f"a\n\nM{CHART}M\nb".encode()
    result, charts = with_charts(whole, "M", b"")
    assert (json.loads(result), len(json.loads(charts))) == ("a\nb", 1)
    result, charts = with_charts(f"{CHART[5:]}M\nc\n\nM{CHART}M\nd".encode(), "M", b"NOTE")
    assert (json.loads(result), len(json.loads(charts))) == ("NOTEc\nd", 1)
