"""``paddock run``: one command, in a sandbox that goes with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Paddock
from tests.e2b.server import PaddockServer

pytestmark = pytest.mark.slow


def there(paddock: Paddock, user_id: str) -> list[str]:
    return [box["sandbox_id"] for box in paddock.json("list", "--user-id", user_id)["sandboxes"]]


def test_it_streams_what_the_command_says_ends_with_its_code_and_leaves_nothing(paddock: Paddock) -> None:
    line = "echo out; echo err >&2; echo $MINE; exit 7"
    ran = paddock("run", "--user-id", "carol", "-e", "MINE=1", "--", line, check=7)
    assert (ran.stdout, ran.stderr) == ("out\n1\n", "err\n")
    assert there(paddock, "carol") == []


def test_one_that_is_kept_is_there_afterwards(paddock: Paddock) -> None:
    ran = paddock("run", "--user-id", "dave", "--keep", "--", "sh", "-c", "echo kept > note")
    [sandbox_id] = there(paddock, "dave")
    assert ran.stderr == f"Kept: {sandbox_id}\n"
    assert paddock("exec", sandbox_id, "--", "cat", "note").stdout == "kept\n"
    paddock("kill", sandbox_id)


def test_it_takes_the_options_of_create(paddock: Paddock, tmp_path: Path) -> None:
    options = ["--allow", "example.com", "--metadata", "chat=42", "--public-ports"]
    options += ["--max-lifetime", "900", "--idle-timeout", "800", "--on-timeout", "pause", "--no-auto-resume"]
    paddock("run", "--user-id", "gina", "--keep", *options, "--", "true")
    [sandbox_id] = there(paddock, "gina")
    box = paddock.json("status", sandbox_id)
    assert (box["metadata"], box["public_ports"], box["auto_resume"]) == ({"chat": "42"}, True, False)
    assert (box["timeout"], box["max_lifetime"], box["on_timeout"]) == (800, 900, "pause")
    assert paddock.json("egress", sandbox_id)["allow"] == ["example.com"]
    paddock("kill", sandbox_id)
    refused = paddock("run", "--isolation", "hardened", "--", "ls", check=1).stderr
    assert "isolation" in refused
    said = paddock("run", "--mount", f"{paddock.home}:/notes:ro", "--", "ls", check=1).stderr
    assert "not for mounting" in said  # says this provider
    assert "--on-timeout" in paddock("run", "--on-timeout", "pause", "--", "ls", check=2).stderr


def test_it_mounts_a_directory_of_the_host_where_the_provider_can(local_server: PaddockServer, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "one").write_text("written on the host\n")
    paddock = Paddock(tmp_path, local_server.url, local_server.key)
    options = ["--mount", f"{tmp_path / 'notes'}:/notes:ro", "--isolation", "basic", "--egress", "none"]
    ran = paddock("run", *options, "--", "cat /notes/one; touch /notes/two 2>&1 || echo read-only")
    assert ran.stdout.startswith("written on the host\n") and ran.stdout.endswith("read-only\n")
    assert not (tmp_path / "notes" / "two").exists()


def test_a_machine_gets_one_document_with_the_result(paddock: Paddock) -> None:
    made = paddock.json("run", "--user-id", "erin", "echo out; exit 3", check=3)
    assert (made["command"]["stdout"], made["command"]["exit_code"]) == ("out\n", 3)
    assert there(paddock, "erin") == []


def test_a_create_that_fails_is_said_in_one_line(paddock: Paddock) -> None:
    said = paddock("run", "--template", "no-such-template", "--", "ls", check=1).stderr
    assert said.startswith("Error:") and "no-such-template" in said


def test_input_is_passed_on_where_that_is_asked_for(paddock: Paddock) -> None:
    assert paddock("run", "-i", "--user-id", "frank", "--", "cat", input="hello").stdout == "hello"
    assert there(paddock, "frank") == []
