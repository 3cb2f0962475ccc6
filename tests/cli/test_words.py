"""What the program says without a server: help, mistakes, numbers and times; and how soon it says it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import pytest
import typer
from typer.testing import CliRunner

from paddock import __version__, models
from paddock.cli import arguments, output
from paddock.cli.app import app
from paddock.cli.confinement import egress_of, mount_of
from paddock.cli.copy import _safe
from paddock.errors import Invalid, every_error

DOCUMENT = Path(__file__).parents[2] / "docs" / "cli.md"
runner = CliRunner()


def commands() -> list[tuple[str, ...]]:
    root = typer.main.get_command(app)
    found: list[tuple[str, ...]] = []
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        below = getattr(command, "commands", None)
        found += [(name, child) for child in below] if below else [(name,)]
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_has_help_takes_json_and_is_documented(words: tuple[str, ...]) -> None:
    shown = runner.invoke(app, [*words, "--help"])
    assert shown.exit_code == 0
    for option in ("--json", "--server", "--api-key"):
        assert option in shown.stdout
    assert f"paddock {' '.join(words)}" in DOCUMENT.read_text(encoding="utf-8")


def test_docs_name_no_command_that_there_is_none_of() -> None:
    known = {words[0] for words in commands()} | {"delete"}
    named: dict[str, set[str]] = {}
    for page in (DOCUMENT.parents[1] / "README.md", *DOCUMENT.parent.glob("*.md")):
        for found in re.finditer(
            r"(?:`|\$ |^|[(|] ?)paddock ([a-z][a-z-]+)\b(?! (?:is|has|was)\b)", page.read_text(), re.M
        ):
            named.setdefault(found[1], set()).add(page.name)
    assert len(named) > 20
    assert {word: pages for word, pages in named.items() if word not in known} == {}


@pytest.mark.parametrize(
    "words",
    [
        ("nonsense",),
        ("create", "--env", "no-equals"),
        ("create", "--on-timeout", "explode"),
        ("create", "--egress", "some"),
        ("create", "--isolation", "perfect"),
        ("create", "--mount", "/srv"),
        ("create", "--mount", "/srv:workspace"),
        ("create", "--mount", ":/workspace"),
        ("list", "--status", "happy"),
        ("timeout", "alice_1f2e3d4c", "0"),
        ("url", "alice_1f2e3d4c", "99999"),
        ("cp", "here", "there"),
        ("cp", "a_00000000:/x", "b_00000000:/y"),
        ("exec", "alice_1f2e3d4c"),
        ("exec", "alice_1f2e3d4c", "-i", "--json", "--", "cat"),
    ],
    ids=" ".join,
)
def test_a_mistake_in_the_words_is_exit_code_2(words: tuple[str, ...]) -> None:
    assert runner.invoke(app, list(words)).exit_code == 2


def test_the_choices_are_those_of_the_wire() -> None:
    assert list(get_args(arguments.Action)) == list(models.TimeoutAction)
    assert list(get_args(arguments.Status)) == list(models.State)
    assert list(get_args(arguments.Role)) == list(models.Role)
    assert list(get_args(arguments.Egress)) == list(models.Egress)
    assert list(get_args(arguments.Isolation)) == list(models.Isolation)


@pytest.mark.parametrize(
    ("text", "source", "target", "read_only"),
    [
        ("/srv/data:/workspace", "/srv/data", "/workspace", False),
        ("/srv/data:/data:ro", "/srv/data", "/data", True),
        ("/srv/data:/data:rw", "/srv/data", "/data", False),
        ("/a:b:/c", "/a:b", "/c", False),
        ("..:/up", "{parent}", "/up", False),
        (".:/here", "{here}", "/here", False),
    ],
)
def test_a_mount_names_a_directory_of_this_machine(
    text: str, source: str, target: str, read_only: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = (tmp_path / "inner").resolve()
    here.mkdir()
    monkeypatch.chdir(here)
    expected = source.format(here=here, parent=here.parent)
    assert mount_of(text) == {"source": expected, "target": target, "read_only": read_only}


def test_what_a_create_says_of_egress() -> None:
    assert egress_of(None, None, None) is None
    assert egress_of("none", None, None) == {"mode": "none"}
    assert egress_of(None, ["a.test", ""], [""]) == {"allow": ["a.test"], "deny": []}


def test_version() -> None:
    assert runner.invoke(app, ["version"]).stdout == f"{__version__}\n"


@pytest.mark.parametrize(
    ("login", "expected"),
    [("alice", "alice"), ("a.b c", "a-b-c"), ("-x-", "x"), ("ünï", "n"), ("", "user"), ("a" * 100, "a" * 63)],
)
def test_a_login_name_is_made_safe(login: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: login)
    assert arguments.login_name() == expected
    models.CreateSandbox(user_id=arguments.login_name())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (-5, "0 s"), (59.4, "59 s"), (60, "1 min"), (90, "1 min 30 s"), (3600, "1 h"), (90061, "1 d 1 h")],
)
def test_spans_read_well(seconds: float, text: str) -> None:
    assert output.span(seconds) == text


def test_times_are_told_from_now() -> None:
    now = datetime.now(UTC)
    assert output.ago((now - timedelta(hours=2)).isoformat()) == "2 h ago"
    assert output.until((now + timedelta(minutes=5, seconds=1)).isoformat()).startswith("in 5 min")
    assert output.ago(None) == output.until(None) == ""


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (1500, "1.5 kB"), (123_456_789, "123 MB")])
def test_sizes_read_well(count: int, text: str) -> None:
    assert output.size(count) == text


def test_text_that_others_chose_cannot_drive_the_terminal() -> None:
    assert output.escape("\x1b[2J[red]x\u202e") == "\\x1b[2J\\[red]x\\u202e"


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "a\0b"])
def test_a_name_from_a_sandbox_cannot_lead_elsewhere(name: str) -> None:
    with pytest.raises(Invalid):
        _safe(name)


@pytest.mark.parametrize("kind", [kind for kind in every_error() if "code" in vars(kind)], ids=lambda kind: kind.code)
def test_every_failure_has_the_shape_of_the_wire(kind: type) -> None:
    document = output.error_document(kind("no", details={"a": 1}))
    assert models.ErrorAnswer.model_validate(document).model_dump() == document
    output.hint_for(kind("no"))
