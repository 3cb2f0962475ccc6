"""A conversation and its sandbox, on a real server."""

from __future__ import annotations

import asyncio
import inspect
import secrets
from collections.abc import Iterator

import pytest

from paddock import errors
from paddock.client import SandboxClient, SyncSandboxClient
from paddock.session import AtExit, LocalSandbox, SandboxSession, SyncSandboxSession, create_sandbox
from paddock.session.session import SandboxMethod, SandboxStreamMethod, SessionOperations
from tests.e2b.server import PaddockServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # the first one waits for a server to start


@pytest.fixture
def chat() -> Iterator[str]:
    """An id that nobody had before; its sandboxes end with the test."""
    session_id = f"chat_{secrets.token_hex(4)}"
    yield session_id
    with SyncSandboxClient() as client:
        for box in list(client.iter_sandboxes()):
            if box.metadata.get("paddock.session") == session_id:
                client.delete_sandbox(box.sandbox_id)


def status_of(sandbox_id: str) -> str:
    with SyncSandboxClient() as client:
        return client.get_status(sandbox_id).status


async def test_a_session_finds_its_sandbox_again(chat: str) -> None:
    async with await SandboxSession.create(session_id=chat) as session:
        await session.write_file("/workspace/note", "remember me")
    async with await SandboxSession.create(session_id=chat) as again:
        assert again.sandbox_id == session.sandbox_id
        assert (await again.run("cat note")).stdout == "remember me"


def test_the_sync_twin_finds_the_same_sandbox(chat: str) -> None:
    with SyncSandboxSession.create(session_id=chat) as session:
        session.write_file("/workspace/note", "remember me")
        assert [event.type for event in session.stream_command("cat note")] == ["started", "output", "exit"]

    async def again() -> str:
        async with await SandboxSession.create(session_id=chat) as twin:
            return await twin.read_file("/workspace/note")

    assert asyncio.run(again()) == "remember me"


async def test_sessions_of_other_ids_and_other_users_are_others(chat: str) -> None:
    mine = await SandboxSession.create(session_id=chat, user_id="alice")
    hers = await SandboxSession.create(session_id=chat, user_id="bob")
    other = await SandboxSession.create(session_id=f"{chat}_2", user_id="alice", at_exit="delete")
    try:
        assert len({mine.sandbox_id, hers.sandbox_id, other.sandbox_id}) == 3
        assert mine.sandbox_id.startswith("alice_") and hers.sandbox_id.startswith("bob_")
    finally:
        for session in (mine, hers, other):
            await session.close()


async def test_a_session_survives_the_death_of_the_server(chat: str, server: PaddockServer) -> None:
    async with await SandboxSession.create(session_id=chat) as session:
        await session.write_file("/workspace/note", "remember me")
    await asyncio.to_thread(server.restart)
    async with await SandboxSession.create(session_id=chat) as again:
        assert again.sandbox_id == session.sandbox_id
        assert await again.read_file("/workspace/note") == "remember me"


async def test_many_who_ask_at_once_get_one_sandbox(chat: str) -> None:
    sessions = await asyncio.gather(*(SandboxSession.create(session_id=chat) for _ in range(5)))
    assert len({session.sandbox_id for session in sessions}) == 1
    for session in sessions:
        await session.close()


async def test_of_two_that_differ_in_their_options_the_older_stays(chat: str) -> None:
    options: list[dict[str, str]] = [{"A": "1"}, {"A": "2"}]
    sessions = await asyncio.gather(*(SandboxSession.create(session_id=chat, env=env) for env in options))
    again = await SandboxSession.create(session_id=chat)
    assert {session.sandbox_id for session in sessions} == {again.sandbox_id}
    for session in (*sessions, again):
        await session.close()


async def test_after_its_sandbox_was_deleted_a_session_begins_anew(chat: str) -> None:
    seen = set()
    for _ in range(3):
        async with await SandboxSession.create(session_id=chat, at_exit=AtExit.DELETE) as session:
            assert (await session.run("ls")).stdout == ""
            await session.write_file("/workspace/note", "forget me")
            seen.add(session.sandbox_id)
    assert len(seen) == 3


async def test_a_paused_session_wakes(chat: str) -> None:
    async with await SandboxSession.create(session_id=chat, at_exit="pause") as session:
        await session.write_file("/workspace/note", "remember me")
    assert status_of(session.sandbox_id) == "paused"
    async with await SandboxSession.create(session_id=chat) as again:
        assert again.sandbox.status == "running"
        assert await again.read_file("/workspace/note") == "remember me"
    assert status_of(session.sandbox_id) == "running"


async def test_a_session_without_a_name_ends_with_its_block() -> None:
    with pytest.raises(ZeroDivisionError):
        async with await SandboxSession.create() as session:
            raise ZeroDivisionError
    assert status_of(session.sandbox_id) == "deleted"


def test_the_same_for_the_sync_twin() -> None:
    with SyncSandboxSession.create() as session:
        session.delete()
    assert status_of(session.sandbox_id) == "deleted"


async def test_what_was_asked_for_reaches_the_sandbox(chat: str) -> None:
    async with await SandboxSession.create(
        session_id=chat, timeout=1234, env={"GREETING": "hello"}, metadata={"team": "blue"}
    ) as session:
        assert session.sandbox.timeout == 1234
        assert session.sandbox.metadata == {"team": "blue", "paddock.session": chat}
        assert (await session.run("echo $GREETING")).stdout == "hello\n"


async def test_a_client_that_was_lent_stays_open(chat: str) -> None:
    async with SandboxClient() as client:
        async with await SandboxSession.create(session_id=chat, client=client) as session:
            await session.run("true")
        assert (await client.get_status(session.sandbox_id)).status == "running"


async def test_a_sandbox_that_another_account_named_alike_is_not_adopted(chat: str, server: PaddockServer) -> None:
    """Or an admin's agent could be lured into a sandbox whose owner reads along."""
    mallory = f"mallory-{secrets.token_hex(4)}"
    with SyncSandboxClient() as admin:
        admin.create_user(mallory)
        key = admin.create_key("laptop", user_id=mallory).key
    with SyncSandboxClient(server.url, api_key=key) as theirs:
        planted = theirs.create_sandbox("agent", metadata={"paddock.session": chat})
    async with await SandboxSession.create(session_id=chat) as session:
        assert session.sandbox_id != planted.sandbox_id


@pytest.mark.parametrize("wrong", [{"session_id": ""}, {"session_id": "x" * 501}, {"at_exit": "explode"}])
async def test_what_makes_no_sense_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(errors.Invalid):
        await SandboxSession.create(**wrong)  # type: ignore[arg-type]


async def test_a_provider_can_be_chosen(chat: str) -> None:
    async with await create_sandbox(provider="local", session_id=chat) as session:
        assert isinstance(session, LocalSandbox)
        assert session.sandbox.provider == "local"
    async with await LocalSandbox.create(session_id=chat) as again:
        assert again.sandbox_id == session.sandbox_id


async def test_a_provider_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(errors.PaddockError, match="nonesuch"):
        await (await create_sandbox(provider="nonesuch")).create()
    with pytest.raises(errors.PaddockError, match="nonesuch"):
        await create_sandbox(provider="nonesuch", session_id="chat_nonesuch")


def test_a_session_has_the_words_of_the_client() -> None:
    for name, method in vars(SessionOperations).items():
        if isinstance(method, SandboxMethod | SandboxStreamMethod):
            twins = (getattr(SandboxSession, name), getattr(SyncSandboxSession, name))
            assert all(next(iter(inspect.signature(twin).parameters)) == "sandbox_id" for twin in twins)
