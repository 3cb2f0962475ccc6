"""Whether a command printed what its page says: ids, keys and ports are others each time, and … stands for anything."""

from __future__ import annotations

import re

_SAMPLES = [
    (re.compile(r"p_0123456789abcdef"), r"p_[0-9a-f]{16}"),
    (re.compile(r"[a-z]+_1f2e3d4c"), r"[A-Za-z0-9_-]+_[0-9a-f]{8}"),
    (re.compile(r"(?<=-)i[0-9a-z]{4,20}(?=[….])"), r"[a-z0-9]+"),
    (re.compile(r"localhost:8080|127\.0\.0\.1:8080"), r"(?:localhost|127\.0\.0\.1):[0-9]+"),
    (re.compile(r"(?<=paddock_link=)[0-9a-f.]+…?"), r"[^ \"]+"),
    (re.compile(r"…"), r".*"),
]
_PAIR = re.compile(r'"\w+":\s*(?:"(?:[^"\\]|\\.)*"|[^\s,{}\[\]]+)')


def missing(expected: str, actual: str) -> list[str]:
    """What a line of the page has that the output has not. Of JSON the order of the fields does not matter."""
    said = _bare(actual)
    parts = _PAIR.findall(expected) if '"' in expected and "{" in expected else [expected]
    return [part for part in parts if re.search(_pattern(_bare(part)), said, re.DOTALL) is None]


def _pattern(part: str) -> str:
    """Each sample becomes what it is a sample of; everything else is taken literally."""
    for number, (sample, _) in enumerate(_SAMPLES):
        part = sample.sub(f"\0{number}\0", part)
    pieces = part.split("\0")
    return "".join(_SAMPLES[int(piece)][1] if at % 2 else re.escape(piece) for at, piece in enumerate(pieces))


def _bare(text: str) -> str:
    return re.sub(r"\s+", "", text)
