"""E2B behind the vendor's interface, by its official SDK and nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any, Literal

import structlog
from e2b import (
    AsyncSandbox,
    AsyncTemplate,
    CommandExitException,
    SandboxInfo,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
)

from paddock import errors
from paddock.machine.agent.bridge import BridgeEndpoint
from paddock.providers.base import IsolationLevel, IsolationReport, Layer, MachineState
from paddock.providers.e2b.failures import answered, translated
from paddock.providers.e2b.network import settings_of
from paddock.providers.vendor.base import AGENT_PORT, MachineRequest, ScriptResult, Vendor, VendorMachine

log = structlog.get_logger(__name__)

CLOUD = "e2b.app"
_RETRIES = 4
"""By the SDK, for answers that say "later": with growing pauses, or as long as E2B asks for."""
_REQUEST_SECONDS = 40.0
_SCRIPT_SECONDS = 40.0
_ID = re.compile(r"[a-z0-9]{20}")
"""What E2B's own template ids look like."""
_PAGE = 100
_MOST_PAGES = 1000
_CREATE_ATTEMPTS = 6
_FIRST_PAUSE = 0.25
_NOT_FOUND, _CONFLICT = 404, 409


class E2BVendor(Vendor):
    name = "e2b"
    title = "E2B"

    def __init__(
        self,
        api_key: str,
        *,
        template: str = "base",
        at_end: Literal["pause", "kill"] = "pause",
        api_url: str = "",
        sandbox_url: str = "",
        domain: str = "",
    ) -> None:
        """``at_end``: what E2B does with a machine whose lease nobody renews."""
        super().__init__(api_key)
        self._template = template
        self._at_end = at_end
        self._sandbox_url = sandbox_url.rstrip("/")
        self._own_cloud = not api_url and not sandbox_url and domain in ("", CLOUD)
        given = {"api_key": api_key, "api_url": api_url, "sandbox_url": sandbox_url, "domain": domain}
        self._options: dict[str, Any] = {name: value for name, value in given.items() if value}
        self._options |= {"request_timeout": _REQUEST_SECONDS, "retries": _RETRIES}
        self._handles: dict[str, AsyncSandbox] = {}
        self._tries: dict[str, int] = {}

    async def start(self) -> None:
        """A key that is refused is said at once. An E2B that does not answer may do so later: sandboxes wait for it."""
        try:
            with translated("list its machines"):
                await AsyncSandbox.list(limit=1, **self._options).next_items()
        except errors.ProviderUnavailable as error:
            log.warning("E2B does not answer", problem=error.message)

    def templates(self) -> list[str]:
        return [self._template]

    async def has_template(self, template_id: str) -> bool:
        """E2B looks up names. Whether it does ids, too, is not documented, so those are left to the create."""
        if _ID.fullmatch(template_id):
            return True
        with translated("look up a template", asking=True):
            return await AsyncTemplate.exists(template_id, **self._options)

    def isolation(self) -> IsolationReport | None:
        """Of E2B's own cloud what E2B says; of others that speak its protocol nothing is known."""
        if not self._own_cloud:
            return None
        layer = Layer("virtual machine", True, "E2B runs every sandbox in a Firecracker machine of its own.")
        return IsolationReport(IsolationLevel.HARDENED, (layer,))

    async def create(self, order: MachineRequest) -> VendorMachine:
        """Under a key that makes it one request however often it is sent, also by another server at the same time."""
        for attempt in range(_CREATE_ATTEMPTS):
            try:
                made = await self._make(order)
            except _UnderWay:
                found = await self.list(order.metadata)
                if found:
                    return found[0]
                await asyncio.sleep(_FIRST_PAUSE * 2**attempt)
                continue
            machine = await self.get(made.sandbox_id)
            if machine is not None:
                self._handles[made.sandbox_id] = made
                return machine
            self._next_try(order)  # the answer of long ago: that one was made, and deleted since
        raise errors.ProviderUnavailable("E2B has not made the machine yet that it was asked for before.")

    async def _make(self, order: MachineRequest) -> AsyncSandbox:
        wishes = settings_of(order.egress)
        with translated("make a machine"):
            try:
                return await AsyncSandbox.create(
                    template=order.template_id,
                    timeout=order.lease,
                    metadata=dict(order.metadata),
                    lifecycle={"on_timeout": self._at_end, "auto_resume": False},
                    idempotency_key=self._idempotency_key(order),
                    **wishes,
                    **self._options,
                )
            except Exception as error:
                status = getattr(error, "status_code", None)
                if status == _CONFLICT:
                    raise _UnderWay("E2B is making this machine already.") from error
                if answered(error):  # an answer is remembered there: the next try must not hear it again
                    self._next_try(order)
                if status == _NOT_FOUND:
                    raise errors.TemplateNotFound(f"E2B has no template {order.template_id!r}.") from error
                raise

    async def get(self, reference: str) -> VendorMachine | None:
        with translated("look at a machine", asking=True):
            try:
                return _machine(await AsyncSandbox.get_info(reference, **self._options))
            except SandboxNotFoundException:
                return None

    async def list(self, metadata: Mapping[str, str]) -> list[VendorMachine]:
        query = SandboxQuery(metadata=dict(metadata), state=[SandboxState.RUNNING, SandboxState.PAUSED])
        found: list[VendorMachine] = []
        with translated("list its machines", asking=True):
            pages = AsyncSandbox.list(query=query, limit=_PAGE, **self._options)
            for _ in range(_MOST_PAGES):
                found += [_machine(info) for info in await pages.next_items()]
                if not pages.has_next:
                    break
            else:
                raise errors.ProviderUnavailable("E2B's list of machines does not end.")
        # What was asked for is checked: a service that does not know the filter would show others' machines.
        return [machine for machine in found if metadata.items() <= machine.metadata.items()]

    async def pause(self, reference: str, *, keep_memory: bool) -> None:
        self._handles.pop(reference, None)
        with translated("pause a machine", reference=reference):
            await AsyncSandbox.pause(reference, mode="full" if keep_memory else "filesystem", **self._options)

    async def resume(self, reference: str, lease: int) -> None:
        with translated("resume a machine", reference=reference):
            self._handles[reference] = await AsyncSandbox.connect(reference, timeout=lease, **self._options)

    async def renew(self, reference: str, lease: int) -> None:
        with translated("renew a lease", reference=reference):
            await AsyncSandbox.set_timeout(reference, lease, **self._options)

    async def delete(self, reference: str) -> None:
        self._handles.pop(reference, None)
        with translated("delete a machine", reference=reference):
            await AsyncSandbox.kill(reference, **self._options)

    async def endpoint(self, reference: str) -> BridgeEndpoint:
        handle = await self._handle(reference)
        headers = {}
        if handle.traffic_access_token:
            headers["E2B-Traffic-Access-Token"] = handle.traffic_access_token
        if not self._sandbox_url:
            return BridgeEndpoint(f"wss://{handle.get_host(AGENT_PORT)}", headers)
        scheme, _, rest = self._sandbox_url.partition("://")
        url = f"{'ws' if scheme == 'http' else 'wss'}://{rest}"
        return BridgeEndpoint(url, {**headers, "E2b-Sandbox-Id": reference, "E2b-Sandbox-Port": str(AGENT_PORT)})

    async def upload(self, reference: str, files: Mapping[str, bytes], user: str) -> None:
        handle = await self._handle(reference)
        with translated("take the agent in", reference=reference):
            await handle.files.write_files([{"path": path, "data": data} for path, data in files.items()], user=user)

    async def run(self, reference: str, script: str, user: str) -> ScriptResult:
        handle = await self._handle(reference)
        with translated("start the agent", reference=reference):
            try:
                done = await handle.commands.run(script, user=user, timeout=_SCRIPT_SECONDS)
            except CommandExitException as error:
                return ScriptResult(error.exit_code, error.stdout + error.stderr)
            return ScriptResult(done.exit_code, done.stdout + done.stderr)

    async def _handle(self, reference: str) -> AsyncSandbox:
        """Of a machine that runs: to ask for one makes a paused one run."""
        handle = self._handles.get(reference)
        if handle is None:
            with translated("reach a machine", reference=reference):
                # Never shortens what it has left; a lease is longer.
                handle = await AsyncSandbox.connect(reference, timeout=1, **self._options)
            self._handles[reference] = handle
        return handle

    def _idempotency_key(self, order: MachineRequest) -> str:
        wanted = f"{order.metadata} {self._tries.get(order.sandbox_id, 0)}"
        return hmac.new(self._key.encode(), f"create {wanted}".encode(), hashlib.sha256).hexdigest()

    def _next_try(self, order: MachineRequest) -> None:
        self._tries[order.sandbox_id] = self._tries.get(order.sandbox_id, 0) + 1


class _UnderWay(errors.ProviderUnavailable):
    """The same request has come before, and has no answer yet; or another answer than this request would have."""


def _machine(info: SandboxInfo) -> VendorMachine:
    return VendorMachine(
        reference=info.sandbox_id,
        state=MachineState.PAUSED if info.state is SandboxState.PAUSED else MachineState.RUNNING,
        metadata=info.metadata,
        started_at=info.started_at.timestamp(),
        cpu=float(info.cpu_count),
        memory_mb=info.memory_mb,
    )
