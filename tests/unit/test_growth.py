"""Every parser of what a tenant writes costs at most linear time. Each case is the worst that we know of."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest

from paddock import errors, json_limits, large_json
from paddock.api.compat.daytona.toolbox import files as daytona_files
from paddock.api.compat.daytona.toolbox import git_output
from paddock.api.compat.daytona.toolbox.charting import charts_of
from paddock.api.compat.e2b.envd import connect
from paddock.api.compat.e2b.envd.multipart import BadMultipart, Multipart, boundary_of
from paddock.browser import client as browser
from paddock.egress import dns, peek
from paddock.gateway.request import read_request
from paddock.http1 import head
from paddock.http1.body import ChunkedEnd
from paddock.interpreter import client as interpreter
from paddock.machine.lines import LineBuffer
from paddock.mcp.relay import definitions
from paddock.memory import unlimited
from paddock.models import McpServer
from paddock.runtime.shell_words import words_of
from paddock.tools import editing, excerpt, git, inspection, patching, searching, shells
from paddock.tools.agents import _JsonLines
from paddock.tools.globs import compile_glob
from paddock.tools.kits.code import _Run
from paddock.tools.tool import ToolFailed
from paddock.workers import Workers
from tests.support.growth import assert_linear

Make = Callable[[int], Any]
Work = Callable[[Any], object]
SIZE = 60_000


def refused(work: Work) -> Work:
    """It may say no, as long as it says so quickly."""

    def tried(given: Any) -> None:
        with suppress(ToolFailed, errors.PaddockError, BadMultipart, peek.Incomplete, ValueError):
            work(given)

    return tried


def run(work: Callable[[Any], Any]) -> Work:
    return refused(lambda given: asyncio.run(work(given)))


async def pieces(data: bytes, size: int) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def every_part(data: bytes) -> None:
    async for part in Multipart(pieces(data, 4096), b"b").parts():
        async for _ in part.chunks:
            pass


async def every_message(data: bytes) -> None:
    async for _ in connect.stream_messages(pieces(data, 1000), Workers()):  # type: ignore[arg-type]
        pass


async def agent_lines(data: bytes) -> None:
    lines = _JsonLines(lambda event: None)
    async for piece in pieces(data, 500):
        await lines.feed(piece)


class _Streamed:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def aiter_stream(self) -> AsyncIterator[bytes]:
        return pieces(self._data, 500)


async def interpreter_lines(data: bytes) -> None:
    async for line in interpreter._lines(_Streamed(data), unlimited()):  # type: ignore[arg-type]
        large_json.read(line)


def hear_python(outputs: list[dict[str, Any]]) -> None:
    running = _Run()
    for output in outputs:
        running.hear(output)


def feed_lines(data: bytes) -> None:
    lines = LineBuffer()
    for at in range(0, len(data), 100):
        lines.feed(data[at : at + 100])


def glob(pattern: str) -> Work:
    def matched(paths: bytes) -> None:
        searching.fitting(paths, pattern)

    return matched


def patch_of(hunks: int, line: str = "same", context: int = 3) -> str:
    body = "".join(f"@@\n{f' {line}{chr(10)}' * context}-{line}\n+other {each}\n" for each in range(hunks))
    return f"*** Begin Patch\n*** Update File: a\n{body}*** End Patch"


def patched(given: tuple[str, str]) -> None:
    patch, text = given
    patching.headings(patch)
    patching.texts(patch, [(text, False)], ["a"])


def edited(given: tuple[str, str]) -> None:
    editing.replace_all(given[0], False, [editing.Edit(given[1], "new")])


def in_server(text: str) -> None:
    definitions.define(McpServer(command="x", args=[text]), {"a": "1"})


def processes_of(count: int) -> list[inspection.ProcessRow]:
    return [
        inspection.ProcessRow(pid=pid, ppid=pid - 1, uid=0, state="S", memory=0, cpu_seconds=0, command="")
        for pid in range(2, count)
    ]


CASES: dict[str, tuple[Make, Work, int]] = {
    "glob, many stars": (lambda n: b"./" + b"a" * n, glob("*a*a*a*a*a b"), SIZE),
    "glob, directories": (lambda n: b"./" + b"a/" * n, glob("**/a/**/a/**/a/**/b"), SIZE),
    "glob, braces": (lambda n: b"./" + b"ab" * n, glob("{*a,*b}{*a,*b}{*a,*b}c"), SIZE),
    "glob, many paths": (lambda n: b"./a/b.c\n" * n, glob("**/*.c"), SIZE // 8),
    "git, one word": (lambda n: "a" * n, git.masked, SIZE * 8),
    "git, many schemes": (lambda n: "a://" * n, git.masked, SIZE),
    "git status": (lambda n: b"? " + b"a" * n + b"\0? a\0" * (n // 20), refused(git_output.status), SIZE),
    "git status, a number": (lambda n: b"# branch.ab +" + b"1" * n + b" -1\0", refused(git_output.status), SIZE),
    "git history": (lambda n: b"\x1f" * n + b"a\x1fb\x1fc\x1f1\x1fd\0" * (n // 20), refused(git_output.history), SIZE),
    "shell, one line": (lambda n: "a" * n, shells.plain, SIZE * 4),
    "shell, returns": (lambda n: "a\r" * n, shells.plain, SIZE * 2),
    "shell, escapes": (lambda n: "\x1b[1;" * n, shells.plain, SIZE),
    "shell, titles": (lambda n: "\x1b]0;" * n, shells.plain, SIZE),
    "shell, marks": (lambda n: "\x1eE1;1;" * n, shells.plain, SIZE),
    "shell, said": (lambda n: "\x1eB0\x1e" + "\x1eE1;0;/\x1e" * n, lambda text: shells._said(text, "00"), SIZE // 2),
    "edit, not there": (lambda n: ("a\n" * n, " a\n" * (n // 2) + "b"), refused(edited), SIZE),
    "edit, white space": (lambda n: ("a\n" * n, " a\n" * (n // 2)), refused(edited), SIZE),
    "edit, nearly": (lambda n: ("a" * n, "a" * (n // 2) + "b"), refused(edited), SIZE * 4),
    "edit, too many": (lambda n: ("a" * n, "a"), refused(edited), SIZE * 4),
    "patch, many hunks": (lambda n: (patch_of(n), "same\n" * (4 * n)), refused(patched), SIZE // 30),
    "patch, nothing fits": (lambda n: (patch_of(n), "  same\n" * n), refused(patched), SIZE // 30),
    "patch, long hunk": (
        lambda n: (patch_of(1, context=n), "same\n" * n + "x\n" + "same\n" * n), refused(patched), SIZE // 10,
    ),
    "patch, anchors": (
        lambda n: ("*** Begin Patch\n*** Update File: a\n" + "@@ x\n" * n + "-x\n*** End Patch", "x\n" * n),
        refused(patched), SIZE // 4,
    ),
    "patch, many files": (
        lambda n: "".join(f"--- a/{each}\n+++ b/{each}\n" for each in range(n)), refused(patching.headings), SIZE // 2,
    ),
    "patch, places": (
        lambda n: ("--- a/a\n+++ b/a\n" + "@@ -1,1 +1,1 @@\n-x\n+y\n" * n, "x\n" * n), refused(patched), SIZE // 20,
    ),
    "search, lines": (
        lambda n: b"a\0001:x\n" * n,
        lambda output: searching.report(searching._of_ripgrep, "/", output, searching.ResultPage(0, 10)), SIZE // 4,
    ),
    "search, one line": (
        lambda n: b"a\0001:" + b"x" * n,
        lambda output: searching.report(searching._of_grep, "/", output, searching.ResultPage(0, 10)), SIZE * 8,
    ),
    "daytona, found lines": (lambda n: b"a\0001:x\n" * n, daytona_files.found_lines, SIZE // 4),
    "daytona, found names": (lambda n: b"/a/b\0" * n, daytona_files.found_names, SIZE // 4),
    "daytona, replacing": (
        lambda n: b"a" * n, refused(lambda data: daytona_files.replaced(data, b"a", b"b" * 1000)), SIZE * 8,
    ),
    "daytona, charts": (lambda n: "m[1]m" * n, lambda text: charts_of(text, "m"), SIZE // 4),
    "processes, a chain": (processes_of, lambda listed: inspection._family(listed, 1), SIZE // 2),
    "python, many prints": (lambda n: [{"type": "stdout", "text": "ab\n"}] * n, hear_python, SIZE * 2),
    "agent, one long line": (lambda n: b"{" + b"a" * n, run(agent_lines), SIZE * 10),
    "interpreter, one long line": (lambda n: b'"' + b"a" * n + b'"\n', run(interpreter_lines), SIZE * 10),
    "lines in pieces": (lambda n: b"a" * n, feed_lines, SIZE * 30),
    "browser, chunks": (lambda n: b"1\r\na\r\n" * n, refused(browser._unchunked), SIZE),
    "multipart, parts": (lambda n: b"--b\r\n\r\n\r\n" * n, run(every_part), SIZE // 4),
    "multipart, no end": (lambda n: b"--b\r\n\r\n" + b"\r\n--" * n, run(every_part), SIZE * 2),
    "multipart, type": (
        lambda n: "multipart/form-data;" + " boundary " * n, refused(boundary_of), SIZE // 2,
    ),
    "connect, messages": (
        lambda n: connect.envelope(b"{}") * n, run(every_message), SIZE // 4,
    ),
    "json, fields": (
        lambda n: json.dumps({f"f{each}": 1 for each in range(n)}).encode(), refused(json_limits.check), SIZE * 2,
    ),
    "json, escapes": (lambda n: b'["' + b'\\"' * n, refused(json_limits.check), SIZE * 10),
    "variables": (lambda n: "${a:-" * n, refused(in_server), SIZE // 4),
    "variables, closed": (lambda n: "${!" * n + "}", refused(in_server), SIZE // 4),
    "command line": (lambda n: "a '" * n, words_of, SIZE),
    "excerpt": (lambda n: "a" * n, lambda text: excerpt.cut(text, 30_000, ""), SIZE * 10),
    "request head": (
        lambda n: b"GET /p/a/1/ HTTP/1.1\r\nhost: a\r\n" + b"a:\r\n" * n + b"\r\n",
        refused(lambda data: read_request(data, frozenset())), SIZE,
    ),
    "request head, one value": (
        lambda n: b"GET / HTTP/1.1\r\na: " + b" \t" * n + b"\r\n\r\n", refused(head.parse_request), SIZE * 4,
    ),
    "response head": (
        lambda n: b"HTTP/1.1 200 " + b"a" * n + b"\r\n\r\n", refused(head.parse_response), SIZE * 4,
    ),
    "chunked body": (
        lambda n: b"1\r\na\r\n" * n, refused(lambda data: ChunkedEnd().feed(memoryview(data))), SIZE // 4,
    ),
    "first bytes": (lambda n: b"\x16\x03\x01\x00\x01\x01" * n, refused(peek.read_name), SIZE // 8),
    "dns question": (
        lambda n: b"\0\1\1\0\0\1\0\0\0\0\0\0" + b"\x01a" * n, refused(dns.read_question), SIZE * 10,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_cost_grows_no_faster_than_the_input(case: str) -> None:
    make, work, size = CASES[case]
    assert_linear(make, work, size)


def test_work_that_grows_with_the_square_is_found() -> None:
    with pytest.raises(AssertionError, match="16 times the input"):
        assert_linear(lambda n: n * n, lambda steps: sum(range(steps)), 400)


def test_a_pattern_of_stars_is_matched_at_once() -> None:
    assert not compile_glob("*a*a*a*a*a*a*a*a b").matches("a" * 255)
