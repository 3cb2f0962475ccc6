"""The other opinion on the system-call filter: the policy read in the plainest way, and a kernel on paper to run it on.

Nothing here is shared with the compiler but the table of numbers.
"""

from __future__ import annotations

import itertools
import struct
import tomllib
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

from paddock.providers.common.seccomp.compiler import program
from paddock.providers.common.seccomp.numbers import Architecture

AUDIT = {Architecture.X86_64: 0xC000003E, Architecture.AARCH64: 0xC00000B7}
ERRNO = {"EPERM": 1, "ENOSYS": 38, "EPROTONOSUPPORT": 93, "ESOCKTNOSUPPORT": 94, "EAFNOSUPPORT": 97}
NO_ARGUMENTS = (0,) * 6
TEXT = resources.files("paddock.providers.common.seccomp").joinpath("policy.toml").read_text("utf-8")

PROMISES: list[tuple[str, tuple[int, ...], str]] = [
    ("read", (), "allow"),
    ("execve", (), "allow"),
    ("mount", (), "EPERM"),
    ("keyctl", (), "EPERM"),
    ("bpf", (), "EPERM"),
    ("setns", (3, 0x10000000), "EPERM"),
    ("unshare", (0x10000000,), "EPERM"),
    ("clone3", (), "ENOSYS"),
    ("io_uring_setup", (), "ENOSYS"),
    ("clone", (17,), "allow"),
    *[("prlimit64", (pid, 7), "EPERM" if pid == 1 else "allow") for pid in (0, 1, 2, 1 << 31)],
    *[(f"sched_set{what}", (1,), "EPERM") for what in ("affinity", "attr", "param", "scheduler")],
    *[(f"sched_set{what}", (0,), "allow") for what in ("affinity", "attr", "param", "scheduler")],
    *[("setpriority", (which, 1), "EPERM") for which in (0, 1, 2)],
    *[("ioprio_set", (which, 1), "EPERM") for which in (1, 2, 3)],
    ("setpriority", (0, 0), "allow"),
    ("setpriority", (1, 5), "allow"),
    ("setpriority", (2, 0), "EPERM"),
    ("ioprio_set", (1, 0), "allow"),
    ("ioprio_set", (3, 1000), "EPERM"),
    ("clone", (0x3D0F00,), "allow"),
    *[("clone", (17 | 1 << bit,), "EPERM") for bit in (17, 25, 26, 27, 28, 29, 30)],
    ("socket", (1, 1 | 0o2000000, 0), "allow"),
    ("socket", (2, 1 | 0o4000, 6), "allow"),
    ("socket", (10, 2, 17), "allow"),
    ("socket", (2, 2, 1), "allow"),
    ("socket", (2, 3, 1), "EPERM"),
    ("socket", (2, 3 | 0o2000000, 255), "EPERM"),
    ("socket", (10, 10, 0), "EPERM"),
    ("socket", (2, 5, 132), "ESOCKTNOSUPPORT"),
    ("socket", (2, 1, 132), "EPROTONOSUPPORT"),
    ("socket", (2, 1, 262), "EPROTONOSUPPORT"),
    ("socket", (16, 3, 0), "allow"),
    ("socket", (16, 3, 9), "EPROTONOSUPPORT"),
    ("socket", (16, 3, 12), "EPROTONOSUPPORT"),
    *[("socket", (family, 1, 0), "EAFNOSUPPORT") for family in (0, 3, 17, 21, 29, 30, 31, 38, 40, 43, 44, 1000)],
    ("socketpair", (1, 1, 0), "allow"),
    ("socketpair", (30, 1, 0), "EAFNOSUPPORT"),
    ("ioctl", (0, 0x5401), "allow"),
    *[("ioctl", (0, request), "EPERM") for request in (0x5412, 0x541C, 0x5423, 0x5412 | 7 << 32)],
    ("personality", (0xFFFFFFFF,), "allow"),
    ("personality", (0x40000,), "allow"),
    ("personality", (0x400000,), "EPERM"),
    ("mknodat", (0, 0, 0o010644), "allow"),
    ("mknodat", (0, 0, 0o060644), "EPERM"),
    ("mknodat", (0, 0, 0o020644), "EPERM"),
]


class Filter:
    """Classic BPF: what the kernel checks before it takes a filter, and what it then does."""

    def __init__(self, code: bytes) -> None:
        self.code = list(struct.iter_unpack("<HBBI", code))
        assert 0 < len(self.code) <= 4096
        for at, (code_, yes, no, value) in enumerate(self.code):
            assert code_ in (0x20, 0x54, 0x05, 0x15, 0x35, 0x06), "not among what newer kernels can evaluate ahead"
            jumps = {0x05: [value], 0x15: [yes, no], 0x35: [yes, no], 0x06: []}.get(code_, [0])
            assert all(at + 1 + jump < len(self.code) for jump in jumps)
            assert code_ != 0x20 or (value % 4 == 0 and value < 64)

    def run(self, audit: int, number: int, arguments: Sequence[int]) -> tuple[str, int, set[int]]:
        """The answer, how many instructions it took, and what was looked at."""
        data = struct.pack("<IIQ6Q", number, audit, 0, *(argument % 2**64 for argument in arguments))
        at = steps = accumulator = 0
        seen: set[int] = set()
        while True:
            code, yes, no, value = self.code[at]
            at, steps = at + 1, steps + 1
            if code == 0x06:
                return _action(value), steps, seen
            elif code == 0x20:
                accumulator = struct.unpack_from("<I", data, value)[0]
                seen.add(value)
            elif code == 0x54:
                accumulator &= value
            elif code == 0x05:
                at += value
            else:
                at += yes if (accumulator == value if code == 0x15 else accumulator >= value) else no

    def __call__(self, architecture: Architecture, number: int, arguments: Sequence[int] = NO_ARGUMENTS) -> str:
        return self.run(AUDIT[architecture], number, arguments)[0]


def _action(value: int) -> str:
    if value in (0x7FFF0000, 0x80000000):
        return "allow" if value == 0x7FFF0000 else "kill"
    assert value >> 16 == 0x0005
    return next(name for name, number in ERRNO.items() if number == value & 0xFFFF)


def filters(architecture: Architecture) -> dict[str, bytes]:
    """The file as the agent reads it."""
    content, found = program(architecture), {}
    for role in ("agent", "children"):
        (count,) = struct.unpack_from("<I", content)
        found[role], content = content[4 : 4 + 8 * count], content[4 + 8 * count :]
    assert content == b""
    return found


class Oracle:
    """What the text of the policy says about a call."""

    def __init__(self, role: str) -> None:
        policy = tomllib.loads(TEXT)
        self.default, self.values = policy["default"]["answer"], policy["values"]
        self.fixed = {call: group["answer"] for group in policy["group"] for call in group["calls"].split()}
        self.rules = {rule["call"]: (rule["cases"], rule["otherwise"]) for rule in policy["rule"]}
        for extra in policy["agent"] if role == "agent" else []:
            cases, otherwise = self.rules.get(extra["call"], ([], self.fixed.get(extra["call"], self.default)))
            self.rules[extra["call"]] = ([{"when": extra["when"], "answer": "allow"}, *cases], otherwise)

    def number(self, value: int | str) -> int:
        return int(self.values[value] if isinstance(value, str) else value)

    def says(self, call: str | None, arguments: Sequence[int]) -> str:
        if call not in self.rules:
            return str(self.fixed.get(call or "", self.default))
        cases, otherwise = self.rules[call]
        return str(next((case["answer"] for case in cases if self.holds(case["when"], arguments)), otherwise))

    def holds(self, when: list[dict[str, Any]], arguments: Sequence[int]) -> bool:
        return all(
            arguments[one["argument"]] & 0xFFFFFFFF & self.number(one.get("mask", 0xFFFFFFFF))
            in [self.number(value) for value in one["is"]]
            for one in when
        )

    def interesting(self, call: str | None) -> Iterator[tuple[int, ...]]:
        """Arguments on both sides of every edge of the call's rule, also with rubbish in the upper half."""
        edges: list[set[int]] = [{0} for _ in range(6)]
        cases = self.rules.get(call or "", ([], ""))[0]
        for one in [one for case in cases for one in case["when"]]:
            for value in [0xFFFFFFFF, *(self.number(value) for value in one["is"])]:
                edges[one["argument"]] |= {value, value ^ 1, value | 0x80000, value | 0xABCD << 32}
            mask = self.number(one.get("mask", 0))
            edges[one["argument"]] |= {1 << bit for bit in range(32) if mask >> bit & 1}
        return itertools.product(*edges)
