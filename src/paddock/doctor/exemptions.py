"""Attempts that some kinds of sandboxes do not refuse, and why they are harmless. ``docs/security.md`` has the same
lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paddock.doctor.attempts import USERS

ROOT = ("root",)


@dataclass(frozen=True, slots=True)
class Exempt:
    reason: str
    users: tuple[str, ...] = USERS


_GUESTS_SETTINGS = Exempt("settings of the guest's kernel, without effect outside", ROOT)
_GUESTS_SCHEDULER = Exempt("the guest's own scheduler")
_GUESTS_NETWORK = Exempt("on the guest's own network, which leads nowhere")
_GUEST_ENDS = Exempt("more than the guest's memory ends the guest alone; the next use starts it from its files", ROOT)

OF_A_GUEST: Mapping[str, Exempt] = {
    "agent-memory-layout": Exempt("gVisor shows it to everybody inside"),
    "agent-environment": Exempt("gVisor shows it to everybody inside; there is nothing but a PATH in it"),
    "agent-descriptors": Exempt("gVisor lets them be followed; who has sudo can do as much"),
    "agent-oom-score": Exempt("the guest's kernel keeps the number and kills nobody by it", ROOT),
    "agent-settings": Exempt("files that the guest's kernel keeps and does nothing with", ROOT),
    "users-own": Exempt("a guest needs no ids of its own inside: those outside are the sandbox's own range"),
    "users-foreign-ids": Exempt("ids inside are the guest's; outside it has the sandbox's own range", ROOT),
    "filter-changed-call": Exempt("a tracer may do what its own program may not; behind both is the guest's kernel"),
    "cgroup-tree": Exempt("control groups of the guest's kernel; the host's are around it", ROOT),
    "device-fuse": Exempt("the guest's kernel has such a device itself"),
    "device-tunnel": Exempt("the guest's kernel has such a device itself, and no network behind it"),
    "device-permissions": Exempt("the guest's own device file", ROOT),
    "proc-sysrq": Exempt("the guest's kernel has the file and does nothing", ROOT),
    "proc-memory-settings": _GUESTS_SETTINGS,
    "proc-kernel-settings": _GUESTS_SETTINGS,
    "proc-network-settings": _GUESTS_SETTINGS,
    "priority-real-time": _GUESTS_SCHEDULER,
    "priority-raise": _GUESTS_SCHEDULER,
    "oom-immunity": Exempt("among processes of the guest only"),
    "socket-mark": _GUESTS_NETWORK,
    "socket-transparent": _GUESTS_NETWORK,
    "network-interface-flags": Exempt("the guest's own loopback"),
    "file-api-agent-inside": Exempt("the agent's program, which is no secret"),
    "file-api-agent-descriptors": Exempt("who has sudo can do as much", ROOT),
    "bomb-memory": _GUEST_ENDS,
    "bomb-memory-file": _GUEST_ENDS,
    "bomb-shared-memory": _GUEST_ENDS,
    "bomb-socket-buffers": _GUEST_ENDS,
    "bomb-zombies": _GUEST_ENDS,
    "bomb-fork": _GUEST_ENDS,
}
"""At level ``hardened``: gVisor's kernel answers, with data of the guest only."""

OF_A_CONTAINER: Mapping[str, Exempt] = {
    "host-credentials": Exempt("a path of the image's own, with what the image has there"),
    "host-records": Exempt("a path of the image's own, with what the image has there"),
    "users-own": Exempt("the engine maps no ids; userns-remap or an engine without root does"),
    "users-foreign-ids": Exempt("the engine maps no ids; userns-remap or an engine without root does", ROOT),
    "device-permissions": Exempt("the device file of the container's own /dev", ROOT),
    "sys-disks": Exempt("the engine shows /sys of the host, read-only: names and sizes of its disks can be read"),
    "sys-network": Exempt("the addresses of the container's own loopback"),
    "allowance-terminals": Exempt(
        "the kernel counts the terminals of all containers together; the host has some of its own", ROOT
    ),
}
"""On Docker: decided by the engine."""
