"""What users are told to install is ours: ``paddock`` on PyPI is somebody else's package."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.distribution import CLIENT, SERVER, install_command

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "docs", "examples", "scripts", "agent", "benchmarks", "client", ".github")
FILES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", "pyproject.toml")
ENDINGS = {".md", ".py", ".sh", ".toml", ".txt", ".html", ".c", ".h", ".yml", ".yaml", ""}

WRONG = (
    re.compile(r"(?<![\w-])paddock\[[a-z]"),
    re.compile(
        r"\b(?:pip3?|pipx|uv|poetry|conda)\b[^\n`]*\b(?:install|add|inject|run)\b[^\n`]*[\s'\"/]paddock(?![-\w/.])"
    ),
    re.compile(r"\b(?:uvx|pipx run)\b[^\n`]*\spaddock(?![-\w/.])"),
)


def _texts() -> Iterator[tuple[Path, str]]:
    for place in (*FOLDERS, *FILES):
        for path in [ROOT / place, *sorted((ROOT / place).rglob("*"))]:
            if path.is_file() and path.suffix in ENDINGS and not {"vendor", "bin", "build"} & set(path.parts):
                yield path, path.read_text(encoding="utf-8")


def _wrong(text: str) -> list[str]:
    return [found.group() for pattern in WRONG for found in pattern.finditer(text)]


def test_nothing_leads_to_the_package_of_that_name() -> None:
    found = {str(path.relative_to(ROOT)): wrong for path, text in _texts() if (wrong := _wrong(text))}
    assert found == {}


@pytest.mark.parametrize(
    "line",
    [
        "pip install paddock",
        "pip install 'paddock[e2b]'",
        "python3 -m pip install -U paddock",
        "pip install './paddock[langchain]'",
        "uv add paddock",
        "uvx --from paddock paddock up",
        "`uv tool install paddock`",
    ],
)
def test_the_search_finds_it(line: str) -> None:
    assert _wrong(line)


@pytest.mark.parametrize(
    "line", ["pip install 'paddock-sandbox[e2b]'", "paddock addon install browser", "uv add paddock-client"]
)
def test_and_nothing_else(line: str) -> None:
    assert not _wrong(line)


@pytest.mark.parametrize(("name", "folder"), [(SERVER, "."), (CLIENT, "client")])
def test_the_distributions_are_named_so(name: str, folder: str) -> None:
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]
    assert project["name"] == name
    assert project["scripts"] == {"paddock": "paddock.__main__:main"}
    for extra in project["optional-dependencies"]:
        assert f"'{name}[{extra}]'" in install_command(extra, name)


def test_a_checkout_stays_installed_from_its_files() -> None:
    """`pip install '.[extra]'` would put a copy in its place, which does not change when the files do."""
    replacing = re.compile(r"\binstall(?! -e )[^\n`]*?\.\[\w")
    found = {str(path.relative_to(ROOT)): hits for path, text in _texts() if (hits := replacing.findall(text))}
    assert found == {}


@pytest.mark.parametrize("folder", [".", "client"])
def test_every_extra_is_explained_with_its_packages(folder: str) -> None:
    extras = tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", (ROOT / "docs" / "dependencies.md").read_text(), re.M)
    for name, requirements in extras.items():
        explained = next(packages for extra, packages in rows if f"`{name}`" in extra)
        named = [re.match(r"[\w-]+", requirement)[0] for requirement in requirements]  # type: ignore[index]
        own = [package for package in named if package not in (SERVER, CLIENT)]
        assert all(f"`{package}`" in explained for package in own), name
