"""What is left after the chaos against what clients were promised: rows, machines, histories, bills and outputs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from paddock.client.sse import EventDecoder
from paddock.lifecycle.states import NEXT, OPERATIONS
from paddock.models import State
from paddock.providers.base import CRASHED
from paddock.store import deadlines, events, listing, write_ahead_log
from paddock.store.database import Store
from paddock.store.listing import ListingFilter
from paddock.store.records import EventRow, SandboxRow
from tests.chaos.clock import HOUR
from tests.chaos.herd import post
from tests.chaos.output import Followed, Writing
from tests.chaos.scene import Scene
from tests.chaos.timeline import Span, overslept, seconds, underslept
from tests.support.waiting import PATIENCE_S, until

SETTLE_SECONDS = 90.0
_BILL_SLACK_S = 3.0
_EARLY_SLACK_S = 0.2
"""Of two touches in quick succession the first one counts: up to a twentieth of the timeout."""
_LATE_SLACK_S = 15.0
"""Beyond the timeouts of a second or two: for looking, for tries that failed, and for a machine that is busy."""
_TOLD_S = 15.0
"""At once, on a machine that is busy: a sweep comes later than that."""
_MAX_LOG_BYTES = 2 * write_ahead_log.LIMIT_BYTES
_EMPTY_LOG_BYTES = 1 << 20
_EMPTIED_S = 30.0
_STATES = {state.value for state in State}


async def judge(scene: Scene) -> None:
    """Wait until nothing is under way and every deadline has struck, then compare everything with everything."""
    herd = scene.herd
    await scene.store.open()
    rows, alive = await _settled(scene)
    assert not scene.faults.untold, scene.faults.untold
    assert not herd.surprises, "\n".join([*herd.surprises, *(slot.last_errors() for slot in scene.slots)])
    machines = {found.sandbox_id: found.state.value for found in await scene.machines()}
    assert machines == alive, "the database and the provider disagree"
    for promise in herd.promises.values():
        row = rows[promise.sandbox_id]
        if promise.deleted:
            assert row.state is State.DELETED, "a delete was acknowledged and did not happen"
        elif not promise.maybe_deleted and promise.on_timeout == "pause":
            assert row.state in {State.RUNNING, State.PAUSED}, "a sandbox was lost"
    assert len(set(herd.created_by_key.values())) == len(herd.created_by_key), "one key, two sandboxes"
    for row in rows.values():
        history = await _history(scene.store, row.sandbox_id)
        _check_history(scene, row, history)
        known = herd.promises.get(row.sandbox_id)
        if known is not None and scene.keeps_time:
            late = overslept(known.uses, _running(scene, history), scene.working(row), _LATE_SLACK_S)
            assert not late, f"{known}: {late}: {history}"
            early = underslept(known.uses, _strikes(scene, history), scene.steady_lives(row), _EARLY_SLACK_S)
            assert not early, f"{known}: {early}: {history}"


async def judge_usage(scene: Scene, client: httpx.AsyncClient) -> None:
    """The clients' own book: what was answered is counted once, stands in the events once, and what is billed is the
    time that it ran."""
    herd, url = scene.herd, scene.slots[0].url
    assert not herd.commands, "a command that nobody could get an answer to"
    for promise in herd.promises.values():
        before = time.time()
        used = await client.get(f"{url}/sandboxes/{promise.sandbox_id}/usage")
        after = time.time()
        if promise.deleted or promise.maybe_deleted or promise.on_timeout == "delete" or used.status_code == 404:
            continue
        total = used.json()["total"]
        running = _running(scene, await _history(scene.store, promise.sandbox_id))
        least, most = (seconds(running, 0.0, until) for until in (before, after))
        billed = total["seconds"]
        if not scene.keeps_time:  # servers that share a node: a jump may be billed, as it is, by whole hours
            billed, least = (billed + _BILL_SLACK_S) % HOUR - _BILL_SLACK_S, 0.0
        assert least - _BILL_SLACK_S <= billed <= most + _BILL_SLACK_S, (
            f"{promise} ran for {most} s, billed are {total}"
        )
        if promise.sandbox_id in scene.faults.harmed:
            continue  # a command that its agent took with it may have been answered, and is then told as lost
        answered = herd.answered[promise.sandbox_id]
        assert total["commands"] == answered, promise
        told = (await client.get(f"{url}/sandboxes/{promise.sandbox_id}/events?limit=1000")).json()["events"]
        assert sum(event["type"] in ("command.started", "command.finished") for event in told) == answered, promise


async def judge_streams(scene: Scene, client: httpx.AsyncClient) -> None:
    """While nobody dies, who follows a command from its beginning misses nothing of it."""
    url, writing = scene.slots[0].url, Writing(lines=30_000, steps=4)
    async with _new_sandbox(scene, client) as sandbox_id:
        body = {"sandbox_id": sandbox_id, "command": writing.command, "stream": True}
        followed = Followed(writing, sandbox_id, process_id="")
        async with client.stream("POST", f"{url}/sandboxes/run-command", json=body) as answer:
            assert answer.status_code == 200, await answer.aread()
            decoder = EventDecoder()
            async for chunk in answer.aiter_bytes():
                for event in decoder.feed(chunk):
                    assert (wrong := followed.take(event.event, event.data)) is None, wrong
        assert followed.ended
        assert (followed.position, followed.skipped) == (writing.size, 0)


async def judge_crashes(scene: Scene, client: httpx.AsyncClient) -> None:
    """An agent that is killed while a server is there is told of at once, with the reason, and by the status."""
    url = scene.slots[0].url
    async with _new_sandbox(scene, client) as sandbox_id:
        assert await scene.faults.kill_agent_of(sandbox_id)

        async def told() -> bool:
            history = (await client.get(f"{url}/sandboxes/{sandbox_id}/events")).json()["events"]
            return "killed" in [each["data"]["reason"] for each in history if each["type"] == CRASHED]

        async def paused() -> bool:
            return bool((await client.get(f"{url}/sandboxes/{sandbox_id}/status")).json()["status"] == "paused")

        await until(told, _TOLD_S)
        await until(paused, _TOLD_S)
        run = {"sandbox_id": sandbox_id, "command": "echo here"}
        assert (await client.post(f"{url}/sandboxes/run-command", json=run)).json()["stdout"] == "here\n"


@asynccontextmanager
async def _new_sandbox(scene: Scene, client: httpx.AsyncClient) -> AsyncIterator[str]:
    """One that the herd does not know."""
    url = scene.slots[0].url
    made = await client.post(f"{url}/sandboxes/create", json={"user_id": "judge"})
    assert made.status_code == 200, made.text
    sandbox_id = str(made.json()["sandbox_id"])
    yield sandbox_id
    assert (await client.delete(f"{url}/sandboxes/{sandbox_id}")).status_code == 200


def _is_repaired_next(answer: httpx.Response) -> bool:
    """The disk has failed, which was just noticed, or was known before the host had room again."""
    if answer.status_code == 200:
        return "Read-only file system" in answer.text
    return answer.status_code == 507 and answer.json()["error"]["code"] == "disk_failed"


async def judge_disks(scene: Scene, client: httpx.AsyncClient) -> None:
    """Whatever became of the host's disk and of its own: what is left can be written to."""
    url = scene.slots[0].url
    for promise in scene.herd.promises.values():
        script = "echo written > /workspace/judged && sync /workspace/judged && cat /workspace/judged"
        run = {"sandbox_id": promise.sandbox_id, "command": script}
        answer = await post(client, url, "run-command", run)
        if answer.status_code == 404 and (promise.maybe_deleted or promise.on_timeout == "delete"):
            continue
        # What the full disk took away may be noticed by this very write: then the disk is repaired.
        async with asyncio.timeout(PATIENCE_S):
            while _is_repaired_next(answer):
                await asyncio.sleep(0.2)
                answer = await post(client, url, "run-command", run)
        assert answer.status_code == 200, f"{promise}: {answer.text}"
        assert answer.json()["stdout"] == "written\n", f"{promise}: {answer.text}"


async def judge_log(scene: Scene) -> None:
    """SQLite's write-ahead log stayed small, and a server that starts has emptied what the one before left."""
    assert scene.largest_log <= _MAX_LOG_BYTES, f"the write-ahead log grew to {scene.largest_log / 1e6:.0f} MB"
    await scene.store.close()
    for slot in scene.slots:
        await slot.dead(within=0)
    await scene.start_all()
    until = time.monotonic() + _EMPTIED_S
    while scene.log_bytes() > _EMPTY_LOG_BYTES:
        assert time.monotonic() < until, f"the write-ahead log still has {scene.log_bytes() / 1e6:.1f} MB"
        await asyncio.sleep(0.1)


async def _settled(scene: Scene) -> tuple[dict[str, SandboxRow], dict[str, str]]:
    """All rows, and the states of those that live."""
    keys = scene.herd.keys
    try:
        async with asyncio.timeout(SETTLE_SECONDS):
            while True:
                rows, due = await _everything(scene.store)
                busy = [row.sandbox_id for row in rows.values() if row.state in OPERATIONS]
                # The short timeouts of the herd must all have struck; what is left is an hour or a week away.
                pending = [sandbox_id for sandbox_id, at in due.items() if at < scene.clock.now() + 60]
                alive = {name: row.state.value for name, row in rows.items() if row.state is not State.DELETED}
                odd = set(due) ^ set(alive)
                # Rows and deadlines are read one after the other: only what is the same twice is one moment.
                still = (await _everything(scene.store))[0] == rows
                if still and not busy and not pending and not odd and not keys:
                    return rows, alive
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(
            f"after {SETTLE_SECONDS} s still: transitional {busy}, not struck {pending}, "
            f"without a deadline or without a row {odd}, unanswered {keys}, last refusals {scene.herd.last_refusal}"
        )


async def _everything(store: Store) -> tuple[dict[str, SandboxRow], dict[str, float]]:
    async with store.read() as connection:
        rows: dict[str, SandboxRow] = {}
        for states in (None, [State.DELETED]):
            cursor = None
            while True:
                page, cursor = await listing.page(connection, ListingFilter(states=states), cursor=cursor, limit=500)
                rows |= {row.sandbox_id: row for row in page}
                if cursor is None:
                    break
        due = {name: each.due_at for name, each in (await deadlines.next_of(connection, rows)).items()}
    return rows, due


async def _history(store: Store, sandbox_id: str) -> list[EventRow]:
    async with store.read() as connection:
        return await events.after(connection, sandbox_id, 0, 100_000)


def _check_history(scene: Scene, row: SandboxRow, history: list[EventRow]) -> None:
    """The events of one life: without gaps, along the state table, no deadline early, none twice."""
    assert [event.seq for event in history] == list(range(1, len(history) + 1))
    state, woke_at = None, 0.0
    for event in history:
        name = event.type.removeprefix("sandbox.")
        if name not in _STATES:
            continue
        now, at = State(name), scene.clock.real(event.at)
        assert (now is State.CREATING) if state is None else (now in NEXT[state]), f"{state} to {now}: {history}"
        if event.data.get("cause") == "timeout":
            assert state is State.RUNNING and event.data["deadline"] == "idle", "a deadline struck twice, or the dead"
            # Where servers share a database they cannot tell a clock that was set from one that is wrong.
            early = scene.keeps_time and at < woke_at + 0.99
            assert not early, f"a deadline struck before a second had passed, the shortest there is: {history}"
        if now is State.RUNNING:
            woke_at = at
        state = now
    assert state is row.state


def _strikes(scene: Scene, history: list[EventRow]) -> list[float]:
    """When its timeout struck."""
    return [scene.clock.real(event.at) for event in history if event.data.get("cause") == "timeout"]


def _running(scene: Scene, history: list[EventRow]) -> list[Span]:
    spans: list[Span] = []
    since = None
    for event in history:
        name = event.type.removeprefix("sandbox.")
        if name not in _STATES:
            continue
        at = scene.clock.real(event.at)
        if since is not None:
            spans.append((since, at))
        since = at if State(name) is State.RUNNING else None
    return spans if since is None else [*spans, (since, time.time())]
