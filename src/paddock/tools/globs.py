"""Patterns of paths: ``*`` and ``?`` within a name, ``**`` across directories, ``[…]`` and ``{a,b}``.

A pattern and the names it is tried on are both a tenant's, so matching never backtracks: every place in the pattern
that could be reached is a bit of one number, and each character of the path moves all of them at once. A path costs
its length, whatever the pattern is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from paddock.tools.tool import ToolFailed

MAX_PATTERN = 1000
MAX_ALTERNATIVES = 100
"""That the braces of one pattern may stand for."""


class _Many(Enum):
    """Stand for any number of characters."""

    IN_NAME = "*"
    ANYTHING = "**"
    DIRECTORIES = "**/"


@dataclass(frozen=True, slots=True)
class _Set:
    """``[…]``, or ``?``: one character out of several. The expression is for that one character."""

    expression: re.Pattern[str]


_Atom = str | _Set | _Many
_ONE_IN_NAME = _Set(re.compile(r"[^/]", re.DOTALL))


class Glob:
    """For paths relative to where the search begins."""

    def __init__(self, alternatives: Iterable[Sequence[_Atom]]) -> None:
        self._alternatives = [_Alternative(atoms) for atoms in alternatives]

    def matches(self, path: str) -> bool:
        return any(alternative.matches(path) for alternative in self._alternatives)


def compile_glob(pattern: str) -> Glob:
    """A pattern without a slash fits a name in any directory."""
    if len(pattern) > MAX_PATTERN:
        raise ToolFailed(f"The pattern is longer than {MAX_PATTERN} characters.")
    pattern = pattern.removeprefix("./")
    if "/" not in pattern:
        pattern = f"**/{pattern}"
    try:
        return Glob(_read(pattern))
    except (re.error, ValueError) as problem:
        raise ToolFailed(f"{pattern!r} is no pattern of paths: {problem}. An example: src/**/*.py") from None


def filtered(pattern: str, paths: Iterable[str]) -> list[str]:
    """Those that fit, sorted."""
    glob = compile_glob(pattern)
    return sorted(path for path in paths if glob.matches(path))


class _Alternative:
    """One pattern without braces, as an automaton whose states are bits.

    Bit ``n`` is set when what was read so far fits the pattern up to its atom ``n``. A single character moves its bit
    one up. ``*`` and ``**`` keep theirs and can be passed for nothing. ``**/`` has two: before a directory, where it
    can be passed, and within its name, from where a slash leads back.
    """

    def __init__(self, atoms: Sequence[_Atom]) -> None:
        self._ending = _literal_end(atoms)
        many = tuple(atoms[: len(atoms) - len(self._ending)])
        self._any_name = many == (_Many.DIRECTORIES, _Many.IN_NAME) and "/" not in self._ending
        """As most patterns are: ``*.py``, in any directory."""
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
                case _Many.IN_NAME:
                    self._stays_in_name |= bit
                    self._skip_one |= bit
                case _Many.ANYTHING:
                    self._stays |= bit
                    self._skip_one |= bit
                case _Many.DIRECTORIES:
                    self._enters |= bit
                    self._skip_two |= bit
                    bit <<= 1
                    self._inside |= bit
            bit <<= 1
        self._end = bit
        self._moves: dict[str, tuple[int, int]] = {}

    def matches(self, path: str) -> bool:
        if not path.endswith(self._ending):  # most paths end here
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
        """The bits that this character moves one up, and those that it leaves where they are."""
        up = self._chars.get(char, 0)
        for each, bit in self._sets:
            up |= bit if each.expression.fullmatch(char) else 0
        if char == "/":
            return up, self._stays
        return up | self._enters, self._stays | self._stays_in_name | self._inside


def _merged(atoms: Sequence[_Atom]) -> list[_Atom]:
    """Two of the same kind of ``*`` in a row say nothing more than one."""
    merged: list[_Atom] = []
    for atom in atoms:
        last = merged[-1] if merged else None
        if isinstance(atom, _Many) and atom is last:
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


# Reading. A pattern is a list of alternatives, each a list of atoms; braces multiply them.

_Alternatives = list[list[_Atom]]


def _read(pattern: str) -> _Alternatives:
    # For each open brace: what stood before it, and the alternatives in it so far.
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
        elif char == "[" and (end := pattern.find("]", at + 1)) != -1:
            here = _followed(here, [[_set(pattern[at:end])]])
            at = end + 1
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


def _read_star(pattern: str, at: int) -> tuple[_Many, int]:
    if pattern[at - 1 : at + 2] == "**/":
        return _Many.DIRECTORIES, at + 2
    if pattern[at : at + 1] == "*":
        return _Many.ANYTHING, at + 1
    return _Many.IN_NAME, at


def _set(inside: str) -> _Set:
    inside = inside.replace("\\", "\\\\")
    return _Set(re.compile(f"[{'^' + inside[1:] if inside[0] in '!^' else inside}]", re.DOTALL))


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
