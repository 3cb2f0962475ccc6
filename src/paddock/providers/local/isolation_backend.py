"""How a sandbox is isolated: which first process it gets, and how the agent is reached that this becomes or starts.

Folder, disk, ids, control group, and when it starts and ends, are the same with each.
"""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from paddock.machine.agent.connection import Connect
from paddock.providers.base import IsolationReport, Resources
from paddock.providers.common import disk, launch
from paddock.providers.common.record import SOCKET
from paddock.providers.local import plan
from paddock.providers.local.host import HostCapabilities
from paddock.providers.local.plan import LaunchSite

if TYPE_CHECKING:
    from paddock.machine.agent.bridge import AgentBridge


@dataclass(frozen=True, slots=True)
class AgentTransport:
    """To the agent of one sandbox."""

    connect: Connect
    bridge: AgentBridge | None = None
    """Where no descriptor can be handed over."""


@dataclass(frozen=True, slots=True)
class LaunchResources:
    """What the launcher is given besides the plan. Closed by the caller."""

    listener: socket.socket | None = None
    stderr: int | None = None
    """For the standard error of the first process, until the agent can be asked."""

    def close(self) -> None:
        if self.listener is not None:
            self.listener.close()
        if self.stderr is not None:
            os.close(self.stderr)


class IsolationBackend(ABC):
    on_hosts_kernel: ClassVar[bool] = True
    """Whether the sandbox's processes are processes of the host."""

    @abstractmethod
    def report(self) -> IsolationReport: ...

    @abstractmethod
    def limits(self, resources: Resources) -> Resources:
        """Of its control group, so that all that was asked for is available inside."""

    @abstractmethod
    def prepare_launch(self, site: LaunchSite) -> LaunchResources:
        """What must be there before the first process; may be repeated for a later start."""

    @abstractmethod
    def plan_steps(self, site: LaunchSite) -> list[str]: ...

    @abstractmethod
    async def wait_ready(
        self, folder: Path, site: LaunchSite, prepared: LaunchResources, alive: Callable[[], bool]
    ) -> None:
        """Wait until its agent can be reached, or raise with why it never will. ``folder``: where it is by now."""

    # Of one that runs, whatever this machine could start now

    @staticmethod
    @abstractmethod
    def transport(folder: Callable[[], Path]) -> AgentTransport: ...

    @staticmethod
    @abstractmethod
    def state(pid: int) -> str:
        """A folder on its disk that nothing of its own making leads to."""

    @classmethod
    def abandon(cls, pid: int) -> None:
        """Its disk is about to be deleted: what is not written yet need not be. Only where it has an image."""
        disk.abandon(cls.state(pid))


class NamespaceBackend(IsolationBackend):
    """On the host's kernel: the launcher itself becomes the agent, with a socket that was made for it."""

    def __init__(self, host: HostCapabilities) -> None:
        self._host = host

    def report(self) -> IsolationReport:
        return self._host.report()

    def limits(self, resources: Resources) -> Resources:
        return resources

    def prepare_launch(self, site: LaunchSite) -> LaunchResources:
        return LaunchResources(launch.listen(site.folder, SOCKET))

    def plan_steps(self, site: LaunchSite) -> list[str]:
        return plan.plan_steps(site)

    async def wait_ready(
        self, folder: Path, site: LaunchSite, prepared: LaunchResources, alive: Callable[[], bool]
    ) -> None:
        """Whoever connects waits in the listener's queue."""

    @staticmethod
    def transport(folder: Callable[[], Path]) -> AgentTransport:
        async def connect() -> socket.socket:
            return launch.connect(folder(), SOCKET)

        return AgentTransport(connect)

    @staticmethod
    def state(pid: int) -> str:
        return f"/proc/{pid}/fd/{launch.STATE_FD}"
