"""Services that start when their port is first used: once, and again when they have ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from paddock import errors
from paddock.lifecycle.controller import ActiveSandbox
from paddock.machine.base import Machine
from paddock.models import PutService, State
from paddock.runtime.service_launch import ServiceLaunch, latest
from paddock.runtime.services import Services, ServiceView
from tests.support.world import World

PORT = 8123
SERVE = f"echo serving $GREETING in $PWD as $(id -un); echo x >> /tmp/starts; exec python3 -m http.server {PORT}"


async def put(world: World, sandbox_id: str, name: str = "web", **fields: Any) -> ServiceView:
    request = PutService(**({"port": PORT, "command": SERVE} | fields))
    return await world.context.services.put(world.alice, sandbox_id, name, request)


async def new_sandbox(world: World) -> str:
    return (await world.create()).sandbox.sandbox_id


@asynccontextmanager
async def inside(world: World, sandbox_id: str) -> AsyncIterator[ActiveSandbox]:
    async with world.context.controller.use(world.alice, sandbox_id) as use:
        yield use


async def get(machine: Machine, port: int = PORT) -> bytes:
    connection = await machine.dial(port)
    await connection.write(b"GET / HTTP/1.0\r\n\r\n")
    answer = b""
    while more := await connection.read():
        answer += more
    await connection.close()
    return answer


async def starts(machine: Machine) -> int:
    text = b""
    async for chunk in machine.read_file("/tmp/starts"):
        text += chunk
    return text.count(b"x")


async def test_a_port_nobody_registered_stays_closed(small_world: World) -> None:
    async with inside(small_world, await new_sandbox(small_world)) as use:
        assert await small_world.context.services.reach(use, PORT) is False


async def test_a_service_starts_with_the_first_connection(small_world: World) -> None:
    sandbox_id = await new_sandbox(small_world)
    made = await put(small_world, sandbox_id, env={"GREETING": "hello"}, cwd="/tmp")
    assert made.process is None
    async with inside(small_world, sandbox_id) as use:
        with pytest.raises(errors.Conflict):
            await use.machine.dial(PORT)
        assert await small_world.context.services.reach(use, PORT) is True
        assert b"200 OK" in await get(use.machine)
        process = (await small_world.context.services.get(small_world.alice, sandbox_id, "web")).process
        assert process is not None and process.running
        output = await small_world.context.commands.output(small_world.alice, sandbox_id, process.process_id)
        assert output.stdout.data == b"serving hello in /tmp as user\n"
    assert "service.started" in [event.type for event in await small_world.events(sandbox_id)]


async def test_there_is_one_start_for_many_who_wait(small_world: World) -> None:
    sandbox_id = await new_sandbox(small_world)
    await put(small_world, sandbox_id)
    async with inside(small_world, sandbox_id) as use:
        reached = await asyncio.gather(*(small_world.context.services.reach(use, PORT) for _ in range(30)))
        assert reached == [True] * 30
        assert await starts(use.machine) == 1


async def test_one_who_leaves_does_not_take_the_start_away_from_the_others(small_world: World) -> None:
    sandbox_id = await new_sandbox(small_world)
    await put(small_world, sandbox_id)
    async with inside(small_world, sandbox_id) as use:
        leaves = asyncio.create_task(small_world.context.services.reach(use, PORT))
        stays = asyncio.create_task(small_world.context.services.reach(use, PORT))
        await asyncio.sleep(0)
        leaves.cancel()
        assert await stays is True
        assert leaves.cancelled()


async def test_two_servers_start_it_once(small_world: World) -> None:
    sandbox_id = await new_sandbox(small_world)
    await put(small_world, sandbox_id)
    context = small_world.context
    other = Services(context.controller, context.store, [])  # knows nothing of the first one's tasks
    async with inside(small_world, sandbox_id) as use:
        assert await asyncio.gather(context.services.reach(use, PORT), other.reach(use, PORT)) == [True, True]
        assert await starts(use.machine) == 1


async def test_a_restarted_server_finds_it_running(small_world: World) -> None:
    sandbox_id = await new_sandbox(small_world)
    await put(small_world, sandbox_id)
    async with inside(small_world, sandbox_id) as use:
        await small_world.context.services.reach(use, PORT)
    await small_world.restart()
    async with inside(small_world, sandbox_id) as use:
        assert await small_world.context.services.reach(use, PORT) is True
        assert await starts(use.machine) == 1


async def test_one_that_has_ended_is_started_again(small_world: World) -> None:
    sandbox_id = await new_sandbox(small_world)
    await put(small_world, sandbox_id)
    services = small_world.context.services
    async with inside(small_world, sandbox_id) as use:
        for number in (1, 2, 3):
            assert await services.reach(use, PORT)
            assert await starts(use.machine) == number
            process = (await services.get(small_world.alice, sandbox_id, "web")).process
            assert process is not None and f"#{number}:" in process.label
            await use.machine.signal(process.process_id, 9)
            await use.machine.wait(process.process_id)


async def test_ready_means_that_its_path_answers(small_world: World) -> None:
    sandbox_id = await new_sandbox(small_world)
    slow = (
        "import http.server, os\n"
        "class Slow(http.server.BaseHTTPRequestHandler):\n"
        "    asked = 0\n"
        "    def do_GET(self):\n"
        "        Slow.asked += 1\n"
        "        self.send_response(503 if Slow.asked < 4 else 200)\n"
        "        self.end_headers()\n"
        "        self.wfile.write(str(Slow.asked).encode())\n"
        f"http.server.HTTPServer(('127.0.0.1', {PORT}), Slow).serve_forever()\n"
    )
    await put(small_world, sandbox_id, command=f'exec python3 -c "{slow}"', ready_path="/health")
    async with inside(small_world, sandbox_id) as use:
        await small_world.context.services.reach(use, PORT)
        assert (await get(use.machine)).endswith(b"5")


async def test_one_that_ends_instead_says_why(small_world: World) -> None:
    sandbox_id = await new_sandbox(small_world)
    await put(small_world, sandbox_id, command="echo trying; echo no such port >&2; exit 3")
    async with inside(small_world, sandbox_id) as use:
        with pytest.raises(errors.ServiceFailed, match=r"'web' ended with exit code 3\.(.|\n)*trying\nno such port"):
            await small_world.context.services.reach(use, PORT)


async def test_one_that_never_listens_fails_in_its_time_and_is_not_started_twice(small_world: World) -> None:
    sandbox_id = await new_sandbox(small_world)
    await put(small_world, sandbox_id, command="echo x >> /tmp/starts; sleep 60", ready_timeout=0.3)
    async with inside(small_world, sandbox_id) as use:
        for _ in range(2):
            with pytest.raises(errors.ServiceFailed, match=r"did not open port 8123 within 0\.3 s"):
                await small_world.context.services.reach(use, PORT)
        assert await starts(use.machine) == 1


async def test_a_process_with_the_label_of_a_service_is_not_taken_for_it(small_world: World) -> None:
    from paddock.machine.base import ProcessSpec

    sandbox_id = await new_sandbox(small_world)
    async with inside(small_world, sandbox_id) as use:
        forged = ProcessSpec("p_0123456789abcdef", ["sleep", "60"], label="service web #7: sleep")
        await use.machine.spawn(forged)
        assert await latest(use.machine, ServiceLaunch(name="web", port=PORT, argv=["sleep"])) == (0, None)


# Registering


async def test_services_are_kept(world: World) -> None:
    sandbox_id = await new_sandbox(world)
    await put(world, sandbox_id, env={"A": "1"}, user="root", ready_path="/ok", ready_timeout=5)
    await put(world, sandbox_id, "api", port=9000)
    await world.restart()
    found = await world.context.services.list(world.alice, sandbox_id)
    assert [(each.service.name, each.service.port) for each in found] == [("api", 9000), ("web", PORT)]
    web = found[1].service
    assert (web.env, web.user, web.ready_path, web.ready_timeout) == ({"A": "1"}, "root", "/ok", 5)
    await world.context.services.remove(world.alice, sandbox_id, "api")
    assert len(await world.context.services.list(world.alice, sandbox_id)) == 1
    with pytest.raises(errors.ServiceNotFound):
        await world.context.services.get(world.alice, sandbox_id, "api")


async def test_a_port_has_one_service(world: World) -> None:
    sandbox_id = await new_sandbox(world)
    await put(world, sandbox_id)
    with pytest.raises(errors.AlreadyExists):
        await put(world, sandbox_id, "another")
    await put(world, sandbox_id, port=9000)  # the same one may move
    await put(world, sandbox_id, "another")


async def test_services_belong_to_the_owner_of_the_sandbox(small_world: World) -> None:
    sandbox_id = await new_sandbox(small_world)
    await put(small_world, sandbox_id)
    services, bob = small_world.context.services, small_world.bob
    for attempt in (
        services.list(bob, sandbox_id),
        services.get(bob, sandbox_id, "web"),
        services.remove(bob, sandbox_id, "web"),
        services.put(bob, sandbox_id, "web", PutService(port=1, command="true")),
    ):
        with pytest.raises(errors.SandboxNotFound):
            await attempt


async def test_a_changed_command_ends_the_old_process_and_the_next_connection_starts_the_new(
    small_world: World,
) -> None:
    sandbox_id = await new_sandbox(small_world)
    await put(small_world, sandbox_id)
    async with inside(small_world, sandbox_id) as use:
        await small_world.context.services.reach(use, PORT)
        old = (await small_world.context.services.get(small_world.alice, sandbox_id, "web")).process
        assert old is not None
        await put(small_world, sandbox_id, command=f"echo the new one; {SERVE}")
        assert not (await use.machine.wait(old.process_id, 10)).running
        await small_world.context.services.reach(use, PORT)
        assert await starts(use.machine) == 2


async def test_a_removed_service_is_ended(small_world: World) -> None:
    sandbox_id = await new_sandbox(small_world)
    await put(small_world, sandbox_id)
    async with inside(small_world, sandbox_id) as use:
        await small_world.context.services.reach(use, PORT)
        process = (await small_world.context.services.get(small_world.alice, sandbox_id, "web")).process
        assert process is not None
        await small_world.context.services.remove(small_world.alice, sandbox_id, "web")
        assert not (await use.machine.wait(process.process_id, 10)).running
        assert await small_world.context.services.reach(use, PORT) is False


async def test_looking_at_services_wakes_nobody(small_world: World) -> None:
    sandbox_id = await new_sandbox(small_world)
    await put(small_world, sandbox_id)
    await small_world.context.controller.pause(small_world.alice, sandbox_id)
    found = await small_world.context.services.list(small_world.alice, sandbox_id)
    assert found[0].process is None
    assert await small_world.state(sandbox_id) is State.PAUSED


async def test_what_a_user_registers_comes_before_what_is_built_in(small_world: World) -> None:
    sandbox_id = await new_sandbox(small_world)
    await put(small_world, sandbox_id, port=49999, command="exec python3 -m http.server 49999")
    async with inside(small_world, sandbox_id) as use:
        await small_world.context.services.reach(use, 49999)
        assert b"200 OK" in await get(use.machine, 49999)
