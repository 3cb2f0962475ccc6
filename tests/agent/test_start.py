"""The command line: what it must be given, and the filters that children cannot take off."""

from __future__ import annotations

import os
import platform
import struct
import subprocess
from pathlib import Path

import pytest

from tests.agent.conftest import Running, Starter
from tests.support.waiting import PATIENCE_S

LINKING = {"x86_64": [88, 266], "aarch64": [36]}.get(platform.machine(), [])
"""symlink and symlinkat."""


def instruction(code: int, yes: int, no: int, value: int) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def allow_all_but(numbers: list[int]) -> bytes:
    program = [instruction(0x20, 0, 0, 0)]  # the number of the call
    for index, number in enumerate(numbers):
        program.append(instruction(0x15, len(numbers) - index, 0, number))
    program += [instruction(0x06, 0, 0, 0x7FFF0000), instruction(0x06, 0, 0, 0x00050000 | 1)]  # allow; EPERM
    return struct.pack("<I", len(program)) + b"".join(program)


def serve(binary: Path, *options: str, descriptors: tuple[int, ...] = ()) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [str(binary), *options], pass_fds=descriptors, capture_output=True, timeout=PATIENCE_S, check=False
    )


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["serve"],
        ["serve", "--mode", "plain"],
        ["serve", "--listen", "3", "--state", "4", "--mode", "plain"],
        ["serve", "--listen"],
        ["serve", "--mode", "nonsense"],
        ["serve", "--unknown", "x"],
        ["serve", "--listen", "0", "--state", "1", "--mode", "plain"],
        ["other", "--mode", "plain"],
    ],
    ids=" ".join,
)
def test_a_senseless_command_line_is_refused(plain_binary: Path, options: list[str]) -> None:
    done = serve(plain_binary, *options)
    assert done.returncode == 2
    assert done.stderr.startswith(b"usage: paddock-agent serve")


def test_it_says_what_it_could_not_do(plain_binary: Path, tmp_path: Path) -> None:
    """Its listener is no socket; its filter is cut short."""
    state = os.open(tmp_path, os.O_RDONLY)
    (tmp_path / "filter").write_bytes(struct.pack("<I", 9) + b"x")
    short = os.open(tmp_path / "filter", os.O_RDONLY)
    listen = ["serve", "--listen", str(state), "--state", str(state), "--mode", "plain"]
    try:
        done = serve(plain_binary, *listen, descriptors=(state,))
        assert (done.returncode, done.stderr[:30]) == (1, b"paddock-agent: cannot listen (")
        done = serve(plain_binary, *listen, "--filter", str(short), descriptors=(state, short))
        assert (done.returncode, done.stderr[:44]) == (1, b"paddock-agent: the filter cannot be read (er")
    finally:
        os.close(state)
        os.close(short)


@pytest.mark.skipif(not LINKING, reason="the numbers of system calls are not known here")
def test_a_filter_holds_for_children_and_another_for_the_agent(start: Starter, tmp_path: Path) -> None:
    (tmp_path / "filter").write_bytes(allow_all_but([]) + allow_all_but(LINKING))
    fd = os.open(tmp_path / "filter", os.O_RDONLY)
    try:
        agent: Running = start("--filter", str(fd), descriptors=[fd])
    finally:
        os.close(fd)
    client = agent.connect()
    ended, out, _ = client.run("p", f"ln -s x {tmp_path}/link || echo refused; grep Seccomp: /proc/self/status")
    assert (ended.exit_code, out) == (0, b"refused\nSeccomp:\t2\n")
    assert "Seccomp:\t2" in Path(f"/proc/{agent.pid}/status").read_text()


def test_other_descriptors_are_closed_at_the_start(start: Starter) -> None:
    read, write = os.pipe()
    agent: Running = start(descriptors=[write])
    os.close(write)
    agent.connect().run("p", "true")
    assert os.read(read, 1) == b"", "nobody else has it any more"
    os.close(read)
