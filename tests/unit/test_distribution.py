"""What users are told to install is ours: ``paddock`` on PyPI is somebody else's package."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.distribution import DISTRIBUTION, install_command

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "docs", "examples", "scripts", "agent", "benchmarks")
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


def test_the_distribution_is_named_so() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == DISTRIBUTION
    assert project["scripts"] == {"paddock": "paddock.cli.app:main"}
    assert set(re.findall(r"\[(\w+)\]", install_command("e2b"))) <= set(project["optional-dependencies"])


def test_a_checkout_stays_installed_from_its_files() -> None:
    """`pip install '.[extra]'` would put a copy in its place, which does not change when the files do."""
    replacing = re.compile(r"\binstall(?! -e )[^\n`]*?\.\[\w")
    found = {str(path.relative_to(ROOT)): hits for path, text in _texts() if (hits := replacing.findall(text))}
    assert found == {}


def test_every_extra_is_explained_with_its_packages() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    sections: dict[str, str] = {}
    for section in re.split(r"^(?=The extras? )", (ROOT / "docs" / "dependencies.md").read_text(), flags=re.M)[1:]:
        heading = section.partition(" (see ")[0]
        sections |= dict.fromkeys(re.findall(r"`([\w-]+)`", heading), section)
    assert set(sections) == set(extras)
    tables = {
        name: set(re.findall(r"`([\w-]+)`", "".join(re.findall(r"^\|([^|]+)\|", text, re.M))))
        for name, text in sections.items()
    }
    for name, requirements in extras.items():
        together = {word for other in extras if sections[other] == sections[name] for word in _packages(extras[other])}
        assert set(_packages(requirements)) <= tables[name] <= together, name


def _packages(requirements: list[str]) -> list[str]:
    return [found[0] for each in requirements if (found := re.match(r"[\w-]+", each))]
