"""Which ``runsc`` is used, and what is said where there is none that can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock import errors
from paddock.providers.base import IsolationLevel, Resources
from paddock.providers.common.cgroups import Cgroups
from paddock.providers.common.launch import Launcher
from paddock.providers.common.programs import Programs
from paddock.providers.common.seccomp import compiler
from paddock.providers.local import uids
from paddock.providers.local.gvisor import runsc
from paddock.providers.local.gvisor.backend import filter_program
from paddock.providers.local.gvisor.runsc import RunscSettings, find
from paddock.providers.local.host import HostCapabilities
from tests.local.place import Place, as_root

ALL = Cgroups({}, Path("/sys/fs/cgroup"), frozenset({"memory", "cpu", "pids"}))
STRICT = HostCapabilities(True, (), True, None, ALL, None)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where programs are looked for, with nothing in it yet."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setattr(runsc, "_PATH", str(folder))
    return folder


def make(folder: Path, version: str, platforms: str = "kvm ptrace systrap") -> Path:
    made = folder / "runsc"
    made.write_text(f"#!/bin/sh\ncase $1 in --version) echo 'runsc version {version}';; *) echo {platforms};; esac\n")
    made.chmod(0o755)
    return made


def test_the_one_of_the_system_is_used_with_the_best_that_it_has(path: Path) -> None:
    made = make(path, "release-20251014.0")
    assert find(RunscSettings(), STRICT) == runsc.Runsc(made, "20251014.0", "systrap")
    assert find(RunscSettings(platform="ptrace"), STRICT).platform == "ptrace"
    make(path, "0.0~20240729.0", "ptrace kvm")
    assert str(find(RunscSettings(), STRICT)) == "gVisor: runsc 20240729.0, platform ptrace"


def test_without_one_it_is_said_where_to_get_it(path: Path) -> None:
    with pytest.raises(errors.ProviderRefused, match=r"apt install runsc.*PADDOCK_RUNSC"):
        find(RunscSettings(), STRICT)


def test_one_that_is_too_old_is_used_only_if_it_is_named(path: Path) -> None:
    made = make(path, "0.0~20221219.0")
    with pytest.raises(errors.ProviderRefused, match="20221219, which is too old"):
        find(RunscSettings(), STRICT)
    assert find(RunscSettings(str(made)), STRICT).version == "20221219.0"


@pytest.mark.parametrize("named", ["/no/such/program", "runsc", "/etc/passwd", "/"])
def test_a_name_that_leads_to_no_program_is_refused(path: Path, named: str) -> None:
    with pytest.raises(errors.ProviderRefused, match="PADDOCK_RUNSC"):
        find(RunscSettings(named), STRICT)


def test_a_program_that_is_something_else_or_lacks_the_platform_is_refused(path: Path) -> None:
    make(path, "of nothing")
    with pytest.raises(errors.ProviderRefused, match="does not say which version"):
        find(RunscSettings(), STRICT)
    make(path, "release-20251014.0", "kvm")
    with pytest.raises(errors.ProviderRefused, match="PADDOCK_RUNSC_PLATFORM"):
        find(RunscSettings(), STRICT)


@pytest.mark.parametrize(
    ("host", "why"),
    [
        (HostCapabilities(False, (), False, "no root", ALL, None), "needs Paddock to run as root"),
        (HostCapabilities(True, (), False, "no loop devices", ALL, None), "on top of the level 'strict'"),
    ],
)
def test_it_comes_on_top_of_every_other_layer(path: Path, host: HostCapabilities, why: str) -> None:
    make(path, "release-20251014.0")
    with pytest.raises(errors.ProviderRefused, match=why):
        find(RunscSettings(), host)


async def test_asking_for_it_where_it_is_not_is_refused_and_leaves_nothing(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = Place(tmp_path, tmp_path_factory.getbasetemp() / "made", runsc=RunscSettings("/no/such/program"))
    await place.provider.start()
    try:
        with pytest.raises(errors.ConfinementUnavailable, match="not 'hardened'") as refused:
            await place.create(isolation=IsolationLevel.HARDENED, resources=Resources())
        assert refused.value.details["asked"] == "hardened"
        assert await place.provider.list() == []
        await place.create(isolation=None)
    finally:
        await place.clear()


@as_root
def test_the_launcher_wraps_a_root_and_starts_nothing_that_is_not_there(tmp_path: Path) -> None:
    for name in ("stage", "disk", "lower/tmp"):
        (tmp_path / name).mkdir(parents=True)
    base = str(uids.base(uids.SLOTS))
    folders = [word for name in ("", "/upper", "/work") for word in ("folder", f"raw/root{name}", "755", "0", "0")]
    options = "lowerdir=lower,upperdir=disk/root/upper,workdir=disk/root/work"
    root = [
        *("users", "range", base, "65536", "enter", str(tmp_path / "stage")),
        *("layer", str(tmp_path / "disk"), "raw", "-", *folders, "layer", "raw", "disk", "i"),
        *("layer", str(tmp_path / "lower"), "lower", "ri", "overlay", "/", base, options),
    ]
    wrapped = [
        *("part", "/tmp", "tmp", "wrap", "rootfs", "mount", "proc", "/proc", "", "bind", "tmp", "/parts/tmp", "-"),
        *("bind", "/bin/sh", "/sh", "rf", "seal", "/"),
    ]
    launcher = Launcher(Programs.find().launcher, b"")
    try:
        if (refused := launcher.attempt([*root, "done"], 60)) is not None:
            pytest.skip(f"no overlays on this file system: {refused}")
        assert launcher.attempt([*root, *wrapped, "done"], 60) is None
        assert "no program" in str(launcher.attempt([*root, *wrapped, "kernel"], 60))
        assert "missing" in str(launcher.attempt([*root, "part", "/missing", "name", "done"], 60))
    finally:
        launcher.close()


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_the_filter_of_a_guest_is_another_one(architecture: str) -> None:
    assert filter_program(architecture) != compiler.program(architecture)
