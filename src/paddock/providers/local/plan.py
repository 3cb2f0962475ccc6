"""The plan of one sandbox: the words that the launcher carries out, in order. ``agent/launch`` knows the verbs.

Flags of layers and binds: ``r`` read-only, ``R`` with what is mounted below, ``i`` ids as inside, ``d`` devices,
``f`` the target is a file, ``t`` it need not exist.
"""

from __future__ import annotations

import os
import resource
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from paddock import addons
from paddock.providers.base import SandboxSpec
from paddock.providers.common import disk
from paddock.providers.common.cgroups import CgroupHandle
from paddock.providers.common.confinement import AGENT, INSIDE, MASKED, NO_CORE, OPEN_FILES, READ_ONLY
from paddock.providers.local import uids
from paddock.providers.local.host_root import HOSTNAME, USER_ID
from paddock.providers.local.template import LocalTemplate, Overlay

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEV_LINKS = {
    "ptmx": "pts/ptmx",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
_TERMINALS = 256
"""All sandboxes share the kernel's pool of terminals: none may take them all."""
_RLIMIT_SIGPENDING, _SIGNALS = 11, 2048
_RLIMIT_MSGQUEUE, _QUEUE_BYTES = 12, 65_536
_WATCHERS = 32
_NICE = 15
"""Of everything in a sandbox whose processor time is not limited: a server that competes with each process of a fork
bomb for the processors would be too late to end it."""


@dataclass(frozen=True, slots=True)
class LaunchSite:
    """What a plan is made for."""

    stage: Path
    folder: Path
    template: LocalTemplate
    spec: SandboxSpec
    agent: Path
    group: CgroupHandle | None
    uid_slot: int | None
    """None: not privileged, the sandbox's root is this user."""
    disk_image: bool
    addons: Path | None = None
    """Where this server keeps what is too large for every template."""
    rules: tuple[str, str] | None = None
    """The program that loads them, and the packet rules of a sandbox with full egress."""

    @property
    def privileged(self) -> bool:
        return self.uid_slot is not None

    @property
    def root_id(self) -> int:
        """The host's id of the sandbox's root."""
        return 0 if self.uid_slot is None else uids.base(self.uid_slot)

    @property
    def shared_memory_mb(self) -> int:
        return min(64, max(1, self.spec.resources.memory_mb // 4))


Step = tuple[str | int | Path, ...]
"""A verb and its arguments."""


def plan_steps(site: LaunchSite) -> list[str]:
    return in_words(_steps(site))


def in_words(steps: Iterable[Step]) -> list[str]:
    return [str(word) for step in steps for word in step]


def _steps(site: LaunchSite) -> Iterator[Step]:
    yield from files(site)
    yield from _proc()
    yield from _dev(site)
    yield from _run(site)
    yield from _sys()
    yield from _addons(site)
    yield from _mounts(site)
    yield "hostname", HOSTNAME
    if site.rules is not None:
        yield ("routes",)
        yield "rules", *site.rules
    yield from _limits(site)
    yield "agent", AGENT


def files(site: LaunchSite) -> Iterator[Step]:
    """Groups, ids, its own disk, and its root on top of the template: what is the same on every kernel."""
    yield from _before(site)
    yield "enter", site.stage
    yield from _disk(site)
    yield from _root(site)


def _before(site: LaunchSite) -> Iterator[Step]:
    for file in site.group.task_files() if site.group else ():
        yield "cgroup", file
    if site.group is not None and site.group.v2 is not None:
        yield "group", site.group.v2
    if site.uid_slot is not None:
        yield "users", "range", uids.base(site.uid_slot), uids.COUNT
    else:
        yield "users", "single", os.geteuid(), 1


def _disk(site: LaunchSite) -> Iterator[Step]:
    """``raw``: as it is on the disk. ``disk``: with the ids that are seen inside."""
    if site.disk_image:
        yield "image", site.folder / disk.IMAGE, "raw"
    else:
        yield "layer", site.folder / disk.FOLDERS, "raw", _flags(site, "")
    for overlay in site.template.overlays:
        for folder in (overlay.name, f"{overlay.name}/upper", f"{overlay.name}/work"):
            yield "folder", f"raw/{folder}", "755", 0, 0
    yield "folder", "raw/state", "700", 0, 0
    yield "layer", "raw", "disk", _flags(site, "i")
    yield "state", "disk/state"


def _root(site: LaunchSite) -> Iterator[Step]:
    template = site.template
    above = [overlay for overlay in template.overlays if any(_is_below(overlay, bind) for bind in template.binds)]
    yield from _overlays(site, [overlay for overlay in template.overlays if overlay not in above])
    for source in site.template.binds:
        yield "bind", source, source, _flags(site, "rt")
    yield from _overlays(site, above)
    for copy, target in site.template.copies:
        yield "bind", copy, target, "rf"
    for target in site.template.sudo_paths():
        yield "bind", site.agent, target, "rf"


def _is_below(overlay: Overlay, bind: str) -> bool:
    return overlay.target.startswith(f"{bind}/")


def _overlays(site: LaunchSite, overlays: Iterable[Overlay]) -> Iterator[Step]:
    for overlay in overlays:
        names = []
        for number, lower in enumerate(overlay.lowers):
            names.append(f"{overlay.name}-{number}")
            yield "layer", lower, names[-1], _flags(site, "ri")
        upper = f"upperdir=disk/{overlay.name}/upper,workdir=disk/{overlay.name}/work"
        private = "" if site.privileged else ",userxattr"
        yield "overlay", overlay.target, site.root_id, f"lowerdir={':'.join(names)},{upper}{private}"


def _proc() -> Iterator[Step]:
    yield "mount", "proc", "/proc", ""
    for path in READ_ONLY:
        yield "readonly", path
    for path in MASKED:
        yield "mask", path
    # The host's says when the host was booted; programs take it for the boot of the machine that they are on.
    yield "say", "/proc/sys/kernel/random/boot_id", str(uuid.uuid4())


def _dev(site: LaunchSite) -> Iterator[Step]:
    owner = f"uid={site.root_id},gid={site.root_id}"
    yield "tmpfs", "/dev", f"size=64k,nr_inodes=64,mode=755,{owner}"
    for name in _DEVICES:
        yield "bind", f"/dev/{name}", f"/dev/{name}", "df"
    # Terminals belong to the group `tty`, where there is more than one group.
    group = f",gid={site.root_id + 5}" if site.privileged else ""
    yield "devpts", "/dev/pts", f"newinstance,ptmxmode=0666,mode=0620,max={_TERMINALS}{group}"
    yield "tmpfs", "/dev/shm", f"size={site.shared_memory_mb}m,nr_inodes=4096,mode=1777,{owner}"  # noqa: S108
    for name, text in _DEV_LINKS.items():
        yield "link", text, f"/dev/{name}"
    yield "seal", "/dev"


def _run(site: LaunchSite) -> Iterator[Step]:
    owner = f"uid={site.root_id},gid={site.root_id}"
    yield "tmpfs", "/run", f"size=16m,nr_inodes=4096,mode=755,{owner}"
    yield "tmpfs", INSIDE, f"size=64k,nr_inodes=32,mode=755,{owner}"
    yield "bind", site.agent, AGENT, "rf"
    yield "link", "../agent", f"{INSIDE}/bin/sudo"
    if site.template.python is not None:
        yield "link", site.template.python, f"{INSIDE}/bin/python"


def _sys() -> Iterator[Step]:
    """Nothing of the host's devices and control groups; only how many processors there are."""
    yield "tmpfs", "/sys", "size=64k,nr_inodes=16,mode=755"
    yield "bind", "/sys/devices/system/cpu", "/sys/devices/system/cpu", "rRt"
    yield "seal", "/sys"


def _addons(site: LaunchSite) -> Iterator[Step]:
    """The folder of them all, so that one which is installed later is seen at once."""
    if site.addons is not None:
        yield "bind", site.addons, addons.INSIDE, _flags(site, "rt")
        for name in addons.NAMES:
            yield "link", f"{addons.INSIDE}/{name}/{addons.CURRENT}", f"{addons.FOLDER}/{name}"


def _mounts(site: LaunchSite) -> Iterator[Step]:
    for mount in site.spec.mounts:
        flags = "Rr" if mount.read_only else "R"
        if site.privileged:
            owner = Path(mount.source).stat()
            # An id map cannot be put on mounts below another one: only the directory's own file system is shown.
            flags = flags.replace("R", "") or "-"
            yield "mapped", mount.source, mount.target, flags, owner.st_uid, owner.st_gid, site.root_id + USER_ID
        else:
            yield "bind", mount.source, mount.target, flags


def _limits(site: LaunchSite) -> Iterator[Step]:
    """Inside, so that they count what is in this sandbox only. Those of cgroups are better where there are any."""
    resources = site.spec.resources
    limited = site.group.limits if site.group else frozenset()
    yield "limit", resource.RLIMIT_CORE, NO_CORE, NO_CORE
    yield "limit", resource.RLIMIT_NOFILE, OPEN_FILES, OPEN_FILES
    if not site.privileged:  # all sandboxes of an ordinary user share what the kernel counts by user
        yield "limit", _RLIMIT_SIGPENDING, _SIGNALS, _SIGNALS
        yield "limit", _RLIMIT_MSGQUEUE, _QUEUE_BYTES, _QUEUE_BYTES
        yield "allowance", "max_inotify_instances", _WATCHERS
    if "cpu" not in limited:
        yield "nice", _NICE
    if "pids" not in limited:
        yield "limit", resource.RLIMIT_NPROC, resources.pids, resources.pids
    if "memory" not in limited:
        yield "limit", resource.RLIMIT_DATA, resources.memory_mb << 20, resources.memory_mb << 20
    if not site.disk_image:
        yield "limit", resource.RLIMIT_FSIZE, resources.disk_mb << 20, resources.disk_mb << 20


def _flags(site: LaunchSite, wanted: str) -> str:
    """Without privilege there are no id maps, and a mount may only be copied with what is mounted below it."""
    if not site.privileged:
        wanted = wanted.replace("i", "") + "R"
    return wanted or "-"
