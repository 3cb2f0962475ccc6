"""Many at once and for long: nothing is lost, and nothing is left."""

from __future__ import annotations

from pathlib import Path

from tests.agent import client as wire
from tests.agent.client import Client, names_in
from tests.agent.conftest import Running
from tests.support.waiting import wait_until


def children(agent: Running) -> list[str]:
    return Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()


def test_two_hundred_at_once_each_keep_their_own_output(client: Client) -> None:
    requests = []
    for n in range(200):
        script = ["/bin/sh", "-c", f"echo {n}; echo {n} >&2; exit {n % 100}"]
        requests.append(client.send(wire.SPAWN, client.spawn_payload(f"p{n}", script, flags=wire.WITH_FOLLOW)))
    for n, request in enumerate(requests):
        assert client.answer(request).type == wire.PROCESS
        pieces, ended = client.followed(request)
        assert sorted(pieces) == [(wire.STDOUT, 0, b"%d\n" % n), (wire.STDERR, 0, b"%d\n" % n)]
        assert ended.exit_code == n % 100


def test_five_hundred_leave_no_descriptor_no_zombie_and_no_memory(client: Client, agent: Running) -> None:
    def run(first: int, count: int) -> None:
        for n in range(first, first + count):
            flags = wire.WITH_FOLLOW | (wire.WITH_STDIN if n % 2 else 0)
            request = client.send(wire.SPAWN, client.spawn_payload(f"p{n}", ["/bin/true"], flags=flags))
            client.answer(request)
            client.followed(request)

    run(0, 300)
    before, memory = agent.descriptors(), _private(agent)
    run(300, 500)
    client.ask(wire.PING)
    assert agent.descriptors() == before
    assert children(agent) == []
    assert _private(agent) <= memory + (64 << 10) or "sanitized" in agent.binary.name


def _private(agent: Running) -> int:
    text = Path(f"/proc/{agent.pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Anonymous")) << 10


def test_an_idle_agent_is_small(agent: Running) -> None:
    client = agent.connect()
    client.run("p", "seq 1 100000")
    wait_until(lambda: _private(agent) <= 200 << 10 or "sanitized" in agent.binary.name)


def test_clients_that_leave_in_the_middle_leave_nothing(client: Client, agent: Running, tmp_path: Path) -> None:
    client.shell("long", "exec sleep 1000")
    client.ask(wire.PING)
    before = agent.descriptors()
    for n in range(20):
        other = agent.connect()
        other.send(wire.SPAWN, other.spawn_payload(f"p{n}", ["/bin/echo", "x"], flags=wire.WITH_FOLLOW))
        other.follow("long")
        other.send(wire.WAIT, wire.raw("long"))
        other.send(wire.WATCH, wire.raw("user") + wire.raw(str(tmp_path)) + b"\1")
        other.send(wire.OPEN, wire.raw("user") + wire.raw(str(tmp_path / f"{n}")) + b"\1\xff\xff\xff\xff")
        other.close()
    for n in range(20):
        wait_until(lambda name=f"p{n}": name in [process.process_id for process in client.processes()])  # type: ignore[misc]
        client.wait(f"p{n}")
    wait_until(lambda: client.ask(wire.PING) and agent.descriptors() == before and not names_in(tmp_path))
