"""Counting the values of JSON before it is parsed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock import errors, json_limits
from paddock.json_limits import ValueCounter

TEXTS = st.text(alphabet='",[]{}:\\a', max_size=20)
DOCUMENTS = st.recursive(
    TEXTS | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=20
)


def values(document: Any) -> int:
    """As they are counted: what is listed, with a container once more."""
    if not isinstance(document, dict | list):
        return 1
    inner = document.values() if isinstance(document, dict) else document
    return 1 + max(1, len(document)) + sum(values(each) - 1 for each in inner)


@given(DOCUMENTS, st.integers(min_value=1, max_value=9))
def test_a_text_in_pieces_has_the_values_of_the_whole(document: Any, size: int) -> None:
    text = json.dumps(document).encode()
    counter = ValueCounter()
    for at in range(0, len(text), size):
        counter.feed(text[at : at + size])
    assert counter.values == values(document)


@pytest.mark.parametrize("text", [b'{"a":' * 200_000, b'["",' * 200_000, b"[" * 800_000])
def test_no_more_is_counted_than_there_may_be(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[int] = []
    feed = ValueCounter.feed

    def counted(self: ValueCounter, piece: bytes) -> None:
        fed.append(len(piece))
        feed(self, piece)

    monkeypatch.setattr(ValueCounter, "feed", counted)
    with pytest.raises(errors.Invalid, match="more than 20000 values"):
        json_limits.check(text)
    assert sum(fed) < len(text) / 3
