"""The parser under sanitizers: whatever comes, it is answered or the connection ends."""

from __future__ import annotations

import subprocess

import pytest

from tests.agent.conftest import build


@pytest.mark.parametrize("seed", [1, 4711])
def test_mutated_frames_find_nothing(seed: int) -> None:
    fuzzer = build("fuzz")
    done = subprocess.run([fuzzer, "100000", str(seed)], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    inputs, connections = (int(part.split()[0]) for part in done.stdout.split(","))
    assert inputs == 100000
    assert 1000 < connections < 100000, "some inputs must break the protocol, and some must not"
