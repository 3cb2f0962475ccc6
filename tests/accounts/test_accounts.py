"""Accounts: keys shown once, roles that hold, and never nobody in charge."""

from __future__ import annotations

import pytest

from paddock.errors import AlreadyExists, Conflict, Forbidden, KeyNotFound, Unauthorized, UserNotFound
from paddock.models import ChangeUser, CreateKey, CreateUser, QuotaChange, Role
from tests.support.world import World


async def test_a_revoked_key_opens_nothing(world: World) -> None:
    accounts = world.context.accounts
    key, secret = await accounts.create_key(world.alice, CreateKey(name="laptop"))
    assert (await accounts.authenticate(secret)).user_id == "alice"
    await accounts.revoke_key(world.alice, key.key_id)
    with pytest.raises(Unauthorized):
        await accounts.authenticate(secret)
    with pytest.raises(KeyNotFound):
        await accounts.revoke_key(world.alice, key.key_id)


async def test_a_key_revoked_by_another_server_dies_within_seconds(world: World) -> None:
    accounts = world.context.accounts
    key, secret = await accounts.create_key(world.alice, CreateKey(name="laptop"))
    await accounts.authenticate(secret)
    other = world.another_house().accounts
    other._store = world.context.store
    await other.revoke_key(world.alice, key.key_id)
    await world.pass_time(6)
    with pytest.raises(Unauthorized):
        await accounts.authenticate(secret)


async def test_members_act_for_themselves_only(world: World) -> None:
    accounts, alice = world.context.accounts, world.alice
    for refused in (
        accounts.create_key(alice, CreateKey(name="x", user_id="bob")),
        accounts.create_key(alice, CreateKey(name="x", role=Role.ADMIN)),
        accounts.create_user(alice, CreateUser(user_id="carol")),
        accounts.list_users(alice),
        accounts.get_user(alice, "bob"),
        accounts.change_user(alice, "alice", ChangeUser(role=Role.ADMIN)),
    ):
        with pytest.raises(Forbidden):
            await refused
    assert {key.user_id for key in await accounts.list_keys(alice)} == {"alice"}
    assert len({key.user_id for key in await accounts.list_keys(world.admin)}) > 1
    bobs = next(key for key in await accounts.list_keys(world.admin) if key.user_id == "bob")
    with pytest.raises(KeyNotFound):
        await accounts.revoke_key(alice, bobs.key_id)


async def test_a_disabled_user_is_out_at_once_and_can_come_back(world: World) -> None:
    accounts = world.context.accounts
    _, secret = await accounts.create_key(world.admin, CreateKey(name="carol"))
    await accounts.authenticate(secret)
    await accounts.change_user(world.admin, "carol", ChangeUser(disabled=True))
    with pytest.raises(Unauthorized):
        await accounts.authenticate(secret)
    await accounts.change_user(world.admin, "carol", ChangeUser(disabled=False))
    assert (await accounts.authenticate(secret)).user_id == "carol"


async def test_there_is_always_an_admin(world: World) -> None:
    for change in (ChangeUser(role=Role.MEMBER), ChangeUser(disabled=True)):
        with pytest.raises(Conflict, match="admin"):
            await world.context.accounts.change_user(world.admin, "admin", change)
    assert (await world.context.accounts.get_user(world.admin, "admin")).role is Role.ADMIN


async def test_quotas_are_the_servers_until_they_are_the_users_own(world: World) -> None:
    accounts = world.context.accounts
    alice = await accounts.get_user(world.alice, "alice")
    assert accounts.quota_of(alice).max_live == world.settings.quota_live
    changed = await accounts.change_user(world.admin, "alice", ChangeUser(quota=QuotaChange(max_live=7)))
    assert accounts.quota_of(changed).max_live == 7
    back = await accounts.change_user(world.admin, "alice", ChangeUser(quota=QuotaChange(max_live=None)))
    assert accounts.quota_of(back).max_live == world.settings.quota_live
    assert accounts.quota_of(await accounts.get_user(world.admin, "admin")).max_live == 0


async def test_users_are_made_once_and_known_or_not(world: World) -> None:
    accounts = world.context.accounts
    await accounts.create_user(world.admin, CreateUser(user_id="carol", role=Role.ADMIN))
    with pytest.raises(AlreadyExists):
        await accounts.create_user(world.admin, CreateUser(user_id="carol"))
    with pytest.raises(UserNotFound):
        await accounts.change_user(world.admin, "nobody", ChangeUser(disabled=True))
    with pytest.raises(Conflict, match="PATCH"):
        await accounts.create_key(world.admin, CreateKey(name="k", user_id="carol", role=Role.MEMBER))
