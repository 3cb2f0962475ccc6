"""A request that was let into a sandbox, with all that the services need to act there."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.api.compat.e2b.envd.connect import Code, ConnectError
from paddock.api.compat.e2b.envd.http import Exchange
from paddock.api.compat.e2b.envd.users import Account, Accounts, BadPath, UnknownUser, basic_user
from paddock.api.in_flight import holding_of
from paddock.lifecycle.controller import Use
from paddock.lifecycle.house import House
from paddock.lifecycle.in_flight import Holding
from paddock.machine.base import DEFAULT_USER, Machine
from paddock.store.records import Sandbox
from paddock.workers import Workers


@dataclass(frozen=True, slots=True)
class Inside:
    house: House
    use: Use
    exchange: Exchange
    accounts: Accounts

    @property
    def machine(self) -> Machine:
        return self.use.machine

    @property
    def sandbox(self) -> Sandbox:
        return self.use.sandbox

    @property
    def holding(self) -> Holding:
        """The memory that this request takes."""
        return holding_of(self.exchange.scope, self.house.in_flight)

    @property
    def workers(self) -> Workers:
        return self.house.workers.of(self.sandbox.owner_id)

    def environment(self) -> dict[str, str]:
        """What every process of the sandbox is told, beside what belongs to its user."""
        return {
            "E2B_SANDBOX": "true",
            "E2B_SANDBOX_ID": self.sandbox.key,
            "E2B_TEMPLATE_ID": self.sandbox.template_id,
            **self.sandbox.env,
        }

    async def account(self) -> Account:
        """The user that the caller has named, or the one that every sandbox has."""
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
