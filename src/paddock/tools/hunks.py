"""Locates the hunks of a patch in a file, and applies them.

Lines are found by an index, so that the cost is linear in the patch and the file. Only lines that occur in many places
have to be compared one by one, and the number of those comparisons is limited.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from paddock.tools.patches import Hunk
from paddock.tools.tool import ToolFailed

_COMPARED_PER_LINE = 50
"""Maximum line comparisons per line of the file and the patch."""

_SAME: tuple[Callable[[str], str], ...] = (str, str.rstrip, str.strip)
"""Compared exactly; then ignoring white space."""


class FileLines:
    """The lines of one file, and the remaining number of comparisons."""

    def __init__(self, lines: list[str], patch_lines: int, path: str) -> None:
        self.lines = lines
        self._path = path
        self._room = _COMPARED_PER_LINE * (len(lines) + patch_lines + 100)
        self._indexed: dict[Callable[[str], str], tuple[list[str], dict[str, list[int]]]] = {}

    def find(self, hunk: Hunk, begin: int) -> int | None:
        """The position of the hunk's old lines, at or after ``begin``."""
        for anchor in hunk.anchors:
            found = self._next(anchor, begin)
            if found is None:
                return None
            begin = found + 1
        old = hunk.old
        if not old:
            if hunk.at is not None:
                return max(begin, min(hunk.at, len(self.lines)))
            return begin if hunk.anchors else len(self.lines)
        for same in _SAME:
            place = self._place([same(line) for line in old], same, hunk, begin)
            if place is not None:
                return place
        return None

    def _place(self, wanted: list[str], same: Callable[[str], str], hunk: Hunk, begin: int) -> int | None:
        given, places = self._index(same)
        last = len(given) - len(wanted)
        if hunk.at_end and last >= begin and self._fits(given, wanted, last):
            return last
        # Search by the line that occurs in the fewest places.
        offset, rarest = 0, places.get(wanted[0], [])
        for number, line in enumerate(wanted):
            found = places.get(line)
            if found is None:
                return None
            if len(found) < len(rarest):
                offset, rarest = number, found
        for place in _nearest(rarest, begin + offset, None if hunk.at is None else hunk.at - 1 + offset):
            at = place - offset
            if at <= last and self._fits(given, wanted, at):
                return at
        return None

    def _fits(self, given: list[str], wanted: list[str], at: int) -> bool:
        for number, line in enumerate(wanted):
            if given[at + number] != line:
                self._room -= number + 1
                break
        else:
            self._room -= len(wanted)
            return True
        if self._room < 0:
            raise ToolFailed(
                f"{self._path} has the same lines in too many places to tell where the patch belongs. Give lines "
                "around each change that are there only once, or use edit_file. Nothing was changed."
            )
        return False

    def _next(self, anchor: str, begin: int) -> int | None:
        places = self._index(str.strip)[1].get(anchor.strip(), [])
        at = bisect_left(places, begin)
        return places[at] if at < len(places) else None

    def _index(self, same: Callable[[str], str]) -> tuple[list[str], dict[str, list[int]]]:
        """The lines as they are compared, and the positions of each."""
        if same not in self._indexed:
            given = [same(line) for line in self.lines]
            places: dict[str, list[int]] = {}
            for number, line in enumerate(given):
                places.setdefault(line, []).append(number)
            self._indexed[same] = given, places
        return self._indexed[same]


def _nearest(places: Sequence[int], begin: int, near: int | None) -> Iterator[int]:
    """Positions from ``begin`` on: in order, or by distance from ``near``, the earlier of two first."""
    first = bisect_left(places, begin)
    if near is None:
        for number in range(first, len(places)):
            yield places[number]
        return
    after = max(first, bisect_left(places, near))
    before = after - 1
    while before >= first or after < len(places):
        if after == len(places) or (before >= first and near - places[before] <= places[after] - near):
            yield places[before]
            before -= 1
        else:
            yield places[after]
            after += 1


def patched(text: str, crlf: bool, hunks: list[Hunk], path: str) -> str:
    """The text with all hunks applied, which are in order. Raises ToolFailed if one does not match."""
    text = text.replace("\r\n", "\n") if crlf else text
    ends = text.endswith("\n") or not text
    lines = text.removesuffix("\n").split("\n") if text else []
    file = FileLines(lines, sum(len(hunk.lines) for hunk in hunks), path)
    out: list[str] = []
    at = 0
    for number, hunk in enumerate(hunks, 1):
        place = file.find(hunk, at)
        if place is None:
            wanted = "\n".join(hunk.old[:6]) or "\n".join(hunk.anchors[:6])
            raise ToolFailed(
                f"Hunk {number} of {len(hunks)} does not fit {path}: these lines are not there (in this order):\n"
                f"{wanted[:3000]}\nRead the file again and copy them exactly. Nothing was changed."
            )
        out += lines[at:place]
        at = place
        for mark, line in hunk.lines:
            if mark == "+":
                out.append(line)
            else:
                # Context lines are taken from the file: those of the patch may differ in white space.
                out += [lines[at]] if mark == " " else []
                at += 1
        if hunk.newline_at_end is not None:
            ends = hunk.newline_at_end
    out += lines[at:]
    result = "\n".join(out) + ("\n" if out and ends else "")
    return result.replace("\n", "\r\n") if crlf else result
