"""Path patterns: ``*`` and ``?`` within a name, ``**`` across directories, ``[…]`` and ``{a,b}``.

Both the pattern and the paths come from a tenant, so matching never backtracks: every reachable position in the pattern
is a bit of an integer, and each character of the path advances all of them at once. The cost is linear in the path's
length, for any pattern.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from paddock.tools.tool import ToolFailed

MAX_PATTERN = 1000
MAX_ALTERNATIVES = 100
"""Maximum alternatives that the braces of one pattern expand to."""


class _Wildcard(Enum):
    """Wildcards for any number of characters."""

    IN_NAME = "*"
    ANYTHING = "**"
    DIRECTORIES = "**/"


_POSIX_CLASSES: dict[str, Callable[[str], bool]] = {
    "alnum": str.isalnum,
    "alpha": str.isalpha,
    "blank": lambda char: char in " \t",
    "cntrl": lambda char: unicodedata.category(char) == "Cc",
    "digit": lambda char: "0" <= char <= "9",
    "graph": lambda char: char.isprintable() and not char.isspace(),
    "lower": str.islower,
    "print": str.isprintable,
    "punct": lambda char: char.isprintable() and not char.isspace() and not char.isalnum(),
    "space": str.isspace,
    "upper": str.isupper,
    "xdigit": lambda char: char in string.hexdigits,
}


@dataclass(frozen=True, slots=True)
class _Set:
    """``[…]`` or ``?``: one character of a set."""

    ranges: tuple[tuple[str, str], ...] = ()
    classes: tuple[str, ...] = ()
    negated: bool = False

    def __contains__(self, char: str) -> bool:
        if char == "/":  # POSIX: only a slash in the pattern matches one in the path
            return False
        named = any(first <= char <= last for first, last in self.ranges)
        return (named or any(_POSIX_CLASSES[name](char) for name in self.classes)) != self.negated


_Atom = str | _Set | _Wildcard
_ONE_IN_NAME = _Set(negated=True)
_SET = re.compile(r"([!^]?+)(\]?+(?:\[:[^]/:]*:\]|\[=[^/]=\]|\[\.[^/]\.\]|[^]/])*+)\]")
"""From after the bracket that opens a set to the one that closes it. As in a shell, the first character may be a
bracket itself, and a set with a slash in it is not a set."""
_SET_IN_BRACKETS = re.compile(r"\[" + _SET.pattern)
_SET_MEMBER = re.compile(r"\[:(?P<named>[^]:]*):\]|\[=(?P<like>.)=\]|\[\.(?P<symbol>.)\.\]|(?P<char>.)", re.DOTALL)


class Glob:
    """Matches paths relative to the directory of the search."""

    def __init__(self, alternatives: Iterable[Sequence[_Atom]]) -> None:
        self._alternatives = [_Alternative(atoms) for atoms in alternatives]

    def matches(self, path: str) -> bool:
        return any(alternative.matches(path) for alternative in self._alternatives)


def compile_glob(pattern: str) -> Glob:
    """Compile a pattern. One without a slash matches a name in any directory."""
    if len(pattern) > MAX_PATTERN:
        raise ToolFailed(f"The pattern is longer than {MAX_PATTERN} characters.")
    pattern = pattern.removeprefix("./")
    if "/" not in pattern:
        pattern = f"**/{pattern}"
    try:
        return Glob(_read(pattern))
    except ValueError as problem:
        raise ToolFailed(f"{pattern!r} is no pattern of paths: {problem}. An example: src/**/*.py") from None


def without_sets(pattern: str) -> str:
    """A pattern that matches at least the same paths, using only syntax that has the same meaning in ripgrep, whose
    sets match a slash, reject empty ranges, and have no classes."""
    wider = _SET_IN_BRACKETS.sub("?", pattern)
    wider = "".join("?" if char in "[\\" or (char == "!" and at == 0) else char for at, char in enumerate(wider))
    return wider if wider.count("{") == wider.count("}") else "**"


class _Alternative:
    """One pattern without braces, as an automaton whose states are bits.

    Bit ``n`` is set if the characters so far match the first ``n`` atoms. A single character moves its bit one up.
    ``*`` and ``**`` keep theirs and may be skipped. ``**/`` has two: before a directory, where it may be skipped, and
    within a directory's name, from which a slash leads back.
    """

    def __init__(self, atoms: Sequence[_Atom]) -> None:
        self._ending = _literal_end(atoms)
        many = tuple(atoms[: len(atoms) - len(self._ending)])
        self._any_name = many == (_Wildcard.DIRECTORIES, _Wildcard.IN_NAME) and "/" not in self._ending
        """The most common form: ``*.py``, in any directory."""
        self._chars: dict[str, int] = {}
        self._sets: list[tuple[_Set, int]] = []
        self._stays = self._stays_in_name = self._enters = self._inside = self._skip_one = self._skip_two = 0
        bit = 1
        for atom in _merged(atoms):
            match atom:
                case str():
                    self._chars[atom] = self._chars.get(atom, 0) | bit
                case _Set():
                    self._sets.append((atom, bit))
                case _Wildcard.IN_NAME:
                    self._stays_in_name |= bit
                    self._skip_one |= bit
                case _Wildcard.ANYTHING:
                    self._stays |= bit
                    self._skip_one |= bit
                case _Wildcard.DIRECTORIES:
                    self._enters |= bit
                    self._skip_two |= bit
                    bit <<= 1
                    self._inside |= bit
            bit <<= 1
        self._end = bit
        self._moves: dict[str, tuple[int, int]] = {}

    def matches(self, path: str) -> bool:
        if not path.endswith(self._ending):  # rejects most paths
            return False
        if self._any_name:
            return not path.startswith("/") and "//" not in path
        reached = self._with_skips(1)
        for char in path:
            moves = self._moves.get(char)
            if moves is None:
                moves = self._moves[char] = self._moves_of(char)
            stepped = ((reached & moves[0]) << 1) | (reached & moves[1])
            if char == "/":
                stepped |= (reached & self._inside) >> 1
            if not stepped:
                return False
            reached = self._with_skips(stepped)
        return bool(reached & self._end)

    def _with_skips(self, reached: int) -> int:
        while True:
            further = reached | ((reached & self._skip_one) << 1) | ((reached & self._skip_two) << 2)
            if further == reached:
                return reached
            reached = further

    def _moves_of(self, char: str) -> tuple[int, int]:
        """The bits that this character moves one up, and those that it leaves in place."""
        up = self._chars.get(char, 0)
        for each, bit in self._sets:
            up |= bit if char in each else 0
        if char == "/":
            return up, self._stays
        return up | self._enters, self._stays | self._stays_in_name | self._inside


def _merged(atoms: Sequence[_Atom]) -> list[_Atom]:
    """Merge repeated wildcards of the same kind."""
    merged: list[_Atom] = []
    for atom in atoms:
        last = merged[-1] if merged else None
        if isinstance(atom, _Wildcard) and atom is last:
            continue
        merged.append(atom)
    return merged


def _literal_end(atoms: Sequence[_Atom]) -> str:
    end: list[str] = []
    for atom in reversed(atoms):
        if not isinstance(atom, str):
            break
        end.append(atom)
    return "".join(reversed(end))


# Parsing. A pattern is a list of alternatives, each a list of atoms; braces multiply them.

_Alternatives = list[list[_Atom]]


def _read(pattern: str) -> _Alternatives:
    # For each open brace: what came before it, and its alternatives so far.
    outer: list[tuple[_Alternatives, _Alternatives]] = []
    here: _Alternatives = [[]]
    at, last_brace = 0, pattern.rfind("}")
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*":
            many, at = _read_star(pattern, at)
            here = _followed(here, [[many]])
        elif char == "?":
            here = _followed(here, [[_ONE_IN_NAME]])
        elif char == "[" and (found := _SET.match(pattern, at)):
            here = _followed(here, [[_read_set(found[2], negated=bool(found[1]))]])
            at = found.end()
        elif char == "{" and last_brace >= at:
            outer.append((here, []))
            here = [[]]
        elif char == "}" and outer:
            before, ended = outer.pop()
            _check_count(len(ended) + len(here))
            here = _followed(before, [*ended, *here])
        elif char == "," and outer:
            outer[-1][1].extend(here)
            _check_count(len(outer[-1][1]))
            here = [[]]
        else:
            here = _followed(here, [[char]])
    if outer:
        raise ValueError("a brace is not closed")
    return here


def _read_star(pattern: str, at: int) -> tuple[_Wildcard, int]:
    if pattern[at - 1 : at + 2] == "**/":
        return _Wildcard.DIRECTORIES, at + 2
    if pattern[at : at + 1] == "*":
        return _Wildcard.ANYTHING, at + 1
    return _Wildcard.IN_NAME, at


def _read_set(inside: str, *, negated: bool) -> _Set:
    """Parse a set. A range from a later character to an earlier one is empty."""
    members = list(_SET_MEMBER.finditer(inside))
    ranges: list[tuple[str, str]] = []
    classes: list[str] = []
    at = 0
    while at < len(members):
        member = members[at]
        last = members[at + 2] if at + 2 < len(members) and members[at + 1][0] == "-" else member
        if member["named"] is not None:
            if member["named"] not in _POSIX_CLASSES:
                raise ValueError(f"{member[0]} is none of the classes {', '.join(_POSIX_CLASSES)}")
            classes.append(member["named"])
            at += 1
        elif last is member or last["named"] is not None:
            ranges.append((_char(member), _char(member)))
            at += 1
        else:
            ranges.append((_char(member), _char(last)))
            at += 3
    return _Set(tuple(ranges), tuple(classes), negated)


def _char(member: re.Match[str]) -> str:
    """``[=a=]`` and ``[.a.]`` stand for the character in them."""
    return member["like"] or member["symbol"] or member["char"]


def _followed(before: _Alternatives, after: _Alternatives) -> _Alternatives:
    if len(after) == 1:
        for first in before:
            first.extend(after[0])
        return before
    _check_count(len(before) * len(after))
    return [[*first, *second] for first in before for second in after]


def _check_count(alternatives: int) -> None:
    if alternatives > MAX_ALTERNATIVES:
        raise ValueError(f"its braces stand for more than {MAX_ALTERNATIVES} patterns")
