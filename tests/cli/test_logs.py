"""``paddock logs``, ``paddock inspect`` and ``paddock open`` against a server."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cli.conftest import Paddock

pytestmark = pytest.mark.slow


def start(paddock: Paddock, box: str, line: str) -> str:
    return paddock("exec", "-d", box, "--", line).stdout.strip()


def test_logs_show_the_newest_process_on_both_streams(paddock: Paddock, box: str) -> None:
    assert "No process has run" in paddock("logs", box).stderr
    assert paddock.json("logs", box)["process"] is None
    paddock("exec", box, "--", "echo older")
    paddock.raw("exec", box, "--", "printf 'out\\377\\n'; echo err >&2; exit 3")
    done = paddock.raw("logs", box)
    assert (done.stdout, done.stderr, done.returncode) == (b"out\xff\n", b"err\n", 0)
    shown = paddock.json("logs", box)
    assert (shown["process"]["exit_code"], shown["stderr"], shown["missing"]) == (3, "err\n", 0)


def test_a_tool_that_looked_is_not_the_newest_process(paddock: Paddock, box: str) -> None:
    paddock("exec", box, "--", "echo mine")
    paddock("tool", "call", box, "port_list")
    assert paddock("logs", box).stdout == "mine\n"


def test_logs_by_id_and_their_last_lines(paddock: Paddock, box: str) -> None:
    process = start(paddock, box, "seq 1 5; seq 6 9 >&2")
    paddock("exec", box, "--", "echo newer")
    paddock("logs", "-f", box, process)
    tail = paddock("logs", box, process, "--tail", "2")
    assert (tail.stdout, tail.stderr) == ("4\n5\n", "8\n9\n")
    assert paddock("logs", box, process, "-n", "0").stdout == ""
    assert paddock("logs", "-f", "-n", "1", box, process).stdout == "5\n"
    refused = paddock("logs", box, "nobody", check=1).stderr
    assert "'nobody'" in refused and "paddock inspect" in refused
    assert paddock.json("logs", box, "nobody", check=1)["error"]["code"] == "process_not_found"


def test_logs_longer_than_one_answer_are_whole(paddock: Paddock, box: str) -> None:
    paddock("exec", "-d", box, "--", "seq 1 400000")
    followed = paddock("logs", "-f", box).stdout
    assert followed == "".join(f"{number}\n" for number in range(1, 400_001))
    assert paddock("logs", box).stdout == followed
    assert paddock("logs", box, "--tail", "1").stdout == "400000\n"


def test_following_goes_on_to_the_end_of_the_process(paddock: Paddock, box: str) -> None:
    paddock("exec", box, "--", "mkfifo going")
    process = start(paddock, box, "echo first; cat going")
    following = paddock.start("logs", "-f", box, process)
    assert following.stdout is not None
    assert following.stdout.readline() == b"first\n"
    paddock("exec", box, "--", "echo second > going")
    assert following.communicate(timeout=60) == (b"second\n", b"")
    assert following.returncode == 0
    lines = [json.loads(line) for line in paddock("logs", "-f", box, process, "--json").stdout.splitlines()]
    assert "".join(each["data"] for each in lines if each["type"] == "output") == "first\nsecond\n"
    assert (lines[-1]["type"], lines[-1]["exit_code"]) == ("exit", 0)


def test_ctrl_c_ends_the_following_alone(paddock: Paddock, box: str) -> None:
    process = start(paddock, box, "echo ready; sleep 1000")
    # A shell's background jobs ignore Ctrl-C, and these tests may be one.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        following = paddock.start("logs", "--follow", box, process)
    finally:
        signal.signal(signal.SIGINT, before)
    assert following.stdout is not None and following.stdout.readline() == b"ready\n"
    following.send_signal(signal.SIGINT)
    assert following.communicate(timeout=60) == (b"", b"")
    assert following.returncode == 130
    [found] = [each for each in paddock.json("inspect", box)["processes"] if each["process_id"] == process]
    assert found["status"] == "running"


def test_inspect_does_not_wake(paddock: Paddock, box: str) -> None:
    paddock("service", "add", box, "web", "8000", "true")
    paddock("exec", box, "--", "true")
    known = json.loads(paddock("inspect", box).stdout)
    assert (known["status"], known["services"][0]["name"], known["processes"][0]["label"]) == ("running", "web", "true")
    assert known["usage"]["total"]["commands"] == 1
    assert known["isolation_report"]["level"]
    paddock("pause", box)
    known = paddock.json("inspect", box)
    assert (known["status"], known["processes"], known["unknown"]["processes"]) == (
        *("paused", None),
        "The sandbox is paused.",
    )
    assert paddock.json("status", box)["status"] == "paused"
    assert paddock.json("inspect", "nobody_00000000", check=1)["error"]["code"] == "sandbox_not_found"


def test_open_gives_the_url_to_the_browser(
    paddock: Paddock, box: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > "{tmp_path}/opened"\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    done = paddock("open", box, "3000")
    assert done.stdout == "" and "port 3000" in done.stderr
    assert (tmp_path / "opened").read_text().startswith("http://3000-")
    assert paddock.json("open", box, "3000")["opened"] is True


def test_open_prints_the_url_where_there_is_no_browser(
    paddock: Paddock, box: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    assert paddock("open", box, "3000").stdout.startswith("http://3000-")
    monkeypatch.setenv("BROWSER", os.devnull)
    assert paddock("open", box, "3000").stdout.startswith("http://3000-"), "one that cannot be started"
    assert "no services" in paddock("open", box, check=1).stderr
    paddock("service", "add", box, "web", "8000", "true")
    assert paddock("open", box).stdout.startswith("http://8000-"), "the only one"
    paddock("service", "add", box, "more", "8001", "true")
    assert "8000 (web), 8001 (more)" in paddock("open", box, check=1).stderr
