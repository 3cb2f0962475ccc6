"""How sandboxes see the add-ons of their server, and how the command line manages them."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.addons.shelf import Shelf
from tests.addons.test_shelf import Recipe, silent
from tests.cli.conftest import Paddock
from tests.gateway.bed import running


@pytest.mark.slow
def test_an_addon_is_seen_at_once_by_a_sandbox_that_runs_and_cannot_be_changed(tmp_path: Path) -> None:
    with running(tmp_path, "local") as bed:
        box = bed.create()
        assert box.run("cat /opt/paddock/browser/bin/program || echo nothing").strip() == "nothing"
        Shelf(tmp_path / "addons").install(Recipe("7"), silent)
        assert box.run("cat /opt/paddock/browser/bin/program") == "version 7"
        tried = "echo x > /opt/paddock/browser/bin/program || echo refused; rm -r /opt/paddock/addons/* || echo refused"
        assert box.run(tried, user="root").count("refused") == 2
        assert (tmp_path / "addons/browser/current/bin/program").read_text() == "version 7"


def test_the_command_lists_and_removes_addons(tmp_path: Path) -> None:
    Shelf(tmp_path / "addons").install(Recipe("7"), silent)
    paddock = Paddock(tmp_path)
    listed = {addon["name"]: addon for addon in paddock.json("addon", "list")["addons"]}
    assert listed["browser"]["version"] == "7"
    assert listed["vscode"]["installed"] is False
    paddock("addon", "remove", "browser")
    assert not (tmp_path / "addons/browser").exists()


def test_the_command_names_the_addons_when_there_is_no_such(tmp_path: Path) -> None:
    done = Paddock(tmp_path)("addon", "install", "emacs", check=None)
    assert done.returncode != 0
    assert "browser, vscode" in done.stderr
