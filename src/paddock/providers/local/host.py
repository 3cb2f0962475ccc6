"""What this machine lets us do, found out by doing it: small trials of the launcher, not guesses from version numbers.

``problems`` lists what keeps sandboxes from running at all, each with what to do about it; ``paddock doctor`` shows
them, and so does a server that cannot start.
"""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from paddock import errors
from paddock.providers.base import IsolationLevel, IsolationReport, Layer, Resources
from paddock.providers.common.cgroups import Cgroups
from paddock.providers.common.disk import Disks
from paddock.providers.common.launch import Launcher, namespaces_used_up
from paddock.providers.common.programs import Programs
from paddock.providers.local import uids

_SYSCTLS = {
    "kernel.apparmor_restrict_unprivileged_userns": "1",
    "kernel.unprivileged_userns_clone": "0",
    "user.max_user_namespaces": "0",
}
_TRIAL_DISK_MB = 16
_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class HostCapabilities:
    privileged: bool
    problems: tuple[str, ...]
    disk_image: bool
    disk_problem: str | None
    cgroups: Cgroups
    nft: str | None
    """The program that loads packet rules, which full egress needs."""

    @property
    def level(self) -> IsolationLevel:
        if not {"memory", "cpu", "pids"} <= self.cgroups.limits or self.cgroups.freezer is None:
            return IsolationLevel.BASIC
        if not self.privileged or not self.disk_image:
            return IsolationLevel.STANDARD
        return IsolationLevel.STRICT

    def adjusts(self, resources: Resources) -> bool:
        """Whether a machine that runs already can get these limits: rlimits are given at its start, and kept."""
        usual = Resources()
        same = (resources.memory_mb, resources.pids) == (usual.memory_mb, usual.pids)
        return same or {"memory", "pids"} <= self.cgroups.limits

    def report(self) -> IsolationReport:
        return IsolationReport(self.level, tuple(_layers(self)))


def local_problems() -> list[str]:
    """What keeps the local provider from running on this machine; asked before a server chooses its provider."""
    if platform.system() != "Linux":
        return ["The local provider needs Linux."]
    programs = Programs.find()
    if (missing := programs.problem()) is not None:
        return [missing]
    with looked_at(programs) as found:
        return list(found.problems)


@contextlib.contextmanager
def looked_at(programs: Programs) -> Iterator[HostCapabilities]:
    """The machine, tried out in a directory that is removed again."""
    launcher = Launcher(programs.launcher, b"")
    try:
        with tempfile.TemporaryDirectory(prefix="paddock-") as folder:
            found = look(Path(folder), programs, launcher)
            try:
                yield found
            finally:
                found.cgroups.leave()
    finally:
        launcher.close()


def look(root: Path, programs: Programs, launcher: Launcher) -> HostCapabilities:
    """Runs the trials; blocking, a few milliseconds each."""
    privileged = os.geteuid() == 0
    cgroups = Cgroups.find(group_name(root))
    trial = _Trial(root / f".trial-{secrets.token_hex(4)}", launcher, privileged)
    try:
        problems = [text for text in (programs.problem(), trial.namespaces()) if text]
        disk_problem = None
        if not problems:
            disk_problem = trial.image() if privileged else "only root may mount a disk image"
            if disk_problem is not None and (refused := trial.overlay()):
                problems.append(refused)
    finally:
        shutil.rmtree(trial.folder, ignore_errors=True)
    nft = shutil.which("nft", path="/usr/local/sbin:/usr/sbin:/sbin:/usr/bin")
    return HostCapabilities(
        privileged, tuple(problems), disk_problem is None and not problems, disk_problem, cgroups, nft
    )


def group_name(root: Path) -> str:
    """One parent group per installation, so that two on one machine do not clean up after each other."""
    status = root.stat()
    return f"paddock-{status.st_dev:x}-{status.st_ino:x}"


class _Trial:
    def __init__(self, folder: Path, launcher: Launcher, privileged: bool) -> None:
        self.folder = folder
        self._launcher = launcher
        self._privileged = privileged
        for name in ("stage", "lower", "disk"):
            (folder / name).mkdir(parents=True)

    def namespaces(self) -> str | None:
        refused = self._run("mount", "proc", "/proc", "", "devpts", "/dev/pts", "newinstance")
        if refused is None:
            return None
        if refused.endswith(namespaces_used_up()):
            return refused
        blame = [f"{name}={value}" for name, value in _SYSCTLS.items() if _sysctl(name) == value]
        if blame and not self._privileged:
            return (
                f"Ordinary users may not make user namespaces here ({', '.join(blame)}): {refused} "
                f"Run Paddock as root, or allow it: sudo sysctl -w {_opposite(blame[0])}"
            )
        return (
            f"This machine does not let Paddock make namespaces: {refused} In a container, start it with "
            "--security-opt seccomp=unconfined --security-opt systempaths=unconfined (and as root: --privileged)."
        )

    def overlay(self) -> str | None:
        refused = self._run(
            "layer", str(self.folder / "disk"), "raw", "-" if self._privileged else "R", *self._mounted()
        )
        if refused is None:
            return None
        return (
            f"Overlays cannot be mounted here: {refused} Paddock needs Linux 5.19 as root, or 5.12 as an ordinary "
            f"user (this is {platform.release()}), and PADDOCK_HOME on a local file system such as ext4, xfs or btrfs."
        )

    def image(self) -> str | None:
        try:
            Disks(self.folder, images=True).make(self.folder, _TRIAL_DISK_MB)
        except errors.PaddockError as error:
            return error.message
        return self._run("image", str(self.folder / "disk.img"), "raw", *self._mounted())

    def _mounted(self) -> list[str]:
        words = []
        for name in ("raw/root", "raw/root/upper", "raw/root/work"):
            words += ["folder", name, "755", "0", "0"]
        owner = uids.base(uids.SLOTS) if self._privileged else 0
        flags = ("i", "ri") if self._privileged else ("R", "rR")
        words += ["layer", "raw", "disk", flags[0], "layer", str(self.folder / "lower"), "lower", flags[1]]
        options = "lowerdir=lower,upperdir=disk/root/upper,workdir=disk/root/work"
        return [*words, "overlay", "/", str(owner), options + ("" if self._privileged else ",userxattr")]

    def _run(self, *verbs: str) -> str | None:
        """None when all went well, else the launcher's words."""
        who = ["range", str(uids.base(uids.SLOTS)), "65536"] if self._privileged else ["single", str(os.geteuid()), "1"]
        words = ["users", *who, "enter", str(self.folder / "stage"), *verbs, "done"]
        return self._launcher.attempt(words, _SECONDS)


def _layers(host: HostCapabilities) -> Sequence[Layer]:
    limits, cgroups = host.cgroups.limits, host.cgroups
    own_ids = "a range of 65,536 ids of its own" if host.privileged else "the id of the user who runs Paddock"
    layers = [
        Layer("user namespace", True, own_ids),
        Layer("mount, pid, network, ipc, uts and cgroup namespaces", True, "its own of each"),
        Layer("system call filter", True, "seccomp, compiled from the policy that Paddock ships"),
        Layer("no new privileges", True, "setuid programs and file capabilities give nothing"),
        Layer("no capabilities outside", True, "the sandbox's root has nine, inside its own user namespace only"),
        Layer("own uid range", host.privileged, _or(host.privileged, "not shared", "run Paddock as root for this")),
    ]
    for name, controller in (("memory limit", "memory"), ("CPU limit", "cpu"), ("process limit", "pids")):
        fallback = "rlimits only: " + _DELEGATE if controller != "cpu" else "none: " + _DELEGATE
        hard = controller in limits
        layers.append(Layer(name, hard, _or(hard, cgroups.describe(controller), fallback)))
    frozen = cgroups.freezer
    layers.append(Layer("freezer", frozen is not None, frozen or "signals instead of a freezer: " + _DELEGATE))
    soft = f"checked every few seconds, not hard ({host.disk_problem or 'no image'})"
    layers.append(Layer("disk limit", host.disk_image, _or(host.disk_image, "an ext4 image of that size", soft)))
    layers.append(Layer("kernel of its own", False, "namespaces share the host's kernel"))
    return layers


_DELEGATE = "run Paddock as root, or under systemd with Delegate=yes"


def _or(condition: bool, yes: str, no: str) -> str:
    return yes if condition else no


def _sysctl(name: str) -> str | None:
    try:
        return Path("/proc/sys", *name.split(".")).read_text().strip()
    except OSError:
        return None


def _opposite(setting: str) -> str:
    name, _, value = setting.partition("=")
    if name == "user.max_user_namespaces":
        return f"{name}=15000"
    return f"{name}={'0' if value == '1' else '1'}"
