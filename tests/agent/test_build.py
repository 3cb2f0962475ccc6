"""The build hook: every program, static, for a wheel that says where it runs; and nothing twice."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import hatch_build
from tests.agent.conftest import SOURCES

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "paddock"
version = "1.2.3"
[tool.hatch.build]
dev-mode-dirs = ["src"]
[tool.hatch.build.targets.wheel]
bypass-selection = true
[tool.hatch.build.targets.wheel.hooks.custom]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what the hook needs, with programs small enough to compile often."""
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "src/paddock").mkdir(parents=True)
    (tmp_path / "src/paddock/__init__.py").touch()
    (tmp_path / ".gitignore").write_text("/src/paddock/bin/\n")
    shutil.copy(SOURCES.parent / "hatch_build.py", tmp_path)
    for folder in ("src", "launch", "probe"):
        (tmp_path / "agent" / folder).mkdir(parents=True)
        (tmp_path / "agent" / folder / "main.c").write_text(
            f'#include <stdio.h>\nint main(void) {{ return puts("{folder} " PADDOCK_BUILD) < 0; }}\n'
        )
    shutil.copy(SOURCES / "flags", tmp_path / "agent")
    return tmp_path


@pytest.fixture
def compiler() -> hatch_build.Compiler:
    try:
        return hatch_build.find_compiler(both=False)
    except hatch_build.BuildError as error:
        pytest.skip(str(error))


def test_nothing_is_compiled_twice_and_every_change_counts(project: Path, compiler: hatch_build.Compiler) -> None:
    (architecture,) = compiler.architectures
    program = project / "src/paddock/bin" / architecture / "paddock-agent"

    def built(version: str = "1") -> int:
        hatch_build.build(project, compiler, architecture, version)
        return program.stat().st_ino

    first = built()
    assert subprocess.run([program], capture_output=True, check=True).stdout == b"src 1\n"
    assert built() == first
    header = project / "agent/src/new.h"
    header.write_text("/* new */")
    second = built()
    assert second != first
    assert built("2") != second
    assert subprocess.run([program], capture_output=True, check=True).stdout == b"src 2\n"
    assert sorted(path.name for path in program.parent.glob("[!.]*")) == sorted(hatch_build.PROGRAMS)


def test_what_does_not_compile_is_told_with_the_compilers_words(project: Path, compiler: hatch_build.Compiler) -> None:
    (project / "agent/src/main.c").write_text("int main(void) { return nonsense; }\n")
    with pytest.raises(hatch_build.BuildError, match=r"paddock-agent could not be compiled by [^\n]*\n(?s:.*)nonsense"):
        hatch_build.build(project, compiler, compiler.architectures[0], "1")
    shutil.rmtree(project / "agent/launch")
    (project / "agent/src/main.c").write_text("int main(void) { return 0; }\n")
    with pytest.raises(hatch_build.BuildError, match="not whole"):
        hatch_build.build(project, compiler, compiler.architectures[0], "1")


def test_without_a_compiler_one_hears_how_to_get_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PADDOCK_CC", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(hatch_build.BuildError, match="apt-get install gcc"):
        hatch_build.find_compiler(both=True)


def test_a_compiler_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_CC", "some cc -with 'an option'")
    assert hatch_build.find_compiler(both=True).command == ("some", "cc", "-with", "an option")


def test_a_compiler_that_cannot_link_statically_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("cc", "gcc"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "clang").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "clang").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("PADDOCK_CC", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert hatch_build.find_compiler(both=False).command == (str(tmp_path / "clang"),)


def test_zig_compiles_for_both_architectures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PADDOCK_CC", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    compiler = hatch_build.find_compiler(both=True)
    assert compiler.architectures == ("x86_64", "aarch64")
    assert "aarch64-linux-musl" in compiler.for_architecture("aarch64")


def test_a_wheel_is_for_the_architecture_that_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_ARCHITECTURE", "aarch64")
    tag = hatch_build.wheel_tag(hatch_build.wanted_architecture())
    assert tag == "py3-none-manylinux_2_17_aarch64.musllinux_1_1_aarch64"
    monkeypatch.setenv("PADDOCK_ARCHITECTURE", "mips")
    with pytest.raises(hatch_build.BuildError, match="'mips'"):
        hatch_build.wanted_architecture()
    monkeypatch.delenv("PADDOCK_ARCHITECTURE")
    assert hatch_build.wanted_architecture() == hatch_build.native_architecture()


@pytest.mark.slow
def test_a_wheel_holds_the_programs_and_says_where_it_runs(project: Path, compiler: hatch_build.Compiler) -> None:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=project, check=True)
    (wheel,) = (project / "dist").glob("*.whl")
    architecture = hatch_build.native_architecture()
    assert f"_{architecture}" in wheel.name and "-any" not in wheel.name
    with zipfile.ZipFile(wheel) as opened:
        for program in hatch_build.PROGRAMS:
            found = opened.getinfo(f"paddock/bin/{architecture}/{program}")
            assert found.external_attr >> 16 & 0o777 == 0o755
            assert opened.read(found)[:4] == b"\x7fELF"
        metadata = opened.read("paddock-1.2.3.dist-info/WHEEL").decode()
        assert "Root-Is-Purelib: false" in metadata
        assert f"Tag: py3-none-musllinux_1_1_{architecture}" in metadata
        assert not [name for name in opened.namelist() if "sha256" in name]


@pytest.mark.slow
def test_an_editable_install_builds_them_in_place(project: Path, compiler: hatch_build.Compiler) -> None:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel:editable"], cwd=project, check=True)
    (architecture,) = compiler.architectures
    program = project / "src/paddock/bin" / architecture / "paddock-launch"
    assert subprocess.run([program], capture_output=True, check=True).stdout == b"launch 1.2.3\n"
