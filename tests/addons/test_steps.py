"""Every recipe tells of as many steps as it has announced. The programs that it starts are stand-ins, which bring just
what the recipe looks for."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from paddock.addons import browser, code_interpreter, npm
from paddock.addons.addon_store import AddonStore
from paddock.addons.browser import Browser
from paddock.addons.code_interpreter import CodeInterpreter
from paddock.addons.java import Java
from paddock.addons.progress import Progress
from paddock.addons.r import R
from paddock.addons.recipe import Recipe
from paddock.addons.vscode import VsCode

PROGRAM = "#!/bin/sh\nexit 0\n"
APT = """#!/bin/sh
case "$*" in
*--print-uris*) for name in @NAMES@; do echo "'http://debian.test/$name.deb' ${name}_1.0-1_all.deb 1 SHA256:0"; done ;;
*" download -qq "*)
    while [ "$1" != -qq ]; do shift; done
    shift
    for name in "$@"; do : > "${name}_1.0-1_all.deb"; done ;;
esac
"""
COPY = """#!/bin/sh
/bin/cp -a @TREE@/. "@TARGET@"
"""
NODE = f"node_modules/node-linux-{npm.machine()}"
CODE_SERVER = "node_modules/code-server"
WORKBENCH = f"{CODE_SERVER}/lib/vscode"
VERSION = '{"version": "1.0"}'
FROM_NPM = {
    "node_modules/playwright-core/package.json": VERSION,
    f"{NODE}/package.json": VERSION,
    f"{NODE}/bin/node": PROGRAM,
    f"{CODE_SERVER}/package.json": VERSION,
    f"{CODE_SERVER}/out/node/entry.js": "",
    f"{WORKBENCH}/extensions/package.json": VERSION,
    f"{WORKBENCH}/bin/remote-cli/code-linux.sh": "",
    f"{WORKBENCH}/bin/helpers/browser-linux.sh": "",
    f"{WORKBENCH}/node_modules/@vscode/ripgrep/package.json": VERSION,
    f"node_modules/@vscode/ripgrep-universal/bin/linux-{npm.machine()}/rg": PROGRAM,
}
FROM_DEBIAN = {
    "usr/lib/chromium/chromium": PROGRAM,
    "usr/share/fonts/one.ttf": "",
    "usr/lib/R/etc/Renviron.ucf": "",
    "usr/lib/R/bin/R": "#!/bin/sh\nR_HOME_DIR=/usr/lib/R\nR_SHARE_DIR=/usr/share/R/share\n",
    "etc/R/ldpaths": "",
    **{f"usr/lib/jvm/java-17/bin/{name}": PROGRAM for name in ("jar", "java", "javac", "jshell")},
}
PACKAGES = ("r-base-core", "r-cran-irkernel", "openjdk-17-jdk-headless", "chromium-common", *browser._FONT_PACKAGES)


class StandIns:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._bin, self._trees = folder / "bin", folder / "trees"
        self._bin.mkdir()
        self._trees.mkdir()
        self._monkeypatch = monkeypatch
        for name in ("node", "make", "g++", "python3"):
            self._put(name, PROGRAM)
        self._copy("npm", FROM_NPM, target=".")
        for name in ("dirname", "readlink"):
            (self._bin / name).symlink_to(str(shutil.which(name, path="/usr/bin:/bin")))
        monkeypatch.setenv("PATH", str(self._bin))

    def debian(self) -> None:
        self._put("apt-get", APT.replace("@NAMES@", "chromium " + " ".join(PACKAGES)))
        self._copy("dpkg-deb", FROM_DEBIAN, target="$3")

    def chromium_of_the_host(self) -> None:
        self._put("chromium", PROGRAM)
        self._monkeypatch.setattr(browser, "_SYSTEM", str(self._bin))

    def pip(self) -> None:
        """A Python that has every package by the time that pip has ended."""
        python = self._put("python", '#!/bin/sh\ncase "$*" in *sysconfig*) echo "3.11 cpython-311" ;; esac\n')
        self._monkeypatch.setattr(code_interpreter, "_PYTHON", str(python))

    def _copy(self, name: str, tree: Mapping[str, str], target: str) -> None:
        for path, text in tree.items():
            file = self._trees / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            file.chmod(0o755)
        self._put(name, COPY.replace("@TREE@", str(self._trees / name)).replace("@TARGET@", target))

    def _put(self, name: str, text: str) -> Path:
        program = self._bin / name
        program.write_text(text)
        program.chmod(0o755)
        return program


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIns:
    monkeypatch.setattr(browser, "_SYSTEM", str(tmp_path / "nothing"))
    return StandIns(tmp_path, monkeypatch)


def steps_told(recipe: Recipe, folder: Path) -> int:
    """Of an installation, in which as many must have been announced from its beginning to its end."""
    heard: list[Progress] = []
    announced = recipe.steps
    AddonStore(folder / "addons").install(recipe, heard.append)
    assert {progress.steps for progress in heard} == {announced}
    told = sorted({progress.step for progress in heard if progress.step})
    assert told == list(range(1, announced + 1))
    return announced


@pytest.mark.parametrize("recipe", [R(), Java()], ids=lambda recipe: recipe.name)
def test_what_comes_from_debian(stand_ins: StandIns, tmp_path: Path, recipe: Recipe) -> None:
    stand_ins.debian()
    assert steps_told(recipe, tmp_path) == 4


def test_what_comes_from_npm(stand_ins: StandIns, tmp_path: Path) -> None:
    assert steps_told(VsCode(), tmp_path) == 8


def test_what_comes_from_pypi(stand_ins: StandIns, tmp_path: Path) -> None:
    stand_ins.pip()
    assert steps_told(CodeInterpreter(), tmp_path) == 2


def test_the_browser_where_the_host_has_a_chromium_and_where_not(stand_ins: StandIns, tmp_path: Path) -> None:
    stand_ins.debian()
    assert steps_told(Browser(), tmp_path) == 8
    stand_ins.chromium_of_the_host()
    assert steps_told(Browser(), tmp_path) == 4
    assert steps_told(Browser(full=True), tmp_path) == 8


def test_the_browser_where_there_is_no_debian(stand_ins: StandIns, tmp_path: Path) -> None:
    stand_ins.chromium_of_the_host()
    assert steps_told(Browser(), tmp_path) == 1
