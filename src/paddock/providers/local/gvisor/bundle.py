"""What runsc is told, and what stands around it: a root with itself, the sandbox's files and nothing else.

runsc and all that it starts live in the namespaces, ids and groups that every sandbox has; the guest's kernel is one
more layer inside of them. Whatever ends the first process ends all of it, with every mount.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from typing import Any

from paddock import addons
from paddock.providers.common.confinement import AGENT, CAPABILITIES, INSIDE, NO_CORE, OPEN_FILES
from paddock.providers.local import plan
from paddock.providers.local.gvisor.runsc import Runsc
from paddock.providers.local.host_root import HOSTNAME
from paddock.providers.local.plan import LaunchSite, Step

FOLDER = "gvisor"
"""In the folder of a sandbox: the configuration, and the folder of the agent's socket."""
CONFIG = "config.json"
SOCKET_FOLDER = "door"
SOCKET, TOKEN, FILTER = "agent.sock", "token", "filter"
KEEP = "/parts/keep"
"""Seen from outside: the agent's records, on the sandbox's own disk."""
GROUP = "/sys/fs/cgroup/pids"
"""Inside: the guest's kernel has a limit of processes of its own, which it says no at. The host's would end it."""
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_DEVICES = ("null", "zero", "full", "random", "urandom")
_HOST_FILES = 262_144
"""Descriptors of the guest's kernel, which needs some of its own for each of the guest's."""


def plan_steps(site: LaunchSite, runsc: Runsc) -> list[str]:
    return plan.in_words(_steps(site, runsc))


def _steps(site: LaunchSite, runsc: Runsc) -> Iterator[Step]:
    yield from plan.files(site)
    for name in addons.NAMES if site.addons is not None else ():
        yield "link", f"{addons.INSIDE}/{name}/{addons.CURRENT}", f"{addons.FOLDER}/{name}"
    yield "part", "/tmp", "tmp"  # noqa: S108 - the sandbox's own
    yield "wrap", "rootfs"
    owner = f"uid={site.root_id},gid={site.root_id}"
    yield "mount", "proc", "/proc", ""
    for name in _DEVICES:
        yield "bind", f"/dev/{name}", f"/dev/{name}", "df"
    yield "tmpfs", "/tmp", f"size=1m,mode=700,{owner}"  # noqa: S108 - runsc makes its empty root there
    yield "tmpfs", "/state", f"size=4m,mode=700,{owner}"
    yield "bind", runsc.program, "/runsc", "rf"
    yield "bind", site.folder / FOLDER / CONFIG, f"/bundle/{CONFIG}", "rf"
    yield from _own_parts(site)
    yield "seal", "/"
    yield "hostname", HOSTNAME
    yield "limit", resource.RLIMIT_NOFILE, _HOST_FILES, _HOST_FILES
    yield "limit", resource.RLIMIT_CORE, NO_CORE, NO_CORE
    yield "kernel", *_command(runsc)


def _own_parts(site: LaunchSite) -> Iterator[Step]:
    """What the guest sees besides its root. Each is a mount of its own, whose files may change from outside."""
    yield "bind", "tmp", "/parts/tmp", "-"
    yield "bind", "disk/state", KEEP, "-"
    yield "bind", site.folder / FOLDER / SOCKET_FOLDER, "/parts/door", "-"
    yield "bind", site.agent, "/parts/agent", "rf"
    yield "link", "../agent", "/parts/bin/sudo"
    if site.template.python is not None:
        yield "link", site.template.python, "/parts/bin/python"
    if site.addons is not None:
        yield "bind", site.addons, "/parts/addons", "ri"


def _command(runsc: Runsc) -> list[str]:
    flags = {
        "root": "/state",
        "platform": runsc.platform,
        "network": "none",
        "host-uds": "create",
        "overlay2": "none",
        "ignore-cgroups": "true",
        "oci-seccomp": "false",
    }
    return ["/runsc", *(f"--{name}={value}" for name, value in flags.items()), "run", "--bundle=/bundle", "sandbox"]


def configuration(site: LaunchSite) -> dict[str, Any]:
    """In the words of the OCI's runtime specification."""
    capabilities = [f"CAP_{name}" for name in CAPABILITIES]
    return {
        "ociVersion": "1.0.0",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": _agent(),
            "env": [_PATH],
            "cwd": "/",
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), capabilities),
            "noNewPrivileges": True,
            "rlimits": [_limit("NOFILE", OPEN_FILES), _limit("CORE", 0)],
        },
        "root": {"path": "/rootfs", "readonly": False},
        "hostname": HOSTNAME,
        "mounts": list(_mounts(site)),
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network")]},
    }


def _limit(what: str, number: int) -> dict[str, Any]:
    return {"type": f"RLIMIT_{what}", "soft": number, "hard": number}


def _agent() -> list[str]:
    folder = f"{INSIDE}/{SOCKET_FOLDER}"
    options = {
        "bridge": f"{folder}/{SOCKET}",
        "token": f"{folder}/{TOKEN}",
        "keep": f"{INSIDE}/keep",
        "mode": "range",
        "filter": f"{folder}/{FILTER}",
    }
    return [AGENT, "serve", *(word for name, value in options.items() for word in (f"--{name}", value))]


def _mounts(site: LaunchSite) -> Iterator[dict[str, Any]]:
    shared = f"size={site.shared_memory_mb}m"
    yield {"destination": "/proc", "type": "proc", "source": "proc"}
    yield {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro", "nosuid", "nodev", "noexec"]}
    yield {"destination": GROUP, "type": "cgroup", "source": "cgroup", "options": ["pids"]}
    yield _memory("/dev/shm", shared, "mode=1777")  # noqa: S108 - the guest's
    yield _memory("/run", "size=16m", "mode=755")
    yield _memory(INSIDE, "size=64k", "mode=755")
    yield _bound("/parts/tmp", "/tmp")  # noqa: S108 - else runsc puts one there that is in memory
    for name, options in {"agent": ["ro"], "bin": ["ro"], SOCKET_FOLDER: [], "keep": []}.items():
        yield _bound(f"/parts/{name}", f"{INSIDE}/{name}", *options)
    if site.addons is not None:
        yield _bound("/parts/addons", addons.INSIDE, "ro")


def _bound(source: str, target: str, *options: str) -> dict[str, Any]:
    return {"destination": target, "type": "bind", "source": source, "options": ["bind", *options]}


def _memory(target: str, *options: str) -> dict[str, Any]:
    return {"destination": target, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", *options]}
