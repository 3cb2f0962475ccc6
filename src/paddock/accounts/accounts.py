"""Users and API keys: authentication, roles and quotas."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import structlog
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from paddock.accounts import quotas
from paddock.accounts.quotas import Quota
from paddock.clock import Clock
from paddock.egress.bandwidth import MEGABIT_BYTES
from paddock.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    KeyNotFound,
    QuotaExceeded,
    StoreUnavailable,
    Unauthorized,
    UserNotFound,
)
from paddock.ids import hash_api_key, key_prefix, new_api_key
from paddock.models import ChangeUser, CreateKey, CreateUser, QuotaChange, Role
from paddock.settings import Settings
from paddock.store import accounts
from paddock.store.database import Store
from paddock.store.records import ApiKey, SandboxRow, UserRow

log = structlog.get_logger(__name__)

_AUTH_CACHE_TTL_S = 5.0
"""How long a principal is cached, and so how long another replica may still accept a key that was revoked here."""
_LAST_USED_INTERVAL_S = 60.0
MOST_KEYS = 100
"""For members; an admin can create more keys for them."""


@dataclass(frozen=True, slots=True)
class Principal:
    user_id: str
    role: Role
    key_id: int
    quota: Quota

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN


class Accounts:
    def __init__(self, settings: Settings, clock: Clock, store: Store) -> None:
        self._settings = settings
        self._clock = clock
        self._store = store
        self._known: dict[str, tuple[float, Principal]] = {}
        """Cached principals by key digest, with the time of the lookup."""
        self._standing: dict[str, tuple[float, Principal]] = {}
        """Cached principals by user id, for callers that authenticate with a ticket or a sandbox token instead of a
        key."""
        self._notes: set[asyncio.Task[None]] = set()

    async def check_writable(self) -> None:
        """Raises if the database is read-only."""
        await self._store.check_writable()

    async def authenticate(self, api_key: str) -> Principal:
        digest = hash_api_key(api_key)
        now = self._clock.now()
        known = self._known.get(digest)
        if known is not None and 0 <= now - known[0] < _AUTH_CACHE_TTL_S:
            return known[1]
        async with self._store.read() as connection:
            found = await accounts.by_digest(connection, digest)
        if found is None or found[1].disabled:
            self._known.pop(digest, None)
            raise Unauthorized(
                "This API key is not known here, or was revoked. `paddock keys create NAME` makes a new one."
            )
        key, user = found
        principal = Principal(user.user_id, user.role, key.key_id, self.quota_of(user))
        if len(self._known) > 10_000:
            self._known.clear()
        self._known[digest] = (now, principal)
        if key.last_used_at is None or now - key.last_used_at >= _LAST_USED_INTERVAL_S:
            note = asyncio.create_task(self._note_use(key, now))
            self._notes.add(note)
            note.add_done_callback(self._notes.discard)
        return principal

    async def stand_for(self, user_id: str) -> Principal:
        """The principal of the user who made a ticket, or who owns the sandbox that a token opens."""
        now = self._clock.now()
        known = self._standing.get(user_id)
        if known is not None and 0 <= now - known[0] < _AUTH_CACHE_TTL_S:
            return known[1]
        async with self._store.read() as connection:
            user = await accounts.user(connection, user_id)
        if user is None or user.disabled:
            raise Unauthorized("The user who made this ticket may not use Paddock any more.")
        principal = Principal(user.user_id, user.role, key_id=0, quota=self.quota_of(user))
        if len(self._standing) > 10_000:
            self._standing.clear()
        self._standing[user_id] = (now, principal)
        return principal

    async def quota_for(self, user_id: str) -> Quota:
        """The quota of a sandbox's owner; no limits if that user no longer exists."""
        return (await self.owner(user_id)).quota

    async def owner(self, user_id: str) -> Principal:
        """The principal that a sandbox's usage is charged to; also for a user who is disabled or no longer exists."""
        try:
            return await self.stand_for(user_id)
        except Unauthorized:  # deleted or disabled; limits still apply to the user's running sandboxes
            async with self._store.read() as connection:
                user = await accounts.user(connection, user_id)
            quota = Quota() if user is None else self.quota_of(user)
            return Principal(user_id, Role.MEMBER, key_id=0, quota=quota)

    async def bytes_per_second(self, user_id: str) -> float:
        """Bandwidth limit of all the user's sandboxes together; 0 means no limit."""
        return (await self.quota_for(user_id)).max_bandwidth_mbit * MEGABIT_BYTES

    async def close(self) -> None:
        """Wait until pending writes of last use are done."""
        await asyncio.gather(*self._notes)

    async def create_key(self, who: Principal, request: CreateKey) -> tuple[ApiKey, str]:
        """Members create keys for themselves. Admins create keys for any user, and the user too if it does
        not exist."""
        user_id = request.user_id or (request.name if who.is_admin else who.user_id)
        if user_id != who.user_id or request.role is not None:
            _admins_only(who, "make keys for other users")
        secret, now = new_api_key(), self._clock.now()
        async with self._store.write() as connection:
            user = await accounts.user(connection, user_id, lock=True)
            if not who.is_admin and len(await accounts.keys(connection, user_id)) >= MOST_KEYS:
                raise QuotaExceeded(
                    f"You may have {MOST_KEYS} keys. Revoke one that is not used any more, or ask an admin for more.",
                    details={"quota": "keys", "limit": MOST_KEYS, "wanted": MOST_KEYS + 1},
                )
            if user is None:
                role = request.role or Role.MEMBER
                await accounts.add_user(connection, _new_user(user_id, role, QuotaChange(), now))
            elif request.role is not None and request.role is not user.role:
                raise Conflict(
                    f"User {user_id!r} is {user.role.value} already; change that with PATCH /users/{user_id}."
                )
            key = await accounts.add_key(
                connection,
                digest=hash_api_key(secret),
                name=request.name,
                user_id=user_id,
                prefix=key_prefix(secret),
                created_at=now,
            )
        return key, secret

    async def list_keys(self, who: Principal) -> list[ApiKey]:
        async with self._store.read() as connection:
            return await accounts.keys(connection, None if who.is_admin else who.user_id)

    async def revoke_key(self, who: Principal, key_id: int) -> None:
        async with self._store.write() as connection:
            if not await accounts.remove_key(connection, key_id, None if who.is_admin else who.user_id):
                raise KeyNotFound(f"There is no key {key_id} that you may revoke.")
        self._known.clear()

    async def create_user(self, who: Principal, request: CreateUser) -> UserRow:
        """Create a user. A user that exists only because a key was created for it takes its role and quota from this
        request: operators create the key first as often as the user."""
        _admins_only(who, "make users")
        user_id = request.user_id
        user = _new_user(user_id, request.role, request.quota, self._clock.now())
        values = request.model_dump(include={"role"}, exclude_unset=True)
        values |= request.quota.model_dump(exclude_unset=True)
        try:
            async with self._store.write() as connection:
                found = await accounts.user(connection, user_id, lock=True)
                if found is None:
                    await accounts.add_user(connection, user)
                elif values and _is_untouched(found):
                    await accounts.change_user(connection, user_id, values)
                    user = replace(found, **values)
                else:
                    raise _exists(user_id)
        except IntegrityError:
            raise _exists(user_id) from None
        self._forget_known()
        return user

    async def list_users(self, who: Principal) -> list[UserRow]:
        _admins_only(who, "list users")
        async with self._store.read() as connection:
            return await accounts.all_users(connection)

    async def get_user(self, who: Principal, user_id: str) -> UserRow:
        if user_id != who.user_id:
            _admins_only(who, "look at other users")
        async with self._store.read() as connection:
            user = await accounts.user(connection, user_id)
        if user is None:
            raise UserNotFound(f"There is no user {user_id!r}.")
        return user

    async def change_user(self, who: Principal, user_id: str, request: ChangeUser) -> UserRow:
        _admins_only(who, "change users")
        values = request.model_dump(exclude_unset=True, exclude={"quota"}, exclude_none=True)
        if request.quota is not None:
            values |= request.quota.model_dump(exclude_unset=True)
        async with self._store.write() as connection:
            found = await accounts.user(connection, user_id, lock=True)
            if found is None:
                raise UserNotFound(f"There is no user {user_id!r}.")
            await accounts.change_user(connection, user_id, values)
            if found.role is Role.ADMIN and not found.disabled:
                await _keep_an_admin(connection)
            changed = await accounts.user(connection, user_id)
        self._forget_known()
        if changed is None:
            raise UserNotFound(f"There is no user {user_id!r}.")
        return changed

    def quota_of(self, user: UserRow) -> Quota:
        """The user's own limits, else the server's defaults. Admins have no default limits."""
        return quotas.quota_of(user, self._settings)

    async def check_quota(self, connection: AsyncConnection, sandbox: SandboxRow) -> None:
        """Raise QuotaExceeded if starting this sandbox would exceed its owner's quota or the server's limit. Locks the
        owner's row, so that two concurrent creates cannot both take the last slot."""
        user = await accounts.user(connection, sandbox.owner_id, lock=True)
        if user is not None:
            await quotas.check_user(connection, self.quota_of(user), sandbox)
        await quotas.check_all(connection, self._settings, sandbox)

    def _forget_known(self) -> None:
        self._known.clear()
        self._standing.clear()

    async def _note_use(self, key: ApiKey, now: float) -> None:
        """Record the key's last use. Runs as a background task, so that no request waits for the write."""
        try:
            async with self._store.write() as connection:
                await accounts.note_use(connection, key.key_id, now)
        except StoreUnavailable:
            log.warning("the last use of a key could not be noted", key_id=key.key_id)


def _admins_only(who: Principal, what: str) -> None:
    if not who.is_admin:
        raise Forbidden(f"Only an admin may {what}.")


async def _keep_an_admin(connection: AsyncConnection) -> None:
    users = await accounts.all_users(connection)
    if not any(user.role is Role.ADMIN and not user.disabled for user in users):
        raise Conflict("This would leave nobody who may administer Paddock. Make another admin first.")


def _exists(user_id: str) -> AlreadyExists:
    return AlreadyExists(f"There is a user {user_id!r} already; change it with PATCH /users/{user_id}.")


def _is_untouched(user: UserRow) -> bool:
    """Whether the user is still as its first key created it. False for an admin, whom a default must not demote."""
    return user.role is Role.MEMBER and user == _new_user(user.user_id, Role.MEMBER, QuotaChange(), user.created_at)


def _new_user(user_id: str, role: Role, quota: QuotaChange, now: float) -> UserRow:
    return UserRow(
        user_id=user_id,
        role=role,
        disabled=False,
        created_at=now,
        **quota.model_dump(),
    )
