"""Output of which every byte is known beforehand: numbered lines of the same length. What is missing must be said."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

_LINE = 8
SPOOL_BYTES = 1 << 16
"""As little as may be kept, so that output is lost where nobody follows."""


@dataclass(frozen=True)
class Writing:
    """A command that writes this many lines, in this many steps with a pause after each."""

    lines: int
    steps: int = 1

    @property
    def size(self) -> int:
        return self.lines * self.steps * _LINE

    @property
    def command(self) -> str:
        if not self.lines:
            return "true"
        if self.steps == 1:
            return f"seq -f %07g 1 {self.lines}"
        step = f"seq -f %07g $((n * {self.lines} + 1)) $(((n + 1) * {self.lines})); sleep 0.1"
        return f"for n in $(seq 0 {self.steps - 1}); do {step}; done"


def some_writing(rng: random.Random, *, steps: bool = False) -> Writing:
    if steps:
        return Writing(rng.choice([10, 500, 12_000]), rng.randint(2, 8))
    return Writing(rng.choice([0, 0, 1, 300, 12_000]))


def text(start: int, end: int) -> str:
    first = start // _LINE
    lines = "".join(f"{number:07d}\n" for number in range(first + 1, -(-end // _LINE) + 1))
    return lines[start - first * _LINE : end - first * _LINE]


def wrong_with_answer(answer: dict[str, Any], writing: Writing) -> str | None:
    """What an answer to ``run-command`` tells, against what was written."""
    start, end = answer["stdout_start"], answer["stdout_offset"]
    if answer["stdout"] != text(start, end):
        return f"bytes {start} to {end} are not what was written: {answer['stdout'][:40]!r}"
    if start != answer["stdout_skipped"] or answer["truncated"] != (start > 0):
        return f"it begins at {start} without saying so: {answer}"
    if answer["status"] == "completed" and (answer["exit_code"], end) != (0, writing.size):
        return f"{end} of {writing.size} bytes, exit code {answer['exit_code']}"
    return None


@dataclass
class Followed:
    """A process whose output somebody follows over as many connections as it takes."""

    writing: Writing
    sandbox_id: str
    process_id: str
    position: int = 0
    skipped: int = 0
    ended: bool = False
    held: bool = False
    """Somebody follows it now."""

    def take(self, event: str, data: str) -> str | None:
        """One event of the stream; what is wrong with it."""
        told = json.loads(data)
        if event == "output" and told["stream"] == "stdout":
            return self._take_output(told)
        if event == "exit":
            self.ended = True
            if told["status"] == "completed" and (told["exit_code"], self.position) != (0, self.writing.size):
                return f"ended with {told['exit_code']} at {self.position} of {self.writing.size} bytes"
        return None

    def _take_output(self, told: dict[str, Any]) -> str | None:
        skipped = told.get("skipped") or 0
        if told["offset"] != self.position + skipped:
            return f"from {self.position} to {told['offset']}, and {skipped} were said to be missing"
        end = told["offset"] + len(told["data"])
        if told["data"] != text(told["offset"], end):
            return f"bytes {told['offset']} to {end} are not what was written: {told['data'][:40]!r}"
        self.position, self.skipped = end, self.skipped + skipped
        return None
