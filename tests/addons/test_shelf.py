"""An add-on is there whole or not at all, and everybody may read it."""

from __future__ import annotations

import fcntl
import json
import threading
from pathlib import Path

import pytest

from paddock import errors
from paddock.addons.addon_store import AddonStore
from paddock.addons.cache import Cache
from paddock.addons.progress import Progress, ProgressReporter
from paddock.addons.recipe import BuiltAddon, run

LOCKS = Path(__file__).parents[2] / "src/paddock/addons/locks"
LOCKED = ("browser", "vscode")
"""Those of npm's packages."""


class Recipe:
    name = "browser"
    summary = "For tests."
    steps = 1

    def __init__(self, version: str = "1", *, fails: bool = False, key: str | None = None) -> None:
        self.version = version
        self.fails = fails
        self.cache_key = key
        self.made = 0

    def make(self, folder: Path, say: ProgressReporter) -> BuiltAddon:
        self.made += 1
        say.step("getting half of it")
        (folder / "bin").mkdir(mode=0o700)
        program = folder / "bin/program"
        program.write_text(f"version {self.version}")
        program.chmod(0o4700)
        say("half of it is there")
        if self.fails:
            raise errors.AddonFailed("The registry does not answer.")
        return BuiltAddon(self.version, {"program": self.version})


def silent(progress: Progress) -> None:
    """Nobody listens."""


@pytest.fixture
def addon_store(tmp_path: Path) -> AddonStore:
    return AddonStore(tmp_path / "addons")


def entries(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "addons/browser").iterdir())


def test_an_installed_addon_is_found_by_its_name_under_current(addon_store: AddonStore, tmp_path: Path) -> None:
    addon_store.install(Recipe("1.2"), silent)
    found = addon_store.installed("browser")
    assert found is not None
    assert (found.version, dict(found.parts)) == ("1.2", {"program": "1.2"})
    assert (tmp_path / "addons/browser/current/bin/program").read_text() == "version 1.2"
    assert found.size > 0


def test_what_was_made_once_is_unpacked_the_next_time(tmp_path: Path) -> None:
    cache, recipe = Cache(tmp_path / "cache"), Recipe("1", key="a")
    first, second = AddonStore(tmp_path / "addons", cache), AddonStore(tmp_path / "other/addons", cache)
    made = first.install(recipe, silent)
    first.remove("browser")
    for addon_store in (first, second):
        again = addon_store.install(recipe, silent)
        assert (again.version, again.parts) == (made.version, made.parts)
    assert recipe.made == 1
    assert (tmp_path / "other/addons/browser/current/bin/program").read_text() == "version 1"
    assert first.install(recipe, silent, fresh=True).version == "1" and recipe.made == 2
    first.install(Recipe("2", key="b"), silent)
    assert len(list((tmp_path / "cache").iterdir())) == 1, "of each add-on one copy"


@pytest.mark.parametrize("damage", [b"", b"not a tar"])
def test_a_copy_that_cannot_be_unpacked_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    addon_store, recipe = AddonStore(tmp_path / "addons", Cache(tmp_path / "cache")), Recipe(key="a")
    addon_store.install(recipe, silent)
    (packed,) = (tmp_path / "cache").iterdir()
    packed.write_bytes(damage)
    assert addon_store.install(recipe, silent).version == "1"
    assert recipe.made == 2
    assert (tmp_path / "addons/browser/current/bin/program").read_text() == "version 1"


def test_an_installation_tells_its_steps_and_how_much_there_is(addon_store: AddonStore) -> None:
    class Slow(Recipe):
        def make(self, folder: Path, say: ProgressReporter) -> BuiltAddon:
            made = super().make(folder, say)
            (folder / "large").write_bytes(b"x" * (3 << 20))
            measured.wait(60)
            return made

    measured = threading.Event()
    heard: list[Progress] = []

    def hear(progress: Progress) -> None:
        heard.append(progress)
        if progress.size >= 3 << 20:
            measured.set()

    addon_store.install(Slow(), hear)
    assert measured.is_set()
    assert heard[0].text == "step 1 of 1, getting half of it, 0 MB"
    assert heard[-1].text == "step 1 of 1, getting half of it, 3 MB: half of it is there"


def test_a_failed_install_leaves_nothing(addon_store: AddonStore, tmp_path: Path) -> None:
    with pytest.raises(errors.AddonFailed):
        addon_store.install(Recipe(fails=True), silent)
    assert entries(tmp_path) == []
    assert addon_store.installed("browser") is None


def test_a_failed_install_leaves_the_version_before_in_place(addon_store: AddonStore, tmp_path: Path) -> None:
    addon_store.install(Recipe("1"), silent)
    with pytest.raises(errors.AddonFailed):
        addon_store.install(Recipe("2", fails=True), silent)
    assert entries(tmp_path) == ["1", "current"]
    assert (tmp_path / "addons/browser/current/bin/program").read_text() == "version 1"


def test_the_version_before_stays_for_those_who_use_it_and_older_ones_go(
    addon_store: AddonStore, tmp_path: Path
) -> None:
    for version in ("1", "2", "3"):
        addon_store.install(Recipe(version), silent)
    assert entries(tmp_path) == ["2", "3", "current"]


def test_the_same_version_can_be_installed_again(addon_store: AddonStore, tmp_path: Path) -> None:
    addon_store.install(Recipe("1"), silent)
    (tmp_path / "addons/browser/1/bin/program").write_text("broken")
    addon_store.install(Recipe("1"), silent)
    assert (tmp_path / "addons/browser/current/bin/program").read_text() == "version 1"
    assert entries(tmp_path) == ["1", "current"]


def test_everybody_may_read_it_and_nobody_gains_a_privilege(addon_store: AddonStore, tmp_path: Path) -> None:
    addon_store.install(Recipe(), silent)
    folder = tmp_path / "addons/browser/current"
    assert (folder / "bin").stat().st_mode & 0o777 == 0o755
    assert (folder / "bin/program").stat().st_mode & 0o7777 == 0o755
    assert (tmp_path / "addons").stat().st_mode & 0o777 == 0o755


def test_what_is_removed_is_gone(addon_store: AddonStore, tmp_path: Path) -> None:
    addon_store.install(Recipe(), silent)
    addon_store.remove("browser")
    assert addon_store.installed("browser") is None
    assert not (tmp_path / "addons/browser").exists()
    with pytest.raises(errors.AddonNotFound):
        addon_store.remove("browser")


@pytest.mark.parametrize("name", ["nonsense", "../..", "", "browser/../vscode"])
def test_a_name_that_is_none_is_refused_with_those_that_there_are(addon_store: AddonStore, name: str) -> None:
    with pytest.raises(errors.AddonNotFound, match="browser, code-interpreter, java, r, vscode"):
        addon_store.installed(name)


def test_two_installs_at_once_do_not_get_in_each_others_way(addon_store: AddonStore, tmp_path: Path) -> None:
    addon_store.install(Recipe("1"), silent)
    with (tmp_path / "addons/.lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(errors.Conflict, match="is running on this server"):
            addon_store.install(Recipe("2"), silent)
    assert entries(tmp_path) == ["1", "current"]


def test_a_program_that_fails_is_quoted(tmp_path: Path) -> None:
    heard: list[str] = []
    with pytest.raises(errors.AddonFailed, match="no room on the disk"):
        run(["sh", "-c", "echo begun; echo no room on the disk >&2; exit 3"], tmp_path, heard.append)
    assert "begun" in heard


@pytest.mark.parametrize("name", LOCKED)
def test_every_package_of_a_lock_has_a_checksum_and_no_host(name: str) -> None:
    lock = json.loads((LOCKS / name / "package-lock.json").read_text())
    packages = {path: package for path, package in lock["packages"].items() if path and not package.get("inBundle")}
    assert packages
    for path, package in packages.items():
        assert package["integrity"].startswith("sha512-"), path
        assert "resolved" not in package, path


def test_the_lock_is_for_the_packages_that_are_named() -> None:
    for name in LOCKED:
        named = json.loads((LOCKS / name / "package.json").read_text())
        locked = json.loads((LOCKS / name / "package-lock.json").read_text())["packages"][""]
        assert named["dependencies"] == locked["dependencies"]
