"""``paddock down`` and ``paddock destroy``, on a server and a home of their own."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paddock.addons.cache import Cache, default_folder
from paddock.addons.recipe import BuiltAddon
from paddock.errors import Invalid
from paddock.home import RECORD
from paddock.server.teardown import require_home
from tests.cli.conftest import Paddock
from tests.cli.terminals import screen


@contextmanager
def server(home: Path) -> Iterator[tuple[Paddock, subprocess.Popen[bytes]]]:
    """``paddock up``; whoever uses it knows only the home."""
    home.mkdir(mode=0o700, exist_ok=True)
    user = Paddock(home)
    with (home.parent / "log").open("ab") as log:
        process = user.start("up", "--port", "0", "--provider", "local", "--json", stderr=log)
    try:
        assert process.stdout is not None
        while not process.stdout.readline().startswith(b"}"):
            assert process.poll() is None, (home.parent / "log").read_text()
        yield user, process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def test_down_stops_the_server_and_says_what_lives_on(tmp_path: Path) -> None:
    with server(tmp_path / "home") as (user, process):
        running, paused = user("create").stdout.strip(), user("create").stdout.strip()
        user("pause", paused)
        said = user("down").stdout
        process.wait(30)
        assert f"process {process.pid}" in said
        assert "1 paused, 1 running" in said
        assert "No server runs" in user("down").stderr
    with server(tmp_path / "home") as (user, process):
        assert {box["sandbox_id"] for box in user.json("list")["sandboxes"]} == {running, paused}
        refused = user("down", "--sandboxes", check=1)
        assert "--yes" in refused.stderr
        assert process.poll() is None
        done = user.json("down", "--sandboxes", "--yes")
        assert (done["stopped"], done["deleted"], done["left"]) == (process.pid, 2, {})
        assert not any(path.name.startswith("root_") for path in (tmp_path / "home" / "local" / "sandboxes").iterdir())


def test_destroy_asks_and_removes_all_that_is_paddocks(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with server(home) as (user, process):
        sandbox_id = user("create").stdout.strip()
        user("image", "pull", "localhost:1/none:1", check=1)  # makes the directory of images
        assert (home / "images").is_dir()
        (home / "mine").write_text("not Paddock's")
        with screen(user, "destroy") as asked:
            question = asked.wait_for(b"Go on?")
            for named in (sandbox_id, str(process.pid), "paddock.db", "key", "mine"):
                assert named.encode() in question
            asked.type(b"n\r")
            assert asked.end() == 1
        assert process.poll() is None
        assert user.json("status", sandbox_id)["sandbox_id"] == sandbox_id
        unasked = user("destroy", check=1).stderr.splitlines()
        assert unasked[-1] == "Confirm with --yes, because there is no terminal to ask on."
        assert any(line.startswith("- ") and line.endswith("key") for line in unasked), unasked
        done = user.json("destroy", "--yes")
        assert (done["sandboxes"], done["stopped"], done["left"]) == (1, process.pid, [str(home / "mine")])
        assert process.wait(30) is not None
    assert [path.name for path in home.iterdir()] == ["mine"]
    assert "no home" in user("destroy", "--yes", check=1).stderr
    (home / "mine").unlink()


def test_destroy_names_the_packed_copies_of_addons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "the user's"))
    made = tmp_path / "made"
    made.mkdir()
    (made / "program").write_text("x")
    with server(tmp_path / "home") as (user, _):
        assert "add-ons" not in user("destroy", check=1).stderr
        Cache(default_folder()).pack("vscode", "key", made, BuiltAddon("1"))
        told = user("destroy", check=1).stderr, user("destroy", "--yes").stderr
    for said in told:
        named = re.search(r"packed copies of add-ons, 1 MB .*\(`(rm -r .*)` removes them\)", said)
        assert named
    subprocess.run(["sh", "-ec", named[1]], check=True)
    assert not default_folder().exists()


def test_a_directory_that_is_no_home_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("of something else")
    with pytest.raises(Invalid, match="no home"):
        require_home(tmp_path)


def test_another_process_with_the_recorded_id_is_not_stopped(tmp_path: Path) -> None:
    """As when the server runs in a container: there its process id is somebody else's here."""
    user = Paddock(tmp_path)
    other = subprocess.Popen(["sleep", "600"])
    try:
        with (tmp_path / RECORD).open("w") as record:
            record.write(json.dumps({"url": "http://127.0.0.1:1", "pid": other.pid}))
            record.flush()
            fcntl.flock(record, fcntl.LOCK_EX)
            assert "container" in user("down", check=1).stderr
            assert other.poll() is None
        os.truncate(tmp_path / RECORD, 0)
    finally:
        other.kill()
        other.wait()
