"""Any order of requests, faults, crashes and clock jumps: the lifecycle keeps its promises.

Hypothesis plays users, scheduler, reconciler, a failing provider, a crashing server and a clock that jumps both ways
against a model of a few lines, and shrinks whatever breaks a promise to the shortest story that does.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from paddock.errors import PaddockError, SandboxNotFound
from paddock.lifecycle.states import NEXT, OPERATIONS
from paddock.models import State
from paddock.providers.faults import FaultKind
from paddock.store.records import DeadlineKind
from tests.support.world import World

T = TypeVar("T")

STEPS = st.sampled_from(["create", "pause", "resume", "delete", "inspect", "list", "attach"])
KINDS = st.sampled_from([FaultKind.FAIL, FaultKind.FAIL_AFTER, FaultKind.REFUSE, FaultKind.OMIT])
STATES = {state.value for state in State}
TIMEOUTS = st.integers(min_value=1, max_value=500)


@dataclass
class Expected:
    timeout: int
    on_timeout: str
    deleted: bool = False
    """A delete was asked for; it may or may not have been carried out if it failed."""


class Lifecycle(RuleBasedStateMachine):
    sandboxes = Bundle("sandboxes")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.home = Path(tempfile.mkdtemp(prefix="paddock-property-"))
        self.world = World(self.home, f"sqlite:///{self.home / 'paddock.db'}")
        self.known: dict[str, Expected] = {}

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.wait(self.settle())
        self.check_settled()
        self.wait(self.world.end())
        self.wait(self.loop.shutdown_asyncgens())
        self.loop.close()
        shutil.rmtree(self.home)

    @initialize()
    def open(self) -> None:
        self.wait(self.world.start())
        self.wait(self.world.make_accounts())

    # What users do

    @rule(target=sandboxes, timeout=TIMEOUTS, on_timeout=st.sampled_from(["pause", "delete"]))
    def create(self, timeout: int, on_timeout: str) -> Any:
        try:
            seen = self.wait(self.world.create(timeout=timeout, on_timeout=on_timeout))
        except PaddockError:
            return multiple()
        self.known[seen.sandbox.sandbox_id] = Expected(timeout, on_timeout)
        return seen.sandbox.sandbox_id

    @rule(sandbox_id=sandboxes)
    def pause(self, sandbox_id: str) -> None:
        if self.ask(self.world.context.controller.pause(self.world.alice, sandbox_id)):
            assert self.wait(self.world.state(sandbox_id)) is State.PAUSED

    @rule(sandbox_id=sandboxes)
    def resume(self, sandbox_id: str) -> None:
        if self.ask(self.world.context.controller.resume(self.world.alice, sandbox_id)):
            assert self.wait(self.world.state(sandbox_id)) is State.RUNNING

    @rule(sandbox_id=sandboxes)
    def use(self, sandbox_id: str) -> None:
        async def use() -> None:
            async with self.world.context.controller.use(self.world.alice, sandbox_id) as using:
                await using.record(commands=1)

        if self.ask(use()):
            self.expect_whole_timeout(sandbox_id)

    @rule(sandbox_id=sandboxes, timeout=TIMEOUTS)
    def set_timeout(self, sandbox_id: str, timeout: int) -> None:
        if self.ask(self.world.context.controller.set_timeout(self.world.alice, sandbox_id, timeout)):
            self.known[sandbox_id].timeout = timeout
            self.expect_whole_timeout(sandbox_id)

    @rule(sandbox_id=sandboxes)
    def connect(self, sandbox_id: str) -> None:
        if self.ask(self.world.context.controller.connect(self.world.alice, sandbox_id)):
            self.expect_whole_timeout(sandbox_id)

    @rule(sandbox_id=consumes(sandboxes))
    def delete(self, sandbox_id: str) -> None:
        self.known[sandbox_id].deleted = True
        if self.ask(self.world.context.controller.delete(self.world.alice, sandbox_id)):
            assert self.wait(self.world.state(sandbox_id)) is State.DELETED

    # What the world does

    @rule(seconds=st.floats(min_value=0, max_value=1000))
    def time_passes(self, seconds: float) -> None:
        self.wait(self.world.pass_time(seconds))

    @rule(seconds=st.sampled_from([-86_400.0, -3600.0, -1.0, 3600.0, 86_400.0]))
    def the_clock_jumps(self, seconds: float) -> None:
        self.wait(self.world.pass_time(seconds))

    @rule()
    def deadlines_are_looked_for(self) -> None:
        self.wait(self.world.context.scheduler.tick())

    @rule()
    def the_reconciler_runs(self) -> None:
        self.wait(self.world.context.reconciler.run_once())

    @rule()
    def the_server_dies_and_comes_back(self) -> None:
        self.wait(self.world.restart())

    @rule(step=STEPS, kind=KINDS, times=st.integers(min_value=1, max_value=3))
    def the_provider_gets_a_fault(self, step: str, kind: FaultKind, times: int) -> None:
        if kind is not FaultKind.OMIT or step in {"list", "inspect"}:
            self.world.faults.add(step, kind, times=times)

    # What must always hold

    @invariant()
    def every_row_has_a_lawful_history(self) -> None:
        for sandbox_id in self.known:
            row = self.wait(self.world.row(sandbox_id))
            events = self.wait(self.world.events(sandbox_id))
            assert [event.seq for event in events] == list(range(1, row.event_seq + 1))
            states = [State(name) for event in events if (name := event.type.removeprefix("sandbox.")) in STATES]
            assert states[0] is State.CREATING and states[-1] is row.state
            for old, new in itertools.pairwise(states):
                assert new in NEXT[old]

    @invariant()
    def every_settled_row_has_the_deadline_of_its_state(self) -> None:
        wanted = {
            State.RUNNING: DeadlineKind.IDLE,
            State.PAUSED: DeadlineKind.RETENTION,
            State.FAILED: DeadlineKind.RETENTION,
        }
        for sandbox_id in self.known:
            deadline = self.wait(self.world.deadline(sandbox_id))
            kind = wanted.get(self.wait(self.world.state(sandbox_id)))
            assert (deadline.kind if deadline else None) is kind

    @invariant()
    def nobody_is_billed_less_than_nothing(self) -> None:
        for sandbox_id in self.known:
            total, rows = self.wait(self.world.context.usage.of_sandbox(self.world.alice, sandbox_id))
            assert total.seconds >= 0 and all(row.seconds >= 0 for row in rows)

    # Helpers

    def ask(self, request: Coroutine[Any, Any, Any]) -> bool:
        """True when it was answered with success. A failure must be one of ours, and a loss never a surprise."""
        try:
            self.wait(request)
        except SandboxNotFound as error:
            sandbox_id = error.details.get("sandbox_id", "")
            expected = self.known[sandbox_id]
            retired = self.wait(self.world.row(sandbox_id)).reason is not None  # a timeout or retention took it
            assert expected.deleted or retired
            return False
        except PaddockError:
            return False
        return True

    def expect_whole_timeout(self, sandbox_id: str) -> None:
        row = self.wait(self.world.row(sandbox_id))
        assert row.timeout == self.known[sandbox_id].timeout
        if row.state is State.RUNNING:
            deadline = self.wait(self.world.deadline(sandbox_id))
            assert deadline is not None
            assert deadline.due_at == pytest.approx(self.world.clock.now() + row.timeout, abs=0.01)

    async def settle(self) -> None:
        """Faults end; the reconciler gets the rounds it needs."""
        self.world.faults.clear()
        for _ in range(3):
            await self.world.context.reconciler.run_once()

    def check_settled(self) -> None:
        """Once the world is kind again, database and provider agree, nothing is stuck, and overdue means done."""
        machines = self.wait(self.world.machines())
        for sandbox_id in self.known:
            state = self.wait(self.world.state(sandbox_id))
            assert state not in OPERATIONS
            assert machines.get(sandbox_id) == (None if state is State.DELETED else state.value)
        self.wait(self.world.pass_time(501))
        while self.wait(self.world.context.scheduler.tick()):
            pass
        for sandbox_id in self.known:
            assert self.wait(self.world.state(sandbox_id)) in {State.PAUSED, State.DELETED}


Lifecycle.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
TestLifecycle = pytest.mark.slow(pytest.mark.timeout(600)(Lifecycle.TestCase))
