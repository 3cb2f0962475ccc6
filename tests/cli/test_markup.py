"""Markup in a pipe shows what Rich shows on a terminal, without Rich."""

from __future__ import annotations

import rich.markup
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from paddock.cli import markup

texts = st.text(alphabet="a1 []/#@=bold\n") | st.sampled_from([r"\[red]", r"\\[/]", r"C:\dir[a]"])
"""Rich's own escaping loses some other backslashes."""


@given(texts)
def test_what_is_escaped_is_shown_as_it_was(text: str) -> None:
    assert markup.escape(text) == rich.markup.escape(text)
    assert markup.plain(f"[bold]{markup.escape(text)}[/]") == text


@given(texts, st.sampled_from(["red", "bold", "dim"]))
def test_both_leave_the_same_text(text: str, style: str) -> None:
    marked = f"[{style}]{markup.escape(text)}[/] and [green]more[/]"
    shown = Text.from_markup(marked, emoji=False).plain
    assert markup.plain(marked) == shown


def test_tables_and_fields_can_be_cut_and_sorted() -> None:
    table = markup.plain_table(("ID", "STATUS"), [("a", "[green]running[/]"), ("longer", "")])
    assert table == "ID      STATUS\na       running\nlonger"
    fields = markup.plain_fields({"sandbox": "[bold]a[/]", "mounts": "/x:/y\n/z"})
    assert fields == "sandbox  a\nmounts   /x:/y\n         /z"
