"""``paddock tool`` against a server."""

from __future__ import annotations

import base64
from pathlib import Path

from tests.cli.conftest import Paddock

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


def test_tools_are_listed_and_shown(paddock: Paddock, box: str) -> None:
    assert "read_file" in paddock("tool", "list", box).stdout
    assert paddock.json("tool", "show", box, "shell_exec")["name"] == "run_command"
    assert "path (required)" in paddock("tool", "show", box, "read_file").stdout
    assert "tool list" in paddock("tool", "show", box, "nonsense", check=1).stderr


def test_tools_are_called_with_words_files_and_json(paddock: Paddock, box: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("one\ntwo\n")
    paddock("tool", "call", box, "write_file", "path=a.txt", f"content=@{tmp_path / 'text'}")
    assert paddock("tool", "call", box, "read_file", "path=a.txt", "offset=2", "limit=1").stdout == "     2\ttwo\n"
    paddock("tool", "call", box, "write_file", "path=b.txt", "content=@-", input="x=1")
    assert paddock("tool", "call", box, "read_file", "-a", '{"path": "b.txt"}').stdout == "     1\tx=1\n"
    document = paddock.json("tool", "call", box, "run_command", "command=echo $A", 'env={"A": "b"}')
    assert (document["data"]["stdout"], document["failed"]) == ("b\n", False)


def test_a_tool_that_fails_ends_with_1(paddock: Paddock, box: str) -> None:
    assert "none" in paddock("tool", "call", box, "read_file", "path=none", check=1).stderr
    assert "offset" in paddock("tool", "call", box, "read_file", "path=x", "offset=zero", check=1).stderr
    for words in (("nonsense",), ("nonsense=1",), ("-a", "["), ("-a", "1")):
        paddock("tool", "call", box, "read_file", *words, check=2)


def test_pictures_are_kept(paddock: Paddock, box: str, tmp_path: Path) -> None:
    paddock("tool", "call", box, "run_command", f"command=echo {PIXEL} | base64 -d > p.png")
    said = paddock("tool", "call", box, "read_file", "path=p.png", "--pictures", str(tmp_path / "kept"))
    [kept] = (tmp_path / "kept").iterdir()
    assert kept.read_bytes() == base64.b64decode(PIXEL)
    assert str(kept) in said.stderr
