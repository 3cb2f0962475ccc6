"""What is in the wheels: each file in one of them, programs for the machine that is named, nothing of the builder's."""

from __future__ import annotations

import re
import struct
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

import hatch_build
from paddock import __version__
from tests.packaging.wheels import ROOT, Wheels

_MACHINES = {62: "x86_64", 183: "aarch64"}
_PT_INTERP = 3
_STATIC = "static: needs no C library of the machine"


def _names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as opened:
        return set(opened.namelist())


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as opened:
        (name,) = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(opened.read(name))


def _modules(wheel: Path) -> set[str]:
    return {name for name in _names(wheel) if name.startswith("paddock/") and "/bin/" not in name}


def test_each_file_is_in_one_of_the_two_and_none_is_missing(wheels: Wheels) -> None:
    client, server = _modules(wheels.client), _modules(wheels.server)
    assert not client & server
    there = {f"paddock/{path.relative_to(ROOT / 'src/paddock')}" for path in (ROOT / "src/paddock").rglob("*.py")}
    assert {name for name in client | server if name.endswith(".py")} == there
    assert not [name for name in client | server if "__pycache__" in name or "/." in name]
    assert {"paddock/py.typed", "paddock/__init__.py", "paddock/client/__init__.py"} <= client
    assert "paddock/interpreter/kit.lock" in server
    assert not [name for name in _names(wheels.client) | _names(wheels.server) if not name.startswith("paddock")]


def test_every_entry_of_the_clients_list_exists() -> None:
    assert [name for name in hatch_build.CLIENT if not (ROOT / "src/paddock" / name).exists()] == []


def test_they_have_one_version_and_the_server_wants_its_own_client(wheels: Wheels) -> None:
    client, server = _metadata(wheels.client), _metadata(wheels.server)
    assert client["Version"] == server["Version"] == __version__
    assert f"paddock-client[cli]=={__version__}" in server.get_all("Requires-Dist", [])
    assert wheels.client.name.endswith("-py3-none-any.whl")
    needed = [need for need in client.get_all("Requires-Dist", []) if "extra ==" not in need]
    assert sorted(re.split(r"[^\w-]", need)[0] for need in needed) == ["httpx", "pydantic"]
    assert {client["License-Expression"], server["License-Expression"]} == {"Apache-2.0"}


def test_each_server_wheel_has_static_programs_for_the_machine_that_it_names(wheels: Wheels) -> None:
    assert wheels.servers
    for wheel in wheels.servers:
        found = re.fullmatch(r".*-py3-none-manylinux_2_17_(\w+)\.musllinux_1_1_\1\.whl", wheel.name)
        assert found is not None, wheel.name
        with zipfile.ZipFile(wheel) as opened:
            programs = [info for info in opened.infolist() if "/bin/" in info.filename]
            for info in programs:
                _, _, machine, name = info.filename.split("/")
                assert (_elf(opened.read(info)), info.external_attr >> 16 & 0o777) == ((machine, _STATIC), 0o755), name
                assert machine == found[1] or name == hatch_build.AGENT
        own = {info.filename.split("/")[3] for info in programs if info.filename.split("/")[2] == found[1]}
        assert own == set(hatch_build.PROGRAMS)


def test_nothing_names_the_place_where_they_were_built(wheels: Wheels) -> None:
    for wheel in (wheels.client, *wheels.servers):
        with zipfile.ZipFile(wheel) as opened:
            named = [name for name in opened.namelist() if str(ROOT).encode() in opened.read(name)]
        assert named == []


def test_a_release_has_a_wheel_for_each_architecture(wheels: Wheels) -> None:
    if len(wheels.servers) == 1:
        pytest.skip("these were built for this machine only; `make release` builds for both")
    assert len(wheels.servers) == len(hatch_build.ARCHITECTURES)
    for wheel in wheels.servers:
        agents = {name for name in _names(wheel) if name.endswith(f"/{hatch_build.AGENT}")}
        assert agents == {f"paddock/bin/{machine}/{hatch_build.AGENT}" for machine in hatch_build.ARCHITECTURES}


def _elf(data: bytes) -> tuple[str, str]:
    """The machine that a program is for, and whether it needs a loader."""
    assert data[:6] == b"\x7fELF\x02\x01"
    machine, headers, size, count = (
        *struct.unpack_from("<H", data, 18),
        *struct.unpack_from("<Q", data, 32),
        *struct.unpack_from("<HH", data, 54),
    )
    kinds = {struct.unpack_from("<I", data, headers + index * size)[0] for index in range(count)}
    return _MACHINES[machine], "dynamic" if _PT_INTERP in kinds else _STATIC
