"""Installing software inside: into the sandbox's own layer, with the host's files as they were."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.local.place import PRIVILEGED, Inside, Place, as_root
from tests.support.package_index import NAME, wheel


@pytest.fixture
async def with_wheel(inside: Inside) -> Inside:
    if not Path("/usr/bin/pip3").exists():
        pytest.skip("the host itself has no pip")
    await inside.put(f"/workspace/{NAME}-1.0-py3-none-any.whl", wheel())
    return inside


async def test_pip_installs_for_the_user(with_wheel: Inside) -> None:
    assert await with_wheel.says(f"pip3 install -q --no-index {NAME}-1.0-py3-none-any.whl 2>&1") == ""
    # An ordinary user's sandbox has one id on the host: its user may write what its root may.
    top, where = ("/home/user/.local", "site") if PRIVILEGED else ("/usr/local", "dist")
    assert await with_wheel.says(f"python3 -c 'import {NAME} as p; print(p.NUMBER, p.__file__)'") == (
        f"4711 {top}/lib/python{_version()}/{where}-packages/{NAME}.py"
    )
    for found in ("parcel", "bash -lc parcel", "sh -lc parcel", "env -i HOME=$HOME bash -lc parcel"):
        assert await with_wheel.says(found) == "ran 4711", found
    assert await with_wheel.says("command -v parcel") == f"{top}/bin/parcel"


async def test_pip_installs_into_a_virtual_environment(with_wheel: Inside) -> None:
    if (await with_wheel.run("python3 -m venv --without-pip env")).code != 0:
        pytest.skip("the host itself cannot make virtual environments")
    await with_wheel.says(f"pip3 --python env/bin/python install -q --no-index {NAME}-1.0-py3-none-any.whl")
    assert await with_wheel.says("env/bin/parcel") == "ran 4711"


async def test_pip_installs_where_nothing_is_left_of_the_environment(with_wheel: Inside) -> None:
    clean = "env -i PATH=/usr/bin:/bin HOME=/home/user"
    await with_wheel.says(f"{clean} pip3 install -q --no-index {NAME}-1.0-py3-none-any.whl")
    assert await with_wheel.says("parcel") == "ran 4711"


async def test_what_pip_is_told_by_the_environment_sudo_passes_on(with_wheel: Inside) -> None:
    await with_wheel.says("mkdir wheels && mv *.whl wheels")
    env = "PIP_NO_INDEX=1 PIP_FIND_LINKS=/workspace/wheels"
    assert await with_wheel.says(f"{env} sudo pip3 install -q {NAME} 2>&1 && parcel") == "ran 4711"


async def test_npm_installs_globally_for_the_user(inside: Inside) -> None:
    if shutil.which("npm", path="/usr/local/bin:/usr/bin:/bin") is None:
        pytest.skip("the host itself has no npm")
    package = {"name": "paddock-test-parcel", "version": "1.0.0", "bin": {"npm-parcel": "run.js"}}
    await inside.put("/workspace/parcel/package.json", json.dumps(package))
    await inside.put("/workspace/parcel/run.js", "#!/usr/bin/env node\nconsole.log('ran', 4711)\n")
    packed = (
        "cd parcel && npm pack --offline --silent && npm install -g --offline --silent ./paddock-test-parcel-1.0.0.tgz"
    )
    await inside.says(packed)
    assert await inside.says("npm-parcel; command -v npm-parcel") == "ran 4711\n/home/user/.local/bin/npm-parcel"
    assert await inside.says("bash -lc npm-parcel") == "ran 4711"


async def test_root_installs_into_usr_local_and_the_host_has_nothing_of_it(with_wheel: Inside) -> None:
    assert await with_wheel.says(f"sudo pip3 install -q --no-index {NAME}-1.0-py3-none-any.whl 2>&1") == ""
    assert await with_wheel.says("parcel; command -v parcel") == "ran 4711\n/usr/local/bin/parcel"
    assert not list(Path("/usr/local").rglob(f"*{NAME}*")) and not Path("/usr/local/bin/parcel").exists()


@as_root
async def test_dpkg_installs_and_removes_a_package(inside: Inside, tmp_path: Path) -> None:
    if shutil.which("dpkg-deb") is None:
        pytest.skip("this is not a Debian")
    status = Path("/var/lib/dpkg/status")
    before = hashlib.sha256(status.read_bytes()).hexdigest()
    await inside.put("/workspace/parcel.deb", _deb(tmp_path))
    await inside.says("sudo dpkg -i parcel.deb")
    assert (
        await inside.says("/usr/bin/paddock-test-parcel; cat /etc/paddock-test-parcel.conf") == "from a package\nset=1"
    )
    assert "ii  paddock-test-parcel" in await inside.says("dpkg -l paddock-test-parcel")
    assert await inside.says("cat /var/tmp/configured") == "postinst ran as 0"
    await inside.says("sudo dpkg -P paddock-test-parcel")
    assert (await inside.run("test -e /usr/bin/paddock-test-parcel")).code == 1
    assert hashlib.sha256(status.read_bytes()).hexdigest() == before
    assert not Path("/usr/bin/paddock-test-parcel").exists()


@as_root
async def test_what_is_changed_below_usr_is_changed_for_this_sandbox_alone(place: Place, inside: Inside) -> None:
    env = Path("/usr/bin/env")
    before = (env.stat().st_mtime_ns, env.stat().st_size, env.stat().st_ino)
    await inside.says("sudo sh -c 'echo \"#!/bin/sh\" > /usr/bin/env; rm -rf /usr/share/doc; touch /usr/new'")
    assert await inside.says("cat /usr/bin/env; test -e /usr/share/doc || echo gone") == "#!/bin/sh\ngone"
    other = await place.create()
    assert await other.says("/usr/bin/env A=1 sh -c 'echo $A'; test -e /usr/new || echo new") == "1\nnew"
    assert (env.stat().st_mtime_ns, env.stat().st_size, env.stat().st_ino) == before
    assert Path("/usr/share/doc").is_dir() and not Path("/usr/new").exists()


async def test_usr_of_the_host_is_never_changed_from_an_ordinary_sandbox(inside: Inside) -> None:
    for user in ("user", "root"):
        await inside.run("touch /usr/planted /usr/bin/planted; chmod 777 /usr/bin/env; rm /usr/bin/true", user=user)
    assert not Path("/usr/planted").exists() and not Path("/usr/bin/planted").exists()
    assert Path("/usr/bin/true").exists()
    assert Path("/usr/bin/env").stat().st_mode & 0o777 == 0o755


def _deb(folder: Path) -> bytes:
    top = folder / "parcel"
    (top / "DEBIAN").mkdir(parents=True)
    (top / "usr/bin").mkdir(parents=True)
    (top / "etc").mkdir()
    (top / "DEBIAN/control").write_text(
        "Package: paddock-test-parcel\nVersion: 1.0\nArchitecture: all\nMaintainer: nobody <n@example.test>\n"
        "Description: one script\n"
    )
    postinst = top / "DEBIAN/postinst"
    postinst.write_text("#!/bin/sh\necho postinst ran as $(id -u) > /var/tmp/configured\n")
    postinst.chmod(0o755)
    program = top / "usr/bin/paddock-test-parcel"
    program.write_text("#!/bin/sh\necho from a package\n")
    program.chmod(0o755)
    (top / "etc/paddock-test-parcel.conf").write_text("set=1\n")
    out = folder / "parcel.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", top, out], check=True, capture_output=True)
    return out.read_bytes()


def _version() -> str:
    """Of the system's own Python, which need not be the one that runs the tests."""
    out = subprocess.run(["/usr/bin/python3", "--version"], check=True, capture_output=True, text=True).stdout
    return ".".join(out.split()[1].split(".")[:2])
