"""Daytona behind the vendor's interface, by its official SDK and nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import math
import random
import shlex
from collections.abc import Mapping
from datetime import datetime
from importlib import import_module
from typing import Any

import structlog
from daytona import (
    AsyncDaytona,
    CreateSandboxFromImageParams,
    CreateSandboxFromSnapshotParams,
    DaytonaConfig,
    DaytonaNotFoundError,
    FileUpload,
    ListSandboxesQuery,
)
from daytona import Resources as Size

from paddock import errors
from paddock.machine.agent.bridge import BridgeEndpoint
from paddock.providers.base import IsolationReport, MachineState
from paddock.providers.daytona.failures import status_of, translated
from paddock.providers.daytona.network import settings_of
from paddock.providers.vendor.base import AGENT_PORT, MachineRequest, ScriptResult, Vendor, VendorMachine

log = structlog.get_logger(__name__)

DEFAULT = "default"
"""The template that stands for the snapshot that Daytona takes where none is named."""
IMAGE = "image:"
"""How a template begins that is the name of an image."""
_SECONDS = 50.0
_PAGE = 100
_RETRIES = 4
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 8.0
_CONFLICT, _LATER = 409, (429, 502, 503)
_ASLEEP = {"stopped", "stopping", "archived", "archiving", "paused", "pausing", "error", "build_failed"}
_GONE = {"destroyed", "destroying"}


class DaytonaVendor(Vendor):
    name = "daytona"
    title = "Daytona"

    def __init__(self, api_key: str, *, snapshot: str = "", api_url: str = "", target: str = "") -> None:
        super().__init__(api_key)
        self._snapshot = snapshot
        given = {"api_key": api_key, "api_url": api_url, "target": target}
        self._given = {name: value for name, value in given.items() if value}
        self._client: Any = None
        self._held: dict[str, Any] = {}

    async def start(self) -> None:
        try:
            await self.list({"paddock-installation": "nobody"})
        except errors.ProviderUnavailable as error:
            if status_of(error.__cause__ or error) in (401, 403):
                raise errors.ProviderRefused(error.message) from error
            log.warning("Daytona does not answer", problem=error.message)

    async def close(self) -> None:
        client, self._client = self._client, None
        self._held.clear()
        if client is not None:
            await client.close()

    def templates(self) -> list[str]:
        return [self._snapshot or DEFAULT]

    async def has_template(self, template_id: str) -> bool:
        """A snapshot is looked up; an image is Daytona's to fetch, so only the create can tell."""
        if template_id == DEFAULT or template_id.startswith(IMAGE):
            return True
        with translated("look up a snapshot", asking=True):
            try:
                await self._patiently(lambda: self._sdk().snapshot.get(template_id))
            except DaytonaNotFoundError:
                return False
            return True

    def template_of_image(self, image: str) -> str:
        return f"{IMAGE}{image}"

    def isolation(self) -> IsolationReport | None:
        """Containers or virtual machines, by the class of the snapshot, which Daytona does not tell beforehand."""
        return None

    async def create(self, order: MachineRequest) -> VendorMachine:
        """Its name makes a create that is repeated the same one."""
        common = {
            "name": f"paddock-{hashlib.sha256(repr(sorted(order.metadata.items())).encode()).hexdigest()[:24]}",
            "labels": dict(order.metadata),
            "os_user": self.root,
            "public": False,
            "auto_stop_interval": _minutes(order.lease),
            "auto_delete_interval": -1,
            **settings_of(order.egress),
        }
        with translated("make a machine"):
            try:
                made = await self._patiently(lambda: self._sdk().create(_params(order, common), timeout=_SECONDS))
            except Exception as error:
                if status_of(error) == _CONFLICT and (found := await self.list(order.metadata)):
                    return found[0]
                if isinstance(error, DaytonaNotFoundError):
                    raise errors.TemplateNotFound(f"Daytona has no snapshot {order.template_id!r}.") from error
                raise
            self._held[made.id] = made
            return _machine(made)

    async def get(self, reference: str) -> VendorMachine | None:
        with translated("look at a machine", asking=True):
            try:
                found = await self._patiently(lambda: self._sdk().get(reference, request_timeout=_SECONDS))
            except DaytonaNotFoundError:
                return None
            self._held[reference] = found
            return None if _state(found) in _GONE else _machine(found)

    async def list(self, metadata: Mapping[str, str]) -> list[VendorMachine]:
        query = ListSandboxesQuery(labels=dict(metadata), limit=_PAGE)

        async def everything() -> list[Any]:
            return [one async for one in self._sdk().list(query, request_timeout=_SECONDS)]

        with translated("list its machines", asking=True):
            found = [_machine(one) for one in await self._patiently(everything) if _state(one) not in _GONE]
        return [machine for machine in found if metadata.items() <= machine.metadata.items()]

    async def pause(self, reference: str, *, keep_memory: bool) -> None:
        """With its memory where the class of the machine can do that; else it is stopped, and its files are kept."""
        with translated("stop a machine", reference=reference):
            machine = await self._handle(reference)
            if keep_memory:
                try:
                    await machine.pause(timeout=_SECONDS)
                    return
                except Exception as error:
                    if status_of(error) not in (400, 404, 405, 409, 422, 501):
                        raise
            await machine.stop(timeout=_SECONDS)

    async def resume(self, reference: str, lease: int) -> None:
        with translated("start a machine", reference=reference):
            machine = await self._handle(reference)
            await machine.start(timeout=_SECONDS)
            await machine.set_autostop_interval(_minutes(lease))

    async def renew(self, reference: str, lease: int) -> None:
        with translated("renew a lease", reference=reference):
            machine = await self._handle(reference)
            await self._patiently(machine.refresh_activity)

    async def delete(self, reference: str) -> None:
        with translated("delete a machine"):
            try:
                machine = await self._handle(reference)
                await machine.delete(timeout=_SECONDS, wait=True)
            except DaytonaNotFoundError:
                return
            finally:
                self._held.pop(reference, None)

    async def endpoint(self, reference: str) -> BridgeEndpoint:
        with translated("reach a machine", reference=reference):
            machine = await self._handle(reference)
            link = await self._patiently(lambda: machine.get_preview_link(AGENT_PORT))
        scheme, _, rest = link.url.partition("://")
        headers = {"X-Daytona-Preview-Token": link.token or "", "X-Daytona-Skip-Preview-Warning": "true"}
        return BridgeEndpoint(f"{'ws' if scheme == 'http' else 'wss'}://{rest}", headers)

    async def upload(self, reference: str, files: Mapping[str, bytes], user: str) -> None:
        with translated("take the agent in", reference=reference):
            machine = await self._handle(reference)
            await machine.fs.upload_files([FileUpload(data, path) for path, data in files.items()], int(_SECONDS))

    async def run(self, reference: str, script: str, user: str) -> ScriptResult:
        command = f"sh -c {shlex.quote(script)}"
        if user != self.root:
            folder = f"/home/{user}/.paddock"
            command = f"chown -R {user} {folder} && su -s /bin/sh {user} -c {shlex.quote(script)}"
        with translated("start the agent", reference=reference):
            machine = await self._handle(reference)
            done = await machine.process.exec(command, timeout=int(_SECONDS))
            return ScriptResult(int(done.exit_code), done.result or "")

    async def _handle(self, reference: str) -> Any:
        if reference not in self._held:
            self._held[reference] = await self._patiently(lambda: self._sdk().get(reference, request_timeout=_SECONDS))
        return self._held[reference]

    def _sdk(self) -> Any:
        """Its connections belong to an event loop, so it is made in the one that uses it."""
        if self._client is None:
            _leave_signals_alone()
            self._client = AsyncDaytona(DaytonaConfig(**self._given))
        return self._client

    async def _patiently(self, ask: Any) -> Any:
        """Again, with growing pauses or as long as Daytona asks for, when it says that it cannot now."""
        pause = _FIRST_PAUSE
        for attempt in range(_RETRIES + 1):
            try:
                return await ask()
            except Exception as error:
                if status_of(error) not in _LATER or attempt == _RETRIES:
                    raise
                await asyncio.sleep(_asked_for(error) or random.uniform(pause / 2, pause))  # noqa: S311 - no secret
                pause *= 2
        raise AssertionError("unreachable")


def _leave_signals_alone() -> None:
    """The SDK's client of WebSockets takes SIGINT for itself on its first connection, and then cancels every task of
    the process: a server could not stop in order, and its warm machines stayed. A flag says that this was done."""
    try:
        client: Any = import_module("engineio.async_client")
    except ModuleNotFoundError:  # an SDK that comes without it
        return
    client.async_signal_handler_set = True


def _params(order: MachineRequest, common: dict[str, Any]) -> Any:
    if order.template_id.startswith(IMAGE):
        wanted = order.resources
        size = Size(
            cpu=math.ceil(wanted.cpu),
            memory=math.ceil(wanted.memory_mb / 1024),
            disk=math.ceil(wanted.disk_mb / 1024),
        )
        return CreateSandboxFromImageParams(image=order.template_id.removeprefix(IMAGE), resources=size, **common)
    named = {} if order.template_id == DEFAULT else {"snapshot": order.template_id}
    return CreateSandboxFromSnapshotParams(**named, **common)


def _machine(found: Any) -> VendorMachine:
    return VendorMachine(
        reference=found.id,
        state=MachineState.PAUSED if _state(found) in _ASLEEP else MachineState.RUNNING,
        metadata=dict(found.labels or {}),
        started_at=_time(found.created_at),
        cpu=float(found.cpu),
        memory_mb=int(found.memory * 1024),
    )


def _state(found: Any) -> str:
    return str(getattr(found.state, "value", found.state) or "unknown")


def _time(text: str | None) -> float:
    try:
        return datetime.fromisoformat((text or "").replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0


def _minutes(seconds: int) -> int:
    return max(1, math.ceil(seconds / 60))


def _asked_for(error: BaseException) -> float | None:
    headers = getattr(error, "headers", None) or {}
    told = next((value for name, value in headers.items() if str(name).lower() == "retry-after"), "")
    return min(float(told), _LONGEST_PAUSE) if str(told).isdigit() else None
