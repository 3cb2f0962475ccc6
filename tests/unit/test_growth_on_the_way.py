"""Texts with secrets, frames of WebSockets, egress rules, cursors of lists and events of a server cost at most linear
time. Each is the worst that we know of."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from paddock import errors, redaction
from paddock.api import frames
from paddock.client.sse import EventDecoder
from paddock.egress.addresses import closed_entry
from paddock.egress.policy import EgressPolicy
from paddock.egress.rules import Rule
from paddock.store import listing
from paddock.store.listing import ListingFilter
from tests.support.growth import assert_linear

Make = Callable[[int], Any]
Work = Callable[[Any], object]
SIZE = 40_000


def refused(work: Work) -> Work:
    """It may say no, as long as it says so quickly."""

    def tried(given: Any) -> None:
        with suppress(errors.PaddockError, ValueError, RecursionError):
            work(given)

    return tried


def cursor(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def read_cursor(text: str) -> object:
    return listing._read_cursor(ListingFilter(), text)


def decode_events(data: bytes) -> None:
    decoder = EventDecoder()
    for at in range(0, len(data), 100):
        for _ in decoder.feed(data[at : at + 100]):
            pass


CASES: dict[str, tuple[Make, Work, int]] = {
    **{
        f"redact, {name}": (lambda n, start=start, piece=piece: start + piece * n, redaction.redact, SIZE // 4)
        for name, start, piece in (
            ("users", "@ ", "ab://x:"),
            ("one user", "@ ab://", "x"),
            ("schemes", "@ ", "abcdefghijklmnopqrstu"),
            ("parameters", "", "?token="),
            ("names", "", "?aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
            ("names of secrets", "?", "token"),
            ("headers", "", "authorization: "),
            ("long headers", "", "x-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-"),
            ("bearers", "", "bearer  "),
            ("keys", "", "e2b_00000000"),
            ("tickets", "", "t_00000000"),
            ("numbers", "", "1234567890."),
            ("one word", "=", "a.b-"),
            ("spaces", "authorization", " "),
        )
    },
    "redact, a document": (
        lambda n: {"list": ["?token=abcdefgh"] * n, "token": "abcdefgh"}, redaction.redact_all, SIZE // 8,
    ),
    "frame, input": (
        lambda n: json.dumps({"type": "stdin", "data": "QUJD" * n}), refused(frames.read_frame), SIZE * 4,
    ),
    "frame, no base64": (
        lambda n: json.dumps({"type": "stdin", "data": "QUJD" * n + "*"}), refused(frames.read_frame), SIZE * 4,
    ),
    "frame, fields": (
        lambda n: json.dumps({"type": "resize"} | {f"f{each}": 1 for each in range(n)}),
        refused(frames.read_frame), SIZE // 4,
    ),
    "frame, depth": (lambda n: "[" * n, refused(frames.read_frame), SIZE * 4),
    "rule, labels": (lambda n: "a." * n, refused(Rule.parse), SIZE * 4),
    "rule, colons": (lambda n: "1:" * n + "/1", refused(Rule.parse), SIZE * 4),
    "rules": (
        lambda n: {"allow": [f"*.a{each}.example.org:443" for each in range(n)]}, refused(EgressPolicy.from_json), 248,
    ),
    "rules, networks": (
        lambda n: [Rule.parse(f"10.{each % 256}.0.0/16") for each in range(n)],
        lambda rules: [closed_entry(rule) for rule in rules], 1000,
    ),
    "cursor": (lambda n: cursor(["created_at", True, 1.0, "a" * n]), refused(read_cursor), SIZE * 8),
    "cursor, depth": (lambda n: base64.urlsafe_b64encode(b"[" * n).decode(), refused(read_cursor), SIZE * 8),
    "cursor, digits": (
        lambda n: base64.urlsafe_b64encode(b"[" + b"9" * n + b"]").decode(), refused(read_cursor), SIZE * 8,
    ),
    "events, one line": (lambda n: b"data: " + b"a" * n + b"\n\n", decode_events, SIZE * 8),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_cost_grows_no_faster_than_the_input(case: str) -> None:
    make, work, size = CASES[case]
    assert_linear(make, work, size)
