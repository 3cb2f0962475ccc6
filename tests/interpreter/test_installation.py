"""How the interpreter gets into a sandbox: with packages of its own, with the kit, or not at all, and then why."""

from __future__ import annotations

import ast
import hashlib
import os
import resource
import sys
import sysconfig
import tarfile
import time
from pathlib import Path

import pytest

import paddock.interpreter
from paddock import errors
from paddock.interpreter import kit
from paddock.interpreter.installation import Installation
from paddock.interpreter.kit import LEFT_OUT
from paddock.interpreter.kit_download import KitDownload, TargetPython, locked
from tests.interpreter.place import Sandbox, create

INSIDE = Path(paddock.interpreter.__file__).with_name("inside")
PACKAGES = sysconfig.get_path("purelib")


async def test_the_kit_is_brought_where_python_has_no_kernels(fresh: Sandbox) -> None:
    assert (await fresh.run("import ipykernel; ipykernel.__file__")).text.startswith("/opt/paddock/interpreter/kit-")
    assert await fresh.shell("stat -c %U /opt/paddock/interpreter/kit-*/ipykernel/__init__.py") == "root\n"


async def test_programs_of_the_user_do_not_see_the_kit(fresh: Sandbox) -> None:
    tried = await fresh.run("import subprocess; subprocess.run(['python3', '-c', 'import ipykernel']).returncode")
    assert tried.text == "1"


async def test_packages_of_the_sandbox_itself_are_used(place: object, server_context: object) -> None:
    mount = {"source": PACKAGES, "target": "/opt/own", "read_only": True}
    sandbox = await create(server_context, mounts=[mount])  # type: ignore[arg-type]
    folder = await sandbox.shell("python3 -c 'import site; print(site.getsitepackages()[0])'")
    await sandbox.shell(f"mkdir -p {folder.strip()}; echo /opt/own > {folder.strip()}/own.pth", user="root")
    assert (await sandbox.run("import ipykernel; ipykernel.__file__")).text == "/opt/own/ipykernel/__init__.py"
    assert "kit-" not in await sandbox.shell("ls /opt/paddock/interpreter")
    await sandbox.context.controller.delete(sandbox.who, sandbox.sandbox_id)


async def test_packages_that_the_user_installs_later_are_found(fresh: Sandbox) -> None:
    await fresh.run("1")
    folder = (await fresh.run("import site; site.getusersitepackages()")).text
    await fresh.shell(f"mkdir -p {folder}; echo 'answer = 42' > {folder}/brandnew.py")
    assert (await fresh.run("import brandnew; brandnew.answer")).text == "42"


@pytest.fixture
def no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that refuses connections, on a server without kernels of its own."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")


@pytest.mark.usefixtures("no_index")
async def test_a_kit_that_does_not_fit_and_cannot_be_downloaded_is_refused_with_what_to_do(
    fresh: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kit, "abi", lambda: "cpython-399-mips-linux-gnu")
    with pytest.raises(errors.InterpreterMissing, match=r"index does not answer.*pip install ipykernel jupyter-client"):
        await fresh.run("1")


@pytest.mark.usefixtures("no_index")
async def test_an_index_that_failed_is_not_asked_again_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    download = KitDownload(tmp_path)
    for _ in range(2):
        with pytest.raises(errors.InterpreterMissing, match=r"paddock-sandbox\[interpreter\]"):
            await download.get("cpython-311-x86_64-linux-gnu", "glibc 2.36")
        monkeypatch.setattr(sys, "executable", "/nowhere/python")  # a second pip could not even be started
    assert not list(tmp_path.iterdir())


async def test_a_python_of_another_kind_is_refused_without_a_download(tmp_path: Path) -> None:
    for abi, libc in [("pypy311-pp73-x86_64-linux-gnu", "glibc 2.36"), ("cpython-399-x86_64-linux-gnu", "glibc 2.36")]:
        with pytest.raises(errors.InterpreterMissing, match="no packages for a Python of this kind"):
            await KitDownload(tmp_path).get(abi, libc)


@pytest.mark.parametrize("minor", range(9, 15))
@pytest.mark.parametrize("libc", ["glibc 2.17", "glibc 2.41", ""])
def test_the_lock_has_every_package_once_for_each_python(minor: int, libc: str) -> None:
    target = TargetPython.of(f"cpython-3{minor}-aarch64-linux-{'gnu' if libc else 'musl'}", libc)
    assert target is not None
    lines = [line for line in locked(target).splitlines() if not line.startswith(" ")]
    names = [line.partition("==")[0] for line in lines]
    assert len(names) == len(set(names))
    assert {"ipykernel", "jupyter-client", "pyzmq", "tornado"} <= set(names)
    assert not LEFT_OUT & set(names)
    assert not [line for line in lines if ";" in line]


async def test_bringing_it_twice_at_once_is_harmless(fresh: Sandbox, tmp_path: Path) -> None:
    import asyncio

    async with fresh.use() as use:
        commands = await asyncio.gather(*(Installation(tmp_path / str(n)).install(use.machine) for n in range(3)))
    assert commands[0] == commands[1] == commands[2]
    left = (await fresh.shell("ls /opt/paddock/interpreter")).split()
    assert len(left) == 2, left
    assert (await fresh.run("'fine'")).text == "fine"


async def test_the_kit_leaves_out_what_nobody_needs_and_has_bytecode(tmp_path: Path) -> None:
    made = await kit.make(tmp_path)
    assert made is not None
    assert await kit.make(tmp_path) == made
    with tarfile.open(made.path) as tar:
        names = set(tar.getnames())
    assert {"ipykernel/__init__.py", "jupyter_client/__init__.py", "zmq/__init__.py"} <= names
    assert not any(name.startswith(("debugpy/", "jedi/", "pip/", "pytest/", "paddock/")) for name in names)
    assert any(name.startswith("ipykernel/__pycache__/kernelapp.cpython-") for name in names)
    assert made.path.stat().st_size < 64 << 20


async def test_packing_the_kit_takes_no_time_of_the_servers_interpreter(tmp_path: Path) -> None:
    before = time.process_time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    await kit.make(tmp_path)
    own, after = time.process_time() - before[0], resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before[1].ru_utime - before[1].ru_stime > own


async def test_an_archive_that_cannot_be_written_is_an_error_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.Unavailable, match="Not a directory"):
        await kit.make(tmp_path / "file" / "folder")


@pytest.mark.parametrize("path", sorted(INSIDE.glob("*.py")), ids=lambda path: path.name)
def test_the_program_is_for_python_3_9_and_knows_nothing_of_paddock(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Match)
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        assert not any(name.split(".")[0] == "paddock" for name in names)


def test_what_is_vendored_is_what_it_says() -> None:
    digest = hashlib.sha256((INSIDE / "vendor" / "sucrase.js").read_bytes()).hexdigest()
    assert digest in (INSIDE / "vendor" / "README.md").read_text()
