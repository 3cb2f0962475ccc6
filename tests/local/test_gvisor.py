"""The level ``hardened``: a kernel of its own for who asks for it, and everything else as with any other sandbox."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from paddock import errors
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.providers.base import IsolationLevel, MachineState, Mount, Resources
from paddock.providers.common.record import start_time
from paddock.providers.local.gvisor import agent_socket, bundle
from tests.conformance.test_ports import ECHO
from tests.local import gvisor, traces
from tests.local.outside import REACHABLE, Outside, fetch
from tests.local.place import Inside, Place
from tests.local.test_reboot import reboot
from tests.support.waiting import PATIENCE_S, until

pytestmark = pytest.mark.timeout(180)
RESOURCES = Resources(cpu=1.0, memory_mb=512, disk_mb=128, pids=40)


class Guests(Place):
    def spec(self, **changes: Any) -> Any:
        return super().spec(**{"isolation": IsolationLevel.HARDENED, "resources": RESOURCES, **changes})


@pytest.fixture
async def guests(outside: Outside, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Guests]:
    wanted = gvisor.wanted()
    made = Guests(tmp_path, tmp_path_factory.getbasetemp() / "made", runsc=wanted, reachable=REACHABLE)
    await made.provider.start()
    yield made
    await made.clear()
    assert traces.group_parents(made.root) == []


@pytest.fixture
async def guest(guests: Guests) -> Inside:
    return await guests.create()


async def test_only_who_asks_for_it_has_another_kernel_than_the_host(guests: Guests, guest: Inside) -> None:
    ordinary = await guests.create(isolation=None)
    host = Path("/proc/version").read_text().strip()
    assert await ordinary.says("cat /proc/version") == host
    assert await guest.says("cat /proc/version") != host
    report = await guests.provider.isolation(guest.sandbox_id)
    assert report.level is IsolationLevel.HARDENED and all(layer.active for layer in report.layers)
    assert "gVisor: runsc 20" in (await guests.layer(guest.sandbox_id, "kernel of its own")).detail
    assert (await guests.provider.isolation(ordinary.sandbox_id)).level is IsolationLevel.STRICT


async def test_all_of_it_runs_with_ids_and_in_the_groups_of_the_sandbox(guests: Guests, guest: Inside) -> None:
    running = guests.running(guest.sandbox_id)
    await guest.start("exec sleep 1000")
    assert running.group is not None and running.uid_slot is not None
    first = 0x7000_0000 + running.uid_slot * 65_536
    pids = list(traces.look(guests.root).processes)
    assert running.pid in pids and len(pids) >= 3
    for pid in pids:
        owner = Path(f"/proc/{pid}").stat().st_uid
        ids = Path(f"/proc/{pid}/status").read_text().split("Uid:")[1].split()[:4]
        assert all(first <= int(number) < first + 65_536 for number in ids), (pid, owner, ids)


async def test_sudo_files_and_a_terminal_are_as_everywhere(guest: Inside) -> None:
    assert (
        await guest.says("id -un; sudo id -un; pwd; stat -c '%U %a' /run/paddock") == "user\nroot\n/workspace\nroot 755"
    )
    assert (await guest.run("ls -la / /bin/sh")).err == b""
    await guest.put("/tmp/seen", "from outside")
    assert await guest.says("cat /tmp/seen; df --output=target /tmp | tail -1") == "from outside/tmp"


async def test_it_stands_still_while_it_is_paused_and_its_connections_stay(guests: Guests, guest: Inside) -> None:
    await guest.put("/workspace/echo.py", ECHO)
    server = await guest.start("exec python3 echo.py")
    await guest.until(server, b"up")
    connection = await guest.machine.dial(8000)
    await guests.provider.pause(guest.sandbox_id)
    found = await guests.provider.inspect(guest.sandbox_id)
    assert found is not None and found.state is MachineState.PAUSED
    await connection.write(b"meanwhile")
    answer = asyncio.create_task(connection.read())
    done, _ = await asyncio.wait([answer], timeout=0.5)
    assert not done, "a paused guest answered"
    await guests.provider.resume(guest.sandbox_id)
    async with asyncio.timeout(PATIENCE_S):
        assert await answer == b"meanwhile"
    await connection.close()
    assert (await guest.machine.process(server)).running


async def test_another_server_takes_it_up_with_what_runs_in_it(guests: Guests, guest: Inside) -> None:
    process = await guest.start("i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i; sleep 0.05; done; exit 7")
    await guests.restart()
    again = await guests.inside(guest.sandbox_id)
    ran = await again.finish(process)
    assert (ran.code, ran.text.splitlines()) == (7, [f"line {i}" for i in range(1, 41)])


async def test_after_a_reboot_it_is_paused_with_its_files(guests: Guests, guest: Inside) -> None:
    await guest.says("echo kept > file; echo too > /tmp/file; sudo touch /etc/too")
    await reboot(guests, guest.sandbox_id)
    found = await guests.provider.inspect(guest.sandbox_id)
    assert found is not None and found.state is MachineState.PAUSED
    await guests.provider.resume(guest.sandbox_id)
    again = await guests.inside(guest.sandbox_id)
    assert await again.says("cat file /tmp/file; ls /etc/too") == "kept\ntoo\n/etc/too"


async def test_deleting_it_leaves_nothing(guests: Guests, guest: Inside) -> None:
    await guest.start("exec sleep 1000")
    pids = traces.look(guests.root).processes
    await guests.provider.delete(guest.sandbox_id)
    await until(lambda: traces.look(guests.root) == traces.NOTHING)
    await until(lambda: all(start_time(pid) is None for pid in pids))


async def test_its_way_out_is_the_proxy_and_no_other(guests: Guests) -> None:
    guest = await guests.create(egress=EgressPolicy(EgressMode.PROXY))
    assert await guest.says(fetch("http://open.test/")) == "hello"
    direct = "import socket; socket.create_connection(('198.51.100.7', 80), 5)"
    assert (await guest.run(f'python3 -c "{direct}"')).code != 0
    await guests.provider.pause(guest.sandbox_id)
    await guests.provider.resume(guest.sandbox_id)
    assert await guest.says(fetch("http://open.test/")) == "hello"


class Greeter:
    """A service inside, which says whose sandbox it is."""

    port = 6060

    def variables(self, key: str) -> Mapping[str, str]:
        return {"GREETER": key}

    async def serve(self, sandbox_id: str, client: socket.socket) -> None:
        await asyncio.get_running_loop().sock_sendall(client, sandbox_id.encode())


async def test_what_the_server_answers_inside_is_there(guests: Guests) -> None:
    await guests.provider.close()
    guests.provider = guests.build()
    assert guests.provider.answer_inside(Greeter())
    await guests.provider.start()
    guest = await guests.create()
    ask = "import socket; print(socket.create_connection(('127.0.0.1', 6060), 30).recv(100).decode())"
    assert await guest.says(f'python3 -c "{ask}"') == guest.sandbox_id


async def test_a_flood_of_processes_ends_at_the_limit_and_the_guest_lives(guests: Guests, guest: Inside) -> None:
    if await guest.says("test -e /sys/fs/cgroup/pids/pids.max; echo $?") != "0":
        pytest.skip("this version of gVisor has no limit of processes")
    flood = (
        "import os, time\n"
        "try:\n"
        "    for count in range(400):\n"
        "        if os.fork() == 0: time.sleep(1000)\n"
        "except OSError as error: print(count, error.errno)\n"
    )
    await guest.put("/workspace/flood.py", flood)
    count, number = (await guest.says("timeout 60 python3 flood.py; pkill -9 python3")).split()
    assert 10 < int(count) < 100 and number == "11"
    assert await guest.says("echo still here") == "still here"


async def test_one_that_takes_too_much_memory_ends_and_starts_again_with_its_files(guests: Guests) -> None:
    guest = await guests.create(resources=Resources(cpu=1.0, memory_mb=64, disk_mb=64, pids=40))
    await guest.says("echo kept > file")
    pid = guests.running(guest.sandbox_id).pid
    with pytest.raises((errors.ProviderUnavailable, AssertionError)):
        await guest.says("python3 -c 'b = bytearray(400 << 20)'")
    await until(lambda: not Path(f"/proc/{pid}").exists())
    assert await (await guests.inside(guest.sandbox_id)).says("cat file") == "kept"


async def test_not_even_its_root_can_take_the_agents_place(guests: Guests, guest: Inside) -> None:
    script = (
        "cd /run/paddock/door; rm -f agent.sock; ln -s /x other; mv agent.sock x; kill -9 1; kill -STOP 1; echo done"
    )
    assert (await guest.run(script, user="root")).text == "done"
    place = guests.folder(guest.sandbox_id) / bundle.FOLDER / bundle.SOCKET_FOLDER
    assert sorted(path.name for path in place.iterdir()) == [bundle.SOCKET, bundle.FILTER, bundle.TOKEN]
    assert await guest.says("echo still here") == "still here"


async def test_what_does_not_go_with_it_is_refused(guests: Guests, tmp_path: Path) -> None:
    with pytest.raises(errors.ConfinementUnavailable, match="Full egress"):
        await guests.create(egress=EgressPolicy(EgressMode.FULL))
    with pytest.raises(errors.ConfinementUnavailable, match="cannot be mounted"):
        await guests.create(mounts=(Mount(str(tmp_path), "/mnt/shared"),))
    assert await guests.provider.list() == []


async def test_none_is_made_in_advance_and_none_of_those_is_handed_out(guests: Guests) -> None:
    hardened, ordinary = guests.spec(), guests.spec(isolation=None)
    assert guests.provider.shape_of(hardened) is None
    shape = guests.provider.shape_of(ordinary)
    assert shape is not None
    await guests.provider.warm(shape)
    await guests.provider.create(hardened)
    assert sum((await guests.provider.warmed()).values()) == 1


async def test_a_link_in_the_place_of_the_agents_socket_leads_nowhere(tmp_path: Path) -> None:
    folder = tmp_path / bundle.FOLDER / bundle.SOCKET_FOLDER
    folder.mkdir(parents=True)
    other = f"/tmp/paddock-other-{os.getpid()}-{os.urandom(4).hex()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(other)
        listener.listen()
        try:
            (folder / bundle.SOCKET).symlink_to(other)
            with pytest.raises(errors.ProviderUnavailable):
                await agent_socket.connect(tmp_path)
        finally:
            Path(other).unlink()
