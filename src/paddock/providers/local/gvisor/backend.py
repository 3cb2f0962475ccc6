"""A guest of gVisor's as a sandbox: runsc is its first process, and our agent the guest's."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import platform
import re
import socket
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from paddock import errors
from paddock.machine.agent.machine import AgentMachine
from paddock.providers.base import IsolationLevel, IsolationReport, Layer, Resources
from paddock.providers.common.seccomp.compiler import program_of
from paddock.providers.common.seccomp.policy import Case, Condition, Decision, the_policy
from paddock.providers.local.gvisor import agent_socket, bundle
from paddock.providers.local.gvisor.runsc import Runsc
from paddock.providers.local.host import HostCapabilities
from paddock.providers.local.isolation_backend import AgentTransport, IsolationBackend, LaunchResources
from paddock.providers.local.plan import LaunchSite

_START_SECONDS = 60.0
_LOOK_SECONDS = 0.005
_STDERR_BYTES = 16_384
_OWN_MEMORY_MB = 64
"""Of the guest's kernel and of the process that reads files for it."""
_OWN_PROCESSES = 2048
_PROCESSES_EACH = {"systrap": 6, "ptrace": 16}
"""Of the host's, for each of the guest's: the one that runs its code, and threads of the kernel that serve it. More
than were counted, and room for those that it makes before it says no: the guest's own limit shall be reached first,
for at this one its kernel ends."""
_KERNEL = "kernel of its own"
_NOISE = re.compile(r"^(\*\*\* Warning|[IWD]\d{4} )")
_LINKS = {"lgetxattr": Decision("EOPNOTSUPP")}
"""Of a symbolic link it answers ``EBADF``, which every ``ls -l`` reports. Files have none there anyway, and so says
every other call about them."""
_NOT_TO_THE_AGENT = Decision("allow", (Case((Condition(0, (1,)),), "EPERM"),))
_SIGNALS = dict.fromkeys(("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"), _NOT_TO_THE_AGENT)
"""Linux lets nobody inside end the first process; gVisor lets root, and the guest would end with it."""


class GvisorBackend(IsolationBackend):
    on_hosts_kernel = False

    def __init__(self, host: HostCapabilities, runsc: Runsc) -> None:
        self._host = host
        self._runsc = runsc

    def report(self) -> IsolationReport:
        layers = [layer for layer in self._host.report().layers if layer.name != _KERNEL]
        return IsolationReport(IsolationLevel.HARDENED, (*layers, Layer(_KERNEL, True, str(self._runsc))))

    def limits(self, resources: Resources) -> Resources:
        return replace(
            resources,
            memory_mb=resources.memory_mb + _OWN_MEMORY_MB,
            pids=resources.pids * _PROCESSES_EACH[self._runsc.platform] + _OWN_PROCESSES,
        )

    def prepare_launch(self, site: LaunchSite) -> LaunchResources:
        agent_socket.make(site.folder, site.root_id, filter_program(platform.machine()))
        config = site.folder / bundle.FOLDER / bundle.CONFIG
        config.write_text(json.dumps(bundle.configuration(site)))
        config.chmod(0o644)
        return LaunchResources(stderr=_stderr_file())

    def plan_steps(self, site: LaunchSite) -> list[str]:
        return bundle.plan_steps(site, self._runsc)

    async def wait_ready(
        self, folder: Path, site: LaunchSite, prepared: LaunchResources, alive: Callable[[], bool]
    ) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                (await agent_socket.connect(folder)).close()
                break
            except errors.ProviderUnavailable:
                if not alive():
                    raise errors.ProviderRefused(f"The guest's kernel ended at once: {_error_text(prepared)}") from None
                if time.monotonic() > deadline:
                    raise errors.ProviderTimeout(
                        f"The guest did not start within {_START_SECONDS:g} s: {_error_text(prepared)}"
                    ) from None
            await asyncio.sleep(_LOOK_SECONDS)
        await self._limit_processes(folder, site.spec.resources.pids)

    async def _limit_processes(self, folder: Path, pids: int) -> None:
        """Before anything else runs in it. A kernel too old to have such a limit is ended by the group's."""
        transport = self.transport(lambda: folder)
        machine = AgentMachine("", transport.connect, dict, bridge=transport.bridge)
        try:
            with contextlib.suppress(errors.PathNotFound):
                path = f"{bundle.GROUP}/pids.max"
                await machine.stat(path, user="root")
                await machine.write_file(path, _bytes_of(f"{pids + 1}\n"), atomic=False, user="root")
        finally:
            await machine.aclose()
            if transport.bridge is not None:
                await transport.bridge.close()

    @staticmethod
    def transport(folder: Callable[[], Path]) -> AgentTransport:
        # What no other sandbox on this host needs is not loaded for it.
        from paddock.machine.agent.bridge import TOKEN_HEADER, AgentBridge, BridgeEndpoint

        async def connect() -> socket.socket:
            return await agent_socket.connect(folder(), _START_SECONDS)

        async def endpoint() -> BridgeEndpoint:
            return BridgeEndpoint("ws://sandbox", {TOKEN_HEADER: agent_socket.token(folder())}, connect)

        bridge = AgentBridge(endpoint)
        return AgentTransport(bridge.link, bridge)

    @staticmethod
    def state(pid: int) -> str:
        # By the root of runsc itself, where nothing of the guest's making is on the way.
        return f"/proc/{pid}/root{bundle.KEEP}"


async def _bytes_of(text: str) -> AsyncIterator[bytes]:
    yield text.encode()


def _stderr_file() -> int:
    """A file in memory that does not grow: once it is full, writes fail, and the writer keeps running."""
    made = os.memfd_create("stderr", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(made, _STDERR_BYTES)
    fcntl.fcntl(made, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
    return made


def _error_text(prepared: LaunchResources) -> str:
    text = b"" if prepared.stderr is None else os.pread(prepared.stderr, _STDERR_BYTES, 0)
    lines = text.replace(b"\0", b"").decode(errors="replace").splitlines()
    said = [line.strip() for line in lines if line.strip() and not _NOISE.match(line)]
    return " ".join(said)[:1000] or "no message."


@cache
def filter_program(architecture: str) -> bytes:
    """The same filter as elsewhere, but for what gVisor does otherwise than Linux."""
    policy = the_policy()
    children, agent = {**policy.children, **_LINKS, **_SIGNALS}, {**policy.agent, **_LINKS}
    return program_of(replace(policy, children=children, agent=agent), architecture)
