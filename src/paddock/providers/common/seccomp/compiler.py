"""Compiles the policy to classic BPF, as ``struct sock_filter[]`` for ``seccomp(SECCOMP_SET_MODE_FILTER)``.

A filter is a decision graph: first the architecture, then a balanced tree over ranges of call numbers with the same
decision, then tests of arguments if there are any. Equal subgraphs are emitted once. Only loads, compare-and-jump, AND
and return are used, and allowed calls depend only on their number: newer kernels cache the results of such filters in a
bitmap, so that an allowed call costs no instructions.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from paddock.errors import InternalError
from paddock.providers.common.seccomp.numbers import Architecture, numbers
from paddock.providers.common.seccomp.policy import ALL_BITS, ERRORS, Condition, Decision, Policy, Role, the_policy

MAX_INSTRUCTIONS = 4096  # BPF_MAXINSNS

_AUDIT_ARCH = {Architecture.X86_64: 0xC000003E, Architecture.AARCH64: 0xC00000B7}
_X32_BIT = 0x40000000

_LOAD, _JUMP, _JUMP_IF_EQUAL, _JUMP_IF_NOT_LESS, _AND, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x54, 0x06
_MAX_OFFSET = 255 - 2  # a jump offset is one byte, and up to two long jumps may have to be inserted in between

# struct seccomp_data: int nr; u32 arch; u64 instruction_pointer; u64 args[6]. Both architectures are little-endian.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000


Ranges = Sequence[tuple[int, Decision]]


@cache
def program(architecture: str) -> bytes:
    """The file for the agent's ``--filter``: the agent's own filter, then that of the processes it starts.

    Each is a u32 count and that many ``struct sock_filter``, little-endian.
    """
    return program_of(the_policy(), architecture)


def program_of(policy: Policy, architecture: str) -> bytes:
    of = Architecture.named(architecture)
    filters = [compile_filter(policy, of, role) for role in (Role.AGENT, Role.CHILDREN)]
    return b"".join(struct.pack("<I", len(code) // 8) + code for code in filters)


def compile_filter(policy: Policy, architecture: Architecture, role: Role) -> bytes:
    """The ``struct sock_filter[]`` of one role."""
    return assemble(_ranges(policy, architecture, role), _AUDIT_ARCH[architecture], policy.foreign_architecture)


def assemble(ranges: Ranges, audit_architecture: int, foreign: str) -> bytes:
    """A filter that applies the decision of the last range whose start is not above the call's number."""
    if not ranges or ranges[0][0] != 0 or any(a[0] >= b[0] for a, b in pairwise(ranges)):
        raise InternalError("The ranges of a system-call filter must start at 0 and rise.")
    graph = _Graph()
    by_number = graph.load(_NUMBER, graph.tree([(start, graph.decision(decision)) for start, decision in ranges]))
    ours = graph.test(_JUMP_IF_EQUAL, audit_architecture, by_number, graph.answer(foreign))
    code = _Assembler(graph).code(graph.load(_ARCHITECTURE, ours))
    if len(code) // 8 > MAX_INSTRUCTIONS:
        raise InternalError(f"The system-call filter has {len(code) // 8} instructions, the kernel takes 4096.")
    return code


def _ranges(policy: Policy, architecture: Architecture, role: Role) -> Ranges:
    default = Decision(policy.default)
    decided = policy.decisions(role)
    at = {number: decided[name] for name, number in numbers(architecture).items() if name in decided}
    points: list[tuple[int, Decision]] = [(number, at.get(number, default)) for number in range(max(at) + 1)]
    points.append((max(at) + 1, default))
    if architecture is Architecture.X86_64:
        points.append((_X32_BIT, Decision(policy.foreign_x32)))
    merged: list[tuple[int, Decision]] = []
    for start, decision in points:
        if not merged or merged[-1][1] != decision:
            merged.append((start, decision))
    return merged


class _Node(NamedTuple):
    """An instruction, and the indices of its successor nodes in the graph (a return has none)."""

    code: int
    value: int
    yes: int = -1
    no: int = -1


class _Graph:
    """Nodes by index. Equal nodes are shared, so that equal subgraphs are emitted once."""

    def __init__(self) -> None:
        self.nodes: list[_Node] = []
        self._known: dict[_Node, int] = {}

    def test(self, code: int, value: int, yes: int, no: int) -> int:
        return self._add(_Node(code, value, yes, no))

    def load(self, offset: int, then: int) -> int:
        return self._add(_Node(_LOAD, offset, then, then))

    def answer(self, answer: str) -> int:
        value = {"allow": _ALLOW, "kill": _KILL_PROCESS}.get(answer) or _ERRNO | ERRORS[answer]
        return self._add(_Node(_RETURN, value))

    def tree(self, leaves: list[tuple[int, int]]) -> int:
        if len(leaves) == 1:
            return leaves[0][1]
        middle = len(leaves) // 2
        above, below = self.tree(leaves[middle:]), self.tree(leaves[:middle])
        return self.test(_JUMP_IF_NOT_LESS, leaves[middle][0], above, below)

    def decision(self, decision: Decision) -> int:
        node = self.answer(decision.otherwise)
        for case in reversed(decision.cases):
            holds = self.answer(case.answer)
            for condition in reversed(case.when):
                holds = self._condition(condition, holds, node)
            node = holds
        return node

    def _condition(self, condition: Condition, yes: int, no: int) -> int:
        tests = no
        for value in reversed(condition.values):
            tests = self.test(_JUMP_IF_EQUAL, value, yes, tests)
        if condition.mask != ALL_BITS:
            tests = self._add(_Node(_AND, condition.mask, tests, tests))
        return self.load(_ARGUMENTS + 8 * condition.argument, tests)

    def _add(self, node: _Node) -> int:
        if node not in self._known:
            self._known[node] = len(self.nodes)
            self.nodes.append(node)
        return self._known[node]


class _Assembler:
    """Emits the graph from its end, so that every jump goes to emitted code: forward, as BPF requires."""

    def __init__(self, graph: _Graph) -> None:
        self._nodes = graph.nodes
        self._backwards: list[bytes] = []
        self._places: dict[int, int] = {}

    def code(self, entry: int) -> bytes:
        self._place(entry)
        return b"".join(reversed(self._backwards))

    def _place(self, number: int) -> int:
        """The node's position, counted from the end; emits it if needed."""
        if number not in self._places:
            self._places[number] = self._lay(self._nodes[number])
        return self._places[number]

    def _lay(self, node: _Node) -> int:
        if node.code == _RETURN:
            return self._put(node.code, node.value)
        if node.yes == node.no:
            if gap := self._gap(self._place(node.yes)):
                self._put(_JUMP, gap)
            return self._put(node.code, node.value)
        self._place(node.yes)
        no, yes = self._near(node.no), self._near(node.yes)
        return self._put(node.code, node.value, self._gap(yes), self._gap(no))

    def _near(self, number: int) -> int:
        """A position of the node within the one-byte offset of a test; emits a copy or a long jump if needed."""
        place = self._place(number)
        if self._gap(place) <= _MAX_OFFSET:
            return place
        if self._nodes[number].code == _RETURN:
            self._places[number] = self._lay(self._nodes[number])
            return self._places[number]
        return self._put(_JUMP, self._gap(place))

    def _gap(self, place: int) -> int:
        """Number of instructions between the next one to be emitted and that position."""
        return len(self._backwards) - place - 1

    def _put(self, code: int, value: int, yes: int = 0, no: int = 0) -> int:
        self._backwards.append(struct.pack("<HBBI", code, yes, no, value))
        return len(self._backwards) - 1
