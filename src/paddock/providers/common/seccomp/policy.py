"""Parses ``policy.toml``: the action for each system call of a sandbox, and the arguments on which it depends.

The policy is validated as a whole: a misspelt name, a duplicate decision or an unknown key raises an error that names
its place, so that a filter is never weaker than its text.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from paddock.errors import InternalError
from paddock.providers.common.seccomp.numbers import known_names

ALL_BITS = 0xFFFFFFFF

# The same on x86-64 and aarch64. Listed here, so that a filter does not depend on the compiling system.
ERRORS = MappingProxyType(
    {"EPERM": 1, "ENOSYS": 38, "EPROTONOSUPPORT": 93, "ESOCKTNOSUPPORT": 94, "EOPNOTSUPP": 95, "EAFNOSUPPORT": 97}
)


class Role(StrEnum):
    """Whom a filter is for: the agent, or the processes that it starts."""

    AGENT = "agent"
    CHILDREN = "children"


@dataclass(frozen=True)
class Condition:
    """True if the lower 32 bits of the argument, masked, are one of the values."""

    argument: int
    values: tuple[int, ...]
    mask: int = ALL_BITS


@dataclass(frozen=True)
class Case:
    when: tuple[Condition, ...]
    answer: str


@dataclass(frozen=True)
class Decision:
    """The first case whose conditions all hold gives the answer, else ``otherwise``."""

    otherwise: str
    cases: tuple[Case, ...] = ()


@dataclass(frozen=True)
class Policy:
    default: str
    foreign_architecture: str
    foreign_x32: str
    children: Mapping[str, Decision]
    agent: Mapping[str, Decision]

    def decisions(self, role: Role) -> Mapping[str, Decision]:
        return self.agent if role is Role.AGENT else self.children


@cache
def the_policy() -> Policy:
    """The policy shipped with Paddock."""
    return parse(resources.files(__package__).joinpath("policy.toml").read_text("utf-8"))


def parse(text: str) -> Policy:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InternalError(f"The system-call policy is not valid TOML: {error}.") from None
    return _Reader(document).policy()


class _Reader:
    """Walks the document once; every method names its place in error messages."""

    def __init__(self, document: dict[str, Any]) -> None:
        _keys(document, "the policy", {"default", "foreign", "values", "group", "rule"}, {"agent"})
        self._document = document
        self._children: dict[str, Decision] = {}
        self._agent: dict[str, Decision] = {}
        self._default = ""

    def policy(self) -> Policy:
        default, foreign = self._document["default"], self._document["foreign"]
        _keys(default, "[default]", {"answer", "reason"})
        _keys(foreign, "[foreign]", {"architecture", "x32", "reason"})
        self._default = _answer(default["answer"], "[default]")
        for group in self._document["group"]:
            self._group(group)
        for rule in self._document["rule"]:
            self._rule(rule)
        self._agent.update(self._children)
        for addition in self._document.get("agent", []):
            self._addition(addition)
        _text(default["reason"], "[default]")
        _text(foreign["reason"], "[foreign]")
        return Policy(
            default=self._default,
            foreign_architecture=_answer(foreign["architecture"], "[foreign]"),
            foreign_x32=_answer(foreign["x32"], "[foreign]"),
            children=MappingProxyType(self._children),
            agent=MappingProxyType(self._agent),
        )

    def _group(self, group: Any) -> None:
        _keys(group, "a [[group]]", {"name", "answer", "reason", "calls"})
        where = f"the group {group['name']!r}"
        answer = _answer(group["answer"], where)
        for call in _text(group["calls"], where).split():
            self._decide(call, Decision(answer), where)
        _text(group["reason"], where)

    def _rule(self, rule: Any) -> None:
        _keys(rule, "a [[rule]]", {"call", "reason", "cases", "otherwise"})
        where = f"the rule for {rule['call']!r}"
        cases = []
        for case in _list(rule["cases"], where):
            _keys(case, f"a case of {where}", {"when", "answer"})
            cases.append(Case(self._conditions(case["when"], where), _answer(case["answer"], where)))
        otherwise = _answer(rule["otherwise"], where)
        self._decide(rule["call"], Decision(otherwise, tuple(cases)), where)
        _text(rule["reason"], where)

    def _addition(self, addition: Any) -> None:
        _keys(addition, "an [[agent]]", {"call", "reason", "when"})
        where = f"the agent's {addition['call']!r}"
        call = _known(addition["call"], where)
        # The new case comes first and allows more, so the agent's filter never gets stricter.
        before = self._agent.get(call, Decision(self._default))
        case = Case(self._conditions(addition["when"], where), "allow")
        self._agent[call] = replace(before, cases=(case, *before.cases))
        _text(addition["reason"], where)

    def _conditions(self, conditions: Any, where: str) -> tuple[Condition, ...]:
        found = []
        for condition in _list(conditions, where):
            _keys(condition, f"a condition of {where}", {"argument", "is"}, {"mask"})
            argument = condition["argument"]
            if type(argument) is not int or not 0 <= argument <= 5:
                raise InternalError(f"In {where}: a system call has arguments 0 to 5, not {argument!r}.")
            values = tuple(self._value(value, where) for value in _list(condition["is"], where))
            mask = self._value(condition.get("mask", ALL_BITS), where)
            if lost := [value for value in values if value & ~mask]:
                raise InternalError(f"In {where}: the mask {mask:#x} hides bits of {lost[0]:#x}, so it can never hold.")
            found.append(Condition(argument, values, mask))
        return tuple(found)

    def _value(self, value: Any, where: str) -> int:
        number = self._document["values"].get(value) if isinstance(value, str) else value
        if number is None:
            raise InternalError(f"In {where}: {value!r} is not among the [values].")
        if type(number) is not int or not 0 <= number <= ALL_BITS:
            raise InternalError(f"In {where}: {value!r} is not a number of 32 bits.")
        return number

    def _decide(self, call: Any, decision: Decision, where: str) -> None:
        if _known(call, where) in self._children:
            raise InternalError(f"In {where}: the system call {call!r} is decided a second time.")
        self._children[call] = decision


def _keys(table: Any, where: str, needed: Set[str], optional: Set[str] = frozenset()) -> None:
    if not isinstance(table, dict):
        raise InternalError(f"In the system-call policy, {where} must be a table.")
    if missing := sorted(needed - table.keys()):
        raise InternalError(f"In the system-call policy, {where} lacks {missing[0]!r}.")
    if unknown := sorted(table.keys() - needed - optional):
        raise InternalError(f"In the system-call policy, {where} has an unknown key {unknown[0]!r}.")


def _answer(answer: Any, where: str) -> str:
    if answer in ("allow", "kill") or answer in ERRORS:
        return str(answer)
    known = ", ".join(["allow", "kill", *ERRORS])
    raise InternalError(f"In {where}: {answer!r} is not an answer; known are {known}.")


def _known(call: Any, where: str) -> str:
    if call not in known_names():
        raise InternalError(f"In {where}: there is no system call {call!r} on any architecture.")
    return str(call)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InternalError(f"In {where}: {value!r} must be a text that is not empty.")
    return value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise InternalError(f"In {where}: {value!r} must be a list that is not empty.")
    return value
