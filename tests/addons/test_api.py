"""Add-ons by the API, and by the command line on a server elsewhere: how far an installation has come, and its end."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from paddock import errors
from paddock.addons.vscode import VsCode
from paddock.client import SyncSandboxClient
from paddock.client.answers import AddonEnded
from paddock.server import addon_installs
from tests.addons.packed import VERSION, pack_vscode
from tests.cli.conftest import Paddock
from tests.gateway.bed import Bed, running

NPM = """#!/bin/sh
echo $$ > {place}/pid
echo "added 1 package"
read word < {place}/go
exit 1
"""


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    with running(tmp_path / "home", "local") as bed:
        yield bed


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack_vscode(tmp_path, monkeypatch)


@pytest.fixture
def slow_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An npm that says a line, waits until something is written to ``go``, and fails."""
    place = tmp_path / "npm"
    place.mkdir()
    os.mkfifo(place / "go")
    (place / "npm").write_text(NPM.format(place=place))
    (place / "npm").chmod(0o755)
    (place / "node").symlink_to("/bin/true")
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    return place


def begun(api: httpx.Client) -> dict[str, Any]:
    """An installation of ``browser`` of which the first word of npm has arrived."""
    with api.stream("POST", "/addons/browser/install", json={"stream": True}) as events:
        for line in events.iter_lines():
            if line.startswith("data: ") and (said := json.loads(line[6:]))["detail"]:
                return dict(said)
    raise AssertionError("it ended before it began")


@pytest.mark.usefixtures("packed")
def test_an_installation_tells_how_far_it_has_come_and_is_there_at_the_end(bed: Bed) -> None:
    with SyncSandboxClient(bed.url, api_key=bed.key) as client:
        assert not client.get_addon("vscode").installed
        *progress, end = client.stream_install_addon("vscode")
        assert progress and all(each["steps"] == VsCode.steps for each in progress)
        assert any("earlier installation" in each["detail"] for each in progress)
        assert isinstance(end, AddonEnded) and (end.installed, end.version) == (True, VERSION)
        listed = {each.name: each for each in client.list_addons()}
        assert listed["vscode"].parts == {"code-server": VERSION} and not listed["browser"].installed
        client.remove_addon("vscode")
        assert client.install_addon("vscode").name == "vscode", "without waiting for it"
        *_, end = client.stream_install_addon("vscode")
        assert isinstance(end, AddonEnded) and end.installed
        client.remove_addon("vscode")
        with pytest.raises(errors.AddonNotFound):
            client.remove_addon("vscode")


@pytest.mark.usefixtures("packed")
def test_the_command_line_installs_on_a_server_elsewhere_and_shows_its_progress(bed: Bed, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    paddock = Paddock(here, bed.url, bed.key)
    done = paddock("addon", "install", "vscode", "--json")
    assert json.loads(done.stdout)["version"] == VERSION
    progress = [json.loads(line) for line in done.stderr.splitlines()]
    assert progress and {"name", "step", "steps", "doing", "detail", "size"} == set(progress[-1])
    assert {each["name"]: each["installed"] for each in paddock.json("addon", "list")["addons"]}["vscode"]
    assert not (here / "addons").exists() and (tmp_path / "home/addons/vscode/current").exists()
    paddock("addon", "remove", "vscode")
    assert "`vscode`" not in paddock("addon", "install", "emacs", check=1).stderr


def test_while_it_is_at_work_its_progress_is_shown_and_its_failure_afterwards(bed: Bed, slow_npm: Path) -> None:
    with bed.api() as api:
        said = begun(api)
        assert (said["step"], said["detail"]) == (1, "added 1 package")
        shown = api.get("/addons/browser").json()
        assert shown["progress"]["detail"] == "added 1 package" and not shown["installed"]
        assert api.post("/addons/browser/install", json={}).json()["progress"]["step"] == 1, "joined"
        for refused in (api.post("/addons/r/install", json={}), api.delete("/addons/browser")):
            assert refused.status_code == 409 and "being installed" in refused.json()["error"]["message"]
        with api.stream("POST", "/addons/browser/install", json={"stream": True}) as events:
            (slow_npm / "go").write_text("\n")
            assert "event: error" in list(events.iter_lines())
        shown = api.get("/addons/browser").json()
        assert shown["progress"] is None and "npm ci" in shown["problem"]
    assert list((bed.settings.home / "addons/browser").iterdir()) == [], "a failed installation leaves nothing"


@pytest.mark.parametrize(
    ("printed", "detail"),
    [("'not of the installer'", "not of the installer"), ("12", "12"), ("'x' * (2 << 20)", "x" * 500)],
    ids=["text", "JSON", "long"],
)
def test_a_line_that_is_not_the_installers_is_a_detail(
    bed: Bed, slow_npm: Path, monkeypatch: pytest.MonkeyPatch, printed: str, detail: str
) -> None:
    (slow_npm / "npm").write_text("#!/bin/sh\nexit 1\n")
    program = f"print({printed}, flush=True); from paddock.addons.installer import main; main()"
    monkeypatch.setattr(addon_installs, "PROGRAM", (sys.executable, "-c", program))
    with bed.api() as api, api.stream("POST", "/addons/browser/install", json={"stream": True}) as events:
        said = [json.loads(line[6:]) for line in events.iter_lines() if line.startswith("data: ")]
    assert detail in [each.get("detail") for each in said]
    assert "npm ci" in said[-1]["error"]["message"]


def test_the_end_of_the_server_ends_it_and_what_it_started(slow_npm: Path, tmp_path: Path) -> None:
    with running(tmp_path / "home", "local") as bed, bed.api() as api:
        begun(api)
        npm = int((slow_npm / "pid").read_text())
        assert Path(f"/proc/{npm}").exists()
    assert not Path(f"/proc/{npm}").exists()
    assert list((tmp_path / "home/addons/browser").iterdir()) == []


def test_members_may_look_but_not_install(bed: Bed) -> None:
    with bed.api() as api:
        api.post("/users", json={"user_id": "bob"}).raise_for_status()
        key = api.post("/keys", json={"name": "bob", "user_id": "bob"}).raise_for_status().json()["key"]
    with bed.api(key) as member:
        assert len(member.get("/addons").raise_for_status().json()["addons"]) == 5
        for refused in (member.post("/addons/r/install", json={}), member.delete("/addons/r")):
            assert refused.status_code == 403 and "admin" in refused.json()["error"]["message"]
        assert member.get("/addons/emacs").status_code == 404


def test_a_server_whose_sandboxes_see_no_addons_refuses_them(tmp_path: Path) -> None:
    with running(tmp_path, "local") as bed, bed.api() as api:
        bed.context.addons._providers = {"docker"}
        refused = api.post("/addons/r/install", json={})
    assert refused.status_code == 501 and "`local`" in refused.json()["error"]["message"]
