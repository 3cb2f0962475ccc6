"""SIGKILL between any two steps of create, pause, resume, delete and timeout; restart; nothing is lost.

The servers are real processes on a real database and they die for real. What survives is judged from outside: by what
was promised to clients, by the rows, and by what the provider has on disk.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from paddock.clock import SystemClock
from paddock.lifecycle.bootstrap import first_key
from paddock.lifecycle.states import NEXT, OPERATIONS
from paddock.models import State
from paddock.providers.base import Provider
from paddock.providers.docker import DockerProvider
from paddock.providers.fake import FakeProvider
from paddock.providers.local import LocalProvider
from paddock.settings import Settings
from paddock.store import deadlines, events, sandboxes
from paddock.store.database import Store
from paddock.store.records import Sandbox
from tests.chaos import server
from tests.chaos.faults import inject
from tests.chaos.herd import Herd
from tests.chaos.slot import Slot
from tests.docker import engine
from tests.docker.place import Place
from tests.local import traces
from tests.local.place import eventually
from tests.support.postgres import Postgres

KILLS = int(os.environ.get("CHAOS_KILLS", "200"))
KILLS_OF_REAL_SANDBOXES = max(15, KILLS // 10) if "CHAOS_KILLS" in os.environ else 15
"""Each start of such a server takes ten times as long."""
SETTLE_SECONDS = 40.0
STATES = {state.value for state in State}

REAL = ("local", "docker")
PROVIDERS: dict[str, Callable[[Path], Provider]] = {
    "fake": lambda home: FakeProvider(home / "fake"),
    "local": lambda home: LocalProvider(home / "local"),
    "docker": lambda home: DockerProvider(home / "docker", address=engine.address(), images=[engine.DEBIAN]),
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900 + 3 * KILLS)]


async def rampage(slots: list[Slot], herd: Herd, kills: int, home: Path) -> tuple[Counter[str], Counter[str]]:
    """Servers die and come back until enough have died; clients go on all the while, and so do other faults. Where the
    kills were, and which faults there were."""
    stop = asyncio.Event()
    places: Counter[str] = Counter()
    grazing = asyncio.create_task(herd.graze(6, stop))
    faults = asyncio.create_task(inject(slots, home, herd.rng, stop))

    async def one(slot: Slot) -> None:
        while places.total() < kills:
            await slot.start(fuse=herd.rng.randint(3, 90))
            places[await slot.dead(within=herd.rng.uniform(0.3, 1.5))] += 1

    try:
        await asyncio.gather(*(one(slot) for slot in slots))
    finally:
        stop.set()
        await grazing
    return places, await faults


async def judge(store: Store, provider: Provider, herd: Herd) -> None:
    """Wait until nothing is under way and every deadline has struck, then compare everything with everything."""
    clock = SystemClock()
    try:
        async with asyncio.timeout(SETTLE_SECONDS):
            while True:
                rows, due = await _everything(store)
                busy = [row.sandbox_id for row in rows.values() if row.state in OPERATIONS]
                # The short timeouts of the herd must all have struck; what is left is an hour or a week away.
                pending = [sandbox_id for sandbox_id, at in due.items() if at < clock.now() + 60]
                alive = {name: row.state.value for name, row in rows.items() if row.state is not State.DELETED}
                odd = set(due) ^ set(alive)
                # Rows and deadlines are read one after the other: only what is the same twice is one moment.
                still = (await _everything(store))[0] == rows
                if still and not busy and not pending and not odd and not herd.keys:
                    break
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(
            f"after {SETTLE_SECONDS} s still: transitional {busy}, not struck {pending}, "
            f"without a deadline or without a row {odd}, unanswered {herd.keys}"
        )

    assert herd.surprises == []
    machines = {found.sandbox_id: found.state.value for found in await provider.list()}
    assert machines == alive, "the database and the provider disagree"
    for promise in herd.promises.values():
        row = rows[promise.sandbox_id]
        if promise.deleted:
            assert row.state is State.DELETED, "a delete was acknowledged and did not happen"
        elif not promise.maybe_deleted and promise.on_timeout == "pause":
            assert row.state in {State.RUNNING, State.PAUSED}, "a sandbox was lost"
    assert len(set(herd.created_by_key.values())) == len(herd.created_by_key), "one key, two sandboxes"
    for row in rows.values():
        await _check_history(store, row)


async def judge_usage(url: str, client: httpx.AsyncClient, herd: Herd) -> None:
    """The clients' own book: what was answered is counted once, and stands in the events once."""
    assert not herd.commands, "a command that nobody could get an answer to"
    for promise in herd.promises.values():
        used = await client.get(f"{url}/sandboxes/{promise.sandbox_id}/usage")
        if promise.deleted or promise.maybe_deleted or promise.on_timeout == "delete" or used.status_code == 404:
            continue
        answered = herd.answered[promise.sandbox_id]
        assert used.json()["total"]["commands"] == answered, promise
        told = (await client.get(f"{url}/sandboxes/{promise.sandbox_id}/events?limit=1000")).json()["events"]
        assert sum(event["type"] == "command.finished" for event in told) == answered, promise


async def _everything(store: Store) -> tuple[dict[str, Sandbox], dict[str, float]]:
    async with store.read() as connection:
        rows: dict[str, Sandbox] = {}
        for states in (None, [State.DELETED]):
            cursor = None
            while True:
                page, cursor = await sandboxes.page(
                    connection, owner_id=None, user_id=None, states=states, cursor=cursor, limit=500
                )
                rows |= {row.sandbox_id: row for row in page}
                if cursor is None:
                    break
        due = {name: each.due_at for name, each in (await deadlines.next_of(connection, rows)).items()}
    return rows, due


async def _check_history(store: Store, row: Sandbox) -> None:
    """The events of one life: without gaps, along the state table, no deadline early, none twice."""
    async with store.read() as connection:
        history = await events.after(connection, row.sandbox_id, 0, 100_000)
    assert [event.seq for event in history] == list(range(1, len(history) + 1))
    state, woke_at = None, 0.0
    for event in history:
        name = event.type.removeprefix("sandbox.")
        if name not in STATES:
            continue
        now = State(name)
        assert (now is State.CREATING) if state is None else (now in NEXT[state]), f"{state} to {now}: {history}"
        if event.data.get("cause") == "timeout":
            assert state is State.RUNNING and event.data["deadline"] == "idle", "a deadline struck twice, or the dead"
            assert event.at >= woke_at + 0.99, "a deadline struck before a second had passed, the shortest there is"
        if now is State.RUNNING:
            woke_at = event.at
        state = now
    assert state is row.state


def _report(places: Counter[str], faults: Counter[str], herd: Herd) -> None:
    book = f"{len(herd.promises)} sandboxes promised, {herd.answered.total()} keyed commands answered"
    print(f"\n{places.total()} kills, {faults.total()} other faults; {book}:")
    for place, count in (*sorted(places.items()), *sorted(faults.items())):
        print(f"  {count:4d}  {place}")


@pytest.fixture(params=["sqlite", "postgres-two-servers", "local", "docker"])
async def chaos(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[tuple[list[Slot], Store, Provider, Herd]]:
    kind = request.param if request.param in REAL else "fake"
    environment = {
        "PADDOCK_HOME": str(tmp_path),
        "SANDBOX_PROVIDER": kind,
        "PADDOCK_SERVER_TTL": "1",
        "PADDOCK_SCHEDULER_INTERVAL": "0.1",
        "PADDOCK_RECONCILE_INTERVAL": "1",
        "PADDOCK_BUSY_WAIT": "5",
    }
    if kind == "docker":
        environment |= {"DOCKER_HOST": f"unix://{engine.address().socket}", "PADDOCK_DOCKER_IMAGES": engine.DEBIAN}
        environment |= {"PADDOCK_POOL_MAX": "2"}  # an engine takes a quarter of a second for each
    servers = 1
    if request.param == "postgres-two-servers":
        postgres: Postgres = request.getfixturevalue("postgres")
        environment["DATABASE_URL"] = await postgres.new_database()
        servers = 2
    settings = Settings(**environment, _env_file=None)  # type: ignore[arg-type]
    key = (await first_key(settings)).key
    seed = int(os.environ.get("CHAOS_SEED", random.randrange(1 << 32)))
    print(f"CHAOS_SEED={seed}")
    slots = [Slot(environment, tmp_path / f"grave-{number}") for number in range(servers)]
    store = Store(settings.database_url)
    await store.open()
    herd = Herd([slot.url for slot in slots], key, random.Random(seed))
    provider = PROVIDERS[kind](tmp_path)
    yield slots, store, provider, herd
    for slot in slots:
        if slot.alive:
            await slot.dead(within=0)
    await store.close()
    if kind in REAL:
        await _nothing_stays(provider, tmp_path)


async def _first_sandbox(slot: Slot, herd: Herd) -> None:
    """The first one makes the layers of its template, for which a server that dies every second never has the time."""
    await slot.start(fuse=None)
    async with httpx.AsyncClient(headers={"X-API-Key": herd.api_key}, timeout=60) as client:
        answer = await client.post(f"{slot.url}/sandboxes/create", json={"user_id": "first"})
        assert answer.status_code == 200, answer.text
    await slot.dead(within=0)


async def _nothing_stays(provider: Provider, home: Path) -> None:
    """What so many deaths have left half made is cleared away by the next server, and the rest by deleting it."""
    for draft in (home / provider.name / "drafts").iterdir():
        os.utime(draft, (0, 0))  # until then it could be a living server's
    await provider.start()
    for found in await provider.list():
        await provider.delete(found.sandbox_id)
    for shape, count in (await provider.warmed()).items():
        await provider.cool(shape, count)
    await provider.list()  # the second look, at which what is nobody's goes
    await provider.close()
    if isinstance(provider, LocalProvider):
        await eventually(lambda: traces.look(home / "local") == traces.NOTHING)
    else:
        assert Place(home, engine.address()).leftovers() == []


async def test_no_kill_between_any_two_steps_loses_orphans_or_forgets(
    chaos: tuple[list[Slot], Store, Provider, Herd], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slots, store, provider, herd = chaos
    real = provider.name in REAL
    if real:
        await _first_sandbox(slots[0], herd)
    places, faults = await rampage(slots, herd, KILLS_OF_REAL_SANDBOXES if real else KILLS, tmp_path)
    with capsys.disabled():
        _report(places, faults, herd)
    for step in server.PROVIDER_STEPS[:1] if real else server.PROVIDER_STEPS:
        assert any(step in place for place in places), f"no server died around {step}: more kills are needed"
    await asyncio.gather(*(slot.start(fuse=None) for slot in slots))
    async with httpx.AsyncClient(headers={"X-API-Key": herd.api_key}, timeout=30) as client:
        await herd.ask_again(client)
        await judge(store, provider, herd)
        if not real:  # a command that its agent took with it may have been answered, and is then told as lost
            await judge_usage(slots[0].url, client, herd)


async def test_every_command_that_was_answered_is_counted_once_whenever_the_server_dies(
    chaos: tuple[list[Slot], Store, Provider, Herd],
) -> None:
    slots, _, _, herd = chaos
    answered = 0
    async with httpx.AsyncClient(headers={"X-API-Key": herd.api_key}, timeout=30) as client:
        await asyncio.gather(*(slot.start(fuse=None) for slot in slots))
        made = await client.post(f"{slots[0].url}/sandboxes/create", json={"user_id": "counted"})
        sandbox_id = made.json()["sandbox_id"]
        for _ in range(8):
            for _ in range(herd.rng.randint(1, 6)):
                slot = herd.rng.choice(slots)
                run = {"sandbox_id": sandbox_id, "command": "true"}
                answer = await client.post(f"{slot.url}/sandboxes/run-command", json=run)
                assert answer.status_code == 200, answer.text
                answered += 1
            # With the last answer hardly out, wherever its record is by then.
            await asyncio.sleep(herd.rng.choice([0, 0, 0.01, 0.05, 0.06]))
            for slot in slots:
                await slot.dead(within=0)
                await slot.start(fuse=None)
        used = (await client.get(f"{slots[0].url}/sandboxes/{sandbox_id}/usage")).json()["total"]
        events = (await client.get(f"{slots[0].url}/sandboxes/{sandbox_id}/events?limit=1000")).json()["events"]
        assert (await client.delete(f"{slots[0].url}/sandboxes/{sandbox_id}")).status_code == 200
    assert used["commands"] == answered
    assert [event["type"] for event in events].count("command.finished") == answered
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


async def test_a_command_that_a_crash_cut_short_is_counted_when_it_is_asked_for_again(
    chaos: tuple[list[Slot], Store, Provider, Herd],
) -> None:
    slots, _, _, herd = chaos
    async with httpx.AsyncClient(headers={"X-API-Key": herd.api_key}, timeout=30) as client:
        await asyncio.gather(*(slot.start(fuse=None) for slot in slots))
        made = await client.post(f"{slots[0].url}/sandboxes/create", json={"user_id": "counted"})
        sandbox_id = made.json()["sandbox_id"]
        for number in range(4):
            run = {
                "sandbox_id": sandbox_id,
                "command": f"touch {number}; until [ -e go-{number} ]; do sleep 0.05; done",
            }
            keyed = {"Idempotency-Key": f"command-{number}"}
            asked = client.post(f"{slots[0].url}/sandboxes/run-command", json=run, headers=keyed)
            first = asyncio.create_task(asked)
            await _has_begun(client, slots[0], sandbox_id, f"/workspace/{number}")
            for slot in slots:
                await slot.dead(within=0)
            await asyncio.wait([first])
            assert isinstance(first.exception(), httpx.TransportError), "the server died under it"
            await asyncio.gather(*(slot.start(fuse=None) for slot in slots))
            go = {"sandbox_id": sandbox_id, "path": f"/workspace/go-{number}", "content": ""}
            assert (await client.post(f"{slots[0].url}/sandboxes/write-file", json=go)).status_code == 200
            for slot in (slots[0], slots[-1]):  # asked for twice: it still counts once
                answer = await client.post(f"{slot.url}/sandboxes/run-command", json=run, headers=keyed)
                assert answer.json()["exit_code"] == 0, answer.text
        used = (await client.get(f"{slots[0].url}/sandboxes/{sandbox_id}/usage")).json()["total"]
        events = (await client.get(f"{slots[0].url}/sandboxes/{sandbox_id}/events?limit=1000")).json()["events"]
        assert (await client.delete(f"{slots[0].url}/sandboxes/{sandbox_id}")).status_code == 200
    assert used["commands"] == 4
    assert [event["type"] for event in events].count("command.finished") == 4


async def _has_begun(client: httpx.AsyncClient, slot: Slot, sandbox_id: str, path: str) -> None:
    async with asyncio.timeout(20):
        while True:
            asked = {"sandbox_id": sandbox_id, "path": path}
            if (await client.post(f"{slot.url}/sandboxes/read-file", json=asked)).status_code == 200:
                return
            await asyncio.sleep(0.02)
