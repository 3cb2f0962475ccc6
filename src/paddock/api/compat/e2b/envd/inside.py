"""An authenticated request to a sandbox, with everything that envd's services need to act there."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass

from paddock import errors
from paddock.accounts.byte_budget import Reservation
from paddock.api.byte_accounting import holding_of
from paddock.api.compat.e2b.envd.connect import Code, ConnectError
from paddock.api.compat.e2b.envd.http import EnvdExchange
from paddock.api.compat.e2b.envd.users import ROOT, Account, BadPath, PasswdAccounts, UnknownUser, basic_user
from paddock.lifecycle.controller import ActiveSandbox
from paddock.machine.base import DEFAULT_USER, Machine
from paddock.server.context import ServerContext
from paddock.store.records import SandboxRow
from paddock.workers import Workers

FOLDER = "/run/e2b"
_MAX_MARKED = 10_000


class MarkerFiles:
    """Written once after each start of a sandbox, because a restart may have removed them."""

    def __init__(self) -> None:
        self._put: OrderedDict[tuple[str, float | None], None] = OrderedDict()

    async def put(self, inside: EnvdContext) -> None:
        start = (inside.sandbox.sandbox_id, inside.sandbox.started_at)
        if start in self._put:
            return
        self._put[start] = None
        if len(self._put) > _MAX_MARKED:
            self._put.popitem(last=False)
        texts = {
            "E2B_SANDBOX": "true",
            "E2B_SANDBOX_ID": inside.sandbox.key,
            "E2B_TEMPLATE_ID": inside.sandbox.template_id,
        }
        await asyncio.gather(*(_write(inside, f"{FOLDER}/.{name}", text) for name, text in texts.items()))


async def _write(inside: EnvdContext, path: str, text: str) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield text.encode()

    try:
        await inside.machine.write_file(path, content(), user=ROOT)
    except (errors.PathConflict, errors.PathDenied):
        return  # the disk is full, or the path is taken: run the command anyway


@dataclass(frozen=True, slots=True)
class EnvdContext:
    context: ServerContext
    use: ActiveSandbox
    exchange: EnvdExchange
    accounts: PasswdAccounts

    @property
    def machine(self) -> Machine:
        return self.use.machine

    @property
    def sandbox(self) -> SandboxRow:
        return self.use.sandbox

    @property
    def holding(self) -> Reservation:
        """The memory reserved for this request."""
        return holding_of(self.exchange.scope, self.context.in_flight)

    @property
    def workers(self) -> Workers:
        return self.context.workers.of(self.sandbox.owner_id)

    def environment(self) -> dict[str, str]:
        """Environment of every process, without the variables of its user."""
        return {
            "E2B_SANDBOX": "true",
            "E2B_SANDBOX_ID": self.sandbox.key,
            "E2B_TEMPLATE_ID": self.sandbox.template_id,
            **self.sandbox.env,
        }

    async def account(self) -> Account:
        """The user that the request names, or the sandbox's default user."""
        name = basic_user(self.exchange.headers.get("authorization", "")) or DEFAULT_USER
        try:
            return await self.accounts.find(self.machine, name)
        except UnknownUser as unknown:
            raise ConnectError(Code.UNAUTHENTICATED, str(unknown)) from None

    async def viewer(self, account: Account) -> str:
        return await self.accounts.viewer(self.machine, account)


def resolved(account: Account, path: str) -> str:
    try:
        return account.resolve(path)
    except BadPath as bad:
        raise ConnectError(Code.INVALID_ARGUMENT, str(bad)) from None
