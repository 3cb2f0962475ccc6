"""The link: many requests over one connection, made again when it is lost, but nothing is done twice."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct

import pytest

from paddock import errors
from paddock.machine.agent import AgentMachine
from paddock.machine.agent.wire import ReplyKind, RequestKind
from paddock.machine.base import ProcessSpec
from tests.machine.peer import HEADER, PROCESS, SPEC, Peer, agent_that, answer_all, data, plain_answer, process, text
from tests.support.waiting import PATIENCE_S


async def hang_up(peer: Peer) -> None:
    await peer.next()


async def test_a_link_lost_between_two_requests_is_made_again() -> None:
    async def one_answer(peer: Peer) -> None:
        asked = await peer.next()
        await peer.say(asked, *plain_answer(asked))

    async with agent_that(one_answer, answer_all) as scene:
        await scene.machine.processes()
        await scene.peers[0].gone.wait()
        await scene.machine.signal(PROCESS, 15)
        assert [peer.asked[-1].kind for peer in scene.peers] == [RequestKind.PROCESSES, RequestKind.SIGNAL]


async def test_what_may_be_done_twice_is_asked_again_once() -> None:
    async with agent_that(hang_up, answer_all) as scene:
        assert (await scene.machine.spawn(SPEC)).running
        assert len(scene.peers) == 2
    async with agent_that(hang_up, answer_all) as scene:
        assert not (await scene.machine.wait(PROCESS)).running
    async with agent_that(hang_up) as scene:
        with pytest.raises(errors.ProviderUnavailable, match="closed"):
            await scene.machine.spawn(SPEC)
        assert len(scene.peers) == 2


async def test_what_must_not_be_done_twice_is_not_asked_again() -> None:
    for act in (
        lambda machine: machine.signal(PROCESS, 9),
        lambda machine: machine.write_stdin(PROCESS, b"x"),
        lambda machine: machine.remove("/workspace/file"),
        lambda machine: machine.move("/workspace/a", "/workspace/b"),
    ):
        async with agent_that(hang_up, answer_all) as scene:
            with pytest.raises(errors.ProviderUnavailable, match="closed"):
                await act(scene.machine)
            assert len(scene.peers) == 1


async def test_a_follower_goes_on_over_a_new_link_where_it_was() -> None:
    async def first(peer: Peer) -> None:
        await peer.say(await peer.next(), ReplyKind.DATA, data(1, 0, b"before "))

    async def second(peer: Peer) -> None:
        asked = await peer.next()
        assert struct.unpack_from("<QQ", asked.payload, len(asked.payload) - 16) == (7, 0)
        await peer.say(asked, ReplyKind.DATA, data(1, 7, b"after"))
        await peer.say(asked, ReplyKind.ENDED, process(PROCESS, 2, 0, 12))
        await peer.closed()

    async with agent_that(first, second) as scene:
        given = [chunk.data async for chunk in scene.machine.follow(PROCESS)]
        assert b"".join(given) == b"before after"


async def test_a_command_goes_on_being_waited_for_over_a_new_link() -> None:
    async def first(peer: Peer) -> None:
        asked = await peer.next()
        await peer.say(asked, ReplyKind.PROCESS, process(PROCESS))
        await peer.say(asked, ReplyKind.DATA, data(1, 0, b"half"))

    async def second(peer: Peer) -> None:
        await peer.say(await peer.until(RequestKind.WAIT), ReplyKind.ENDED, process(PROCESS, 2, 0, 8))
        await peer.say(await peer.until(RequestKind.READ_OUTPUT), ReplyKind.OUTPUT, bytes(8) + text("half and"))
        await peer.closed()

    async with agent_that(first, second) as scene:
        info, stdout, _ = await scene.machine.run(SPEC, 5)
        assert (info.exit_code, stdout.data) == (0, b"half and")


async def test_a_watch_ends_with_an_error_when_the_link_is_lost() -> None:
    async def script(peer: Peer) -> None:
        await peer.say(await peer.next(), ReplyKind.OK)

    async with agent_that(script) as scene, scene.machine.watch("/workspace") as events:
        with pytest.raises(errors.ProviderUnavailable):
            await anext(events)


async def test_a_machine_that_was_closed_says_so() -> None:
    async with agent_that(answer_all) as scene:
        waiting = asyncio.create_task(scene.machine.wait(PROCESS))
        await scene.machine.processes()
        await scene.machine.aclose()
        with pytest.raises(errors.ProviderUnavailable):
            await scene.machine.processes()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_a_sandbox_that_cannot_be_connected_to_says_so() -> None:
    async def connect() -> socket.socket:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    machine = AgentMachine("tester_00000000", connect, dict)
    with pytest.raises(errors.ProviderUnavailable, match="refused"):
        await machine.processes()


async def test_many_who_need_a_link_wait_for_the_same_one_and_fail_together() -> None:
    attempts = 0

    async def connect() -> socket.socket:
        nonlocal attempts
        attempts += 1
        await asyncio.Event().wait()
        raise AssertionError

    machine = AgentMachine("tester_00000000", connect, dict, reply_seconds=0.1)
    async with asyncio.timeout(PATIENCE_S):
        results = await asyncio.gather(*(machine.processes() for _ in range(50)), return_exceptions=True)
    assert {type(result) for result in results} == {errors.ProviderTimeout}
    assert attempts == 1


async def test_closing_while_connecting_ends_all_who_wait_with_an_error() -> None:
    connecting = asyncio.Event()

    async def connect() -> socket.socket:
        connecting.set()
        await asyncio.Event().wait()
        raise AssertionError

    machine = AgentMachine("tester_00000000", connect, dict)
    waiting = [asyncio.create_task(machine.processes()) for _ in range(3)]
    await connecting.wait()
    waiting[0].cancel()
    await machine.aclose()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(result) for result in results] == [
        asyncio.CancelledError, errors.ProviderUnavailable, errors.ProviderUnavailable,
    ]  # fmt: skip


async def test_many_requests_at_once_each_get_their_own_answer() -> None:
    async def shuffled(peer: Peer) -> None:
        waiting = [await peer.next() for _ in range(200)]
        frames = b""
        for asked in reversed(waiting):
            body = process(asked.first_text)
            frames += HEADER.pack(len(body), ReplyKind.PROCESS, 0, 0, asked.number) + body
        await peer.send(frames)
        await peer.closed()

    async with agent_that(shuffled) as scene:
        names = [f"p_{n:016x}" for n in range(200)]
        found = await asyncio.gather(*(scene.machine.process(name) for name in names))
        assert [info.process_id for info in found] == names
        assert len(scene.peers) == 1


async def test_a_request_larger_than_the_socket_takes_at_once_arrives_whole() -> None:
    argument = "x" * (1 << 20)

    async def script(peer: Peer) -> None:
        await asyncio.sleep(0.02)
        asked = await peer.next()
        assert argument.encode() in asked.payload
        await peer.say(asked, ReplyKind.PROCESS, process(PROCESS))
        await peer.closed()

    async with agent_that(script) as scene:
        await scene.machine.spawn(ProcessSpec(PROCESS, ["echo", argument]))
