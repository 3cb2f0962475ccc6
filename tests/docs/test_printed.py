"""The comparison that the examples are judged by can fail."""

from __future__ import annotations

import pytest

from tests.docs.examples import Example, commands
from tests.docs.printed import missing


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("hello", "hello\n"),
        ('{"sandbox_id":"alice_1f2e3d4c","status":"running", …}', '{"status": "running", "sandbox_id": "b_00000000"}'),
        ('{"output":"hello\\n","exit_code":3, …}', '{"exit_code":3,"output":"hello\\n","x":1}'),
        ("http://3000-i7k2m….localhost:8080/?paddock_link=…", "http://3000-iabc.localhost:4321/?paddock_link=1.ff"),
        ('data: {"process_id":"p_0123456789abcdef","status":"running", …}',
         'data: {"process_id":"p_ffffffffffffffff","status":"running"}'),
    ],
)  # fmt: skip
def test_samples_stand_for_what_is_another_each_time(expected: str, actual: str) -> None:
    assert missing(expected, actual) == []


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("hello", "goodbye"),
        ('{"exit_code":3, …}', '{"exit_code":0}'),
        ('{"sandbox_id":"alice_1f2e3d4c"}', '{"sandbox_id":"alice"}'),
        ("http://3000-i7k2m….localhost:8080/", "http://localhost:4321/p/3000/"),
    ],
)
def test_what_is_not_there_is_missing(expected: str, actual: str) -> None:
    assert missing(expected, actual)


def test_commands_go_on_after_a_backslash() -> None:
    typed = list(commands(Example("page.md", 7, "console", "$ one \\\n    two\nout\n\nmore\n$ three\n")))
    assert [(each.line, each.text, each.printed) for each in typed] == [
        (7, "one \\\n    two", ["out", "more"]),
        (12, "three", []),
    ]
    with_document = list(commands(Example("page.md", 7, "console", "$ python - <<'END'\none\n\n$ two\nEND\nout\n")))
    assert [(each.text, each.printed) for each in with_document] == [("python - <<'END'\none\n\n$ two\nEND", ["out"])]
    with pytest.raises(ValueError, match=r"page\.md:7"):
        list(commands(Example("page.md", 7, "console", "one\n")))
