"""How sandboxes see the add-ons of their server, and how the command line manages them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from paddock.addons.addon_store import AddonStore
from paddock.addons.progress import ProgressReporter
from paddock.addons.recipe import BuiltAddon
from tests.addons.test_shelf import Recipe, silent
from tests.cli.conftest import Paddock
from tests.gateway.bed import running


class DataPackages(Recipe):
    name = "code-interpreter"

    def make(self, folder: Path, say: ProgressReporter) -> BuiltAddon:
        packages = folder / "lib" / subprocess.check_output(["/usr/bin/python3", "-c", _SOABI], text=True).strip()
        packages.mkdir(parents=True)
        (packages / "data_parcel.py").write_text("ANSWER = 'of the add-on'\n")
        return BuiltAddon("1")


_SOABI = "import sysconfig; print(sysconfig.get_config_var('SOABI'))"
_ASK = "import data_parcel; print(data_parcel.ANSWER)"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/usr/lib/python3/dist-packages").is_dir(), reason="its Python is not a Debian's")
def test_data_packages_are_there_for_every_python_and_come_after_the_users_own(tmp_path: Path) -> None:
    with running(tmp_path, "local") as bed:
        box = bed.create()
        run_code = {"sandbox_id": box.sandbox_id, "code": "1"}
        with bed.api() as api:
            api.post("/sandboxes/run-code", json=run_code).raise_for_status()
            AddonStore(tmp_path / "addons").install(DataPackages(), silent)
            context = api.post(f"/sandboxes/{box.sandbox_id}/code-contexts", json={}).raise_for_status().json()
            asked = {**run_code, "code": _ASK, "context_id": context["context_id"]}
            assert api.post("/sandboxes/run-code", json=asked).json()["stdout"] == "of the add-on\n"
        for program in ("python3", "sudo python3", "env -i /usr/bin/python3"):
            assert box.run(f'{program} -c "{_ASK}"') == "of the add-on\n", program
        own = "$(python3 -c 'import site; print(site.getusersitepackages())')"
        box.run(f"mkdir -p {own} && echo \"ANSWER = 'my own'\" > {own}/data_parcel.py")
        assert box.run(f'python3 -c "{_ASK}"') == "my own\n"


@pytest.mark.slow
def test_an_addon_is_seen_at_once_by_a_sandbox_that_runs_and_cannot_be_changed(tmp_path: Path) -> None:
    with running(tmp_path, "local") as bed:
        box = bed.create()
        assert box.run("cat /opt/paddock/browser/bin/program || echo nothing").strip() == "nothing"
        AddonStore(tmp_path / "addons").install(Recipe("7"), silent)
        assert box.run("cat /opt/paddock/browser/bin/program") == "version 7"
        tried = "echo x > /opt/paddock/browser/bin/program || echo refused; rm -r /opt/paddock/addons/* || echo refused"
        assert box.run(tried, user="root").count("refused") == 2
        assert (tmp_path / "addons/browser/current/bin/program").read_text() == "version 7"


def test_the_command_lists_and_removes_addons(tmp_path: Path) -> None:
    AddonStore(tmp_path / "addons").install(Recipe("7"), silent)
    paddock = Paddock(tmp_path)
    listed = {addon["name"]: addon for addon in paddock.json("addon", "list")["addons"]}
    assert listed["browser"]["version"] == "7"
    assert listed["vscode"]["installed"] is False
    paddock("addon", "remove", "browser")
    assert not (tmp_path / "addons/browser").exists()


def test_the_command_names_the_addons_when_there_is_no_such(tmp_path: Path) -> None:
    done = Paddock(tmp_path)("addon", "install", "emacs", check=None)
    assert done.returncode != 0
    assert "browser, code-interpreter, java, r, vscode" in done.stderr
