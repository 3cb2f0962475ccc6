"""The other side of the chaos: clients that use sandboxes while servers die, and remember what they were promised."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from paddock.client.sse import EventDecoder
from tests.chaos.output import Followed, Writing, some_writing, wrong_with_answer
from tests.chaos.timeline import Answered, Setting, Uses
from tests.support.waiting import until

MOST_UNANSWERED = 40
"""Creates without an answer, after which nobody asks for something new: all are asked for again in the end."""
_MAX_ASKING_S = 300.0
_ANSWER_S = 20.0
"""How long a client waits for an answer."""
_LEAVE_S = _ANSWER_S + 5
"""When nobody is to ask for more, all requests are answered or given up within this time, but for streams."""
_PUT_OFF = {"resume": 1.0, "timeout": 1.0, "run-command": 0.5}
"""How much of the timeout is certain after each, whoever dies: see :class:`~tests.chaos.timeline.Answered`."""


@dataclass
class Promise:
    """What a client knows of one sandbox from the answers that it got."""

    sandbox_id: str
    timeout: int
    on_timeout: str
    deleted: bool = False
    """A delete was acknowledged."""
    maybe_deleted: bool = False
    """A delete was sent; the answer was lost."""
    uses: Uses = field(default_factory=Uses)


@dataclass(frozen=True)
class Asked:
    """A command that was sent and not answered."""

    sandbox_id: str
    writing: Writing
    background: bool
    """It is followed once its process is known."""


@dataclass
class Herd:
    urls: list[str]
    api_key: str
    rng: random.Random
    promises: dict[str, Promise] = field(default_factory=dict)
    keys: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Creates that were sent and not answered, by idempotency key."""
    created_by_key: dict[str, str] = field(default_factory=dict)
    commands: dict[str, Asked] = field(default_factory=dict)
    """By idempotency key."""
    followed: list[Followed] = field(default_factory=list)
    answered: Counter[str] = field(default_factory=Counter)
    """Commands that were answered, by sandbox: each of them is to be counted once."""
    answers: int = 0
    successes: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    last_refusal: dict[str, str] = field(default_factory=dict)
    bytes_read: int = 0
    bytes_missing: int = 0
    """Of output that was said to be kept no more."""
    surprises: list[str] = field(default_factory=list)
    """Answers that no crash explains."""
    _asking: int = 0
    _waits: bool = False

    async def graze(self, workers: int, stop: asyncio.Event) -> None:
        async with httpx.AsyncClient(headers={"X-API-Key": self.api_key}, timeout=_ANSWER_S) as client:
            grazing = [asyncio.create_task(self._worker(client, stop)) for _ in range(workers)]
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait([*grazing, stopping], return_when=asyncio.FIRST_COMPLETED)
            # Who follows a sandbox that somebody has paused waits until somebody wakes it, and nobody does any more.
            _, left = await asyncio.wait(grazing, timeout=_LEAVE_S if stop.is_set() else 0)
            for one in (*left, stopping):
                one.cancel()
            for one in await asyncio.gather(*grazing, return_exceptions=True):
                if isinstance(one, Exception):
                    raise one

    async def _worker(self, client: httpx.AsyncClient, stop: asyncio.Event) -> None:
        while not stop.is_set():
            actions = (
                self.create,
                self.pause,
                self.resume,
                self.delete,
                self.retime,
                self.run,
                self.follow,
                self.ask_usage,
            )
            (action,) = self.rng.choices(actions, [5, 4, 8, 3, 2, 6, 3, 1])
            try:
                await action(client)
            except httpx.TransportError:
                await asyncio.sleep(0.02)  # that server is dead; another, or the next one, will answer

    async def create(self, client: httpx.AsyncClient) -> None:
        if len(self.keys) >= MOST_UNANSWERED or (self.keys and self.rng.random() < 0.7):
            key = self.rng.choice(list(self.keys))
        elif len(self._alive()) >= 24:
            return await self.delete(client)
        else:
            key = secrets.token_hex(8)
            self.keys[key] = {
                "user_id": "herd",
                "timeout": self.rng.choice([1, 1, 2, 3600]),
                "on_timeout": self.rng.choice(["pause", "delete"]),
            }
        await self._create(client, key)
        return None

    async def ask_again(self, client: httpx.AsyncClient) -> None:
        """Whoever never had an answer to a create or a command sends it again, with its key, until there is one."""
        with contextlib.suppress(TimeoutError):  # what has no answer then is found by the judge
            async with asyncio.timeout(_MAX_ASKING_S):
                await self._ask_until_answered(client)

    async def _ask_until_answered(self, client: httpx.AsyncClient) -> None:
        while self.keys or self.commands:
            for key in list(self.keys):
                await self._create(client, key)
            for key in list(self.commands):
                await self._run(client, key)
        for followed in self.followed:
            while not followed.ended:
                await self._follow(client, followed)

    async def _create(self, client: httpx.AsyncClient, key: str) -> None:
        body = self.keys[key]
        answer = await self._post(client, "create", body, {"Idempotency-Key": key})
        if answer.status_code == 200:
            sandbox_id = answer.json()["sandbox_id"]
            self.keys.pop(key, None)
            if self.created_by_key.setdefault(key, sandbox_id) != sandbox_id:
                self.surprises.append(f"key {key} made both {self.created_by_key[key]} and {sandbox_id}")
            uses = Uses(settings=[Setting(-math.inf, -math.inf, body["timeout"])])
            self.promises.setdefault(sandbox_id, Promise(sandbox_id, body["timeout"], body["on_timeout"], uses=uses))

    async def run(self, client: httpx.AsyncClient) -> None:
        if len(self.commands) >= MOST_UNANSWERED or (self.commands and self.rng.random() < 0.5):
            key = self.rng.choice(list(self.commands))
        elif (promise := self._some()) is not None:
            key = secrets.token_hex(8)
            background = self.rng.random() < 0.3
            writing = some_writing(self.rng, steps=background)
            self.commands[key] = Asked(promise.sandbox_id, writing, background)
        else:
            return
        await self._run(client, key)

    async def _run(self, client: httpx.AsyncClient, key: str) -> None:
        asked = self.commands[key]
        body = {
            "sandbox_id": asked.sandbox_id,
            "command": asked.writing.command,
            "background": asked.background,
        }
        answer = await self._post(client, "run-command", body, {"Idempotency-Key": key})
        if answer.status_code not in (200, 404) or self.commands.pop(key, None) is None:
            return
        if answer.status_code == 404:
            self._expect_gone(asked.sandbox_id)
            return
        told = answer.json()
        self.answered[asked.sandbox_id] += 1
        if asked.background:
            self.followed.append(Followed(asked.writing, asked.sandbox_id, told["process_id"]))
            return
        self.bytes_read += told["stdout_offset"] - told["stdout_start"]
        self.bytes_missing += told["stdout_skipped"]
        if wrong := wrong_with_answer(told, asked.writing):
            self.surprises.append(f"{asked}: {wrong}")

    async def follow(self, client: httpx.AsyncClient) -> None:
        """Some process's output, from where it was left."""
        left = [followed for followed in self.followed if not followed.ended and not followed.held]
        if left:
            await self._follow(client, self.rng.choice(left))

    async def _follow(self, client: httpx.AsyncClient, followed: Followed) -> None:
        followed.held = True
        before = followed.position - followed.skipped, followed.skipped
        try:
            with self._using(followed.sandbox_id):
                await self._read_stream(client, followed)
        finally:
            followed.held = False
            self.bytes_read += followed.position - followed.skipped - before[0]
            self.bytes_missing += followed.skipped - before[1]

    async def _read_stream(self, client: httpx.AsyncClient, followed: Followed) -> None:
        url = f"{self.rng.choice(self.urls)}/sandboxes/{followed.sandbox_id}/processes/{followed.process_id}/stream"
        async with client.stream("GET", url, headers={"Last-Event-ID": f"{followed.position}.0"}) as answer:
            if answer.status_code == 404:
                self._expect_gone(followed.sandbox_id)
                followed.ended = True
            if answer.status_code != 200:
                return
            decoder = EventDecoder()
            async for chunk in answer.aiter_bytes():
                for event in decoder.feed(chunk):
                    if wrong := followed.take(event.event, event.data):
                        followed.ended = True
                        self.surprises.append(f"{followed}: {wrong}")
                        return

    async def pause(self, client: httpx.AsyncClient) -> None:
        await self._on_some(client, "pause")

    async def resume(self, client: httpx.AsyncClient) -> None:
        await self._on_some(client, "resume")

    async def retime(self, client: httpx.AsyncClient) -> None:
        promise = self._some()
        if promise is None:
            return
        start, end, timeout = time.time(), math.inf, self.rng.choice([1, 2, 3600])
        refused = False
        try:
            answer = await self._post(client, "timeout", {"sandbox_id": promise.sandbox_id, "timeout": timeout})
            refused = 400 <= answer.status_code < 500
            end = time.time() if answer.status_code == 200 else math.inf
        finally:
            if not refused:
                promise.uses.settings.append(Setting(start, end, timeout))

    async def ask_usage(self, client: httpx.AsyncClient) -> None:
        """Beside whatever runs. What it must answer is judged when nobody dies: see the scene."""
        answer = await client.get(f"{self.rng.choice(self.urls)}/usage")
        if answer.status_code not in (200, 503):
            self.surprises.append(f"usage: {answer.status_code} {answer.text}")

    async def delete(self, client: httpx.AsyncClient) -> None:
        promise = self._some()
        if promise is None:
            return
        promise.maybe_deleted = True
        answer = await self._post(client, "delete", {"sandbox_id": promise.sandbox_id})
        if answer.status_code == 200:
            promise.deleted = True

    async def _on_some(self, client: httpx.AsyncClient, action: str) -> None:
        promise = self._some()
        if promise is None:
            return
        answer = await self._post(client, action, {"sandbox_id": promise.sandbox_id})
        if answer.status_code == 404:
            self._expect_gone(promise.sandbox_id)

    def _expect_gone(self, sandbox_id: str) -> None:
        promise = self.promises[sandbox_id]
        if not (promise.maybe_deleted or promise.on_timeout == "delete"):
            self.surprises.append(f"{sandbox_id} is gone, and nobody deleted it")

    async def _post(
        self, client: httpx.AsyncClient, action: str, body: dict[str, Any], headers: dict[str, str] | None = None
    ) -> httpx.Response:
        url = self.rng.choice(self.urls)
        await until(lambda: not self._waits)
        sandbox_id, start = body.get("sandbox_id"), time.time()
        self._asking += 1
        try:
            with self._using(sandbox_id):
                answer = await post(client, url, action, body, headers)
        finally:
            self._asking -= 1
        if sandbox_id is not None and answer.status_code == 200 and action in _PUT_OFF:
            self.promises[sandbox_id].uses.answered.append(Answered(start, time.time(), _PUT_OFF[action]))
        self.answers += 1
        self.successes += answer.status_code == 200
        if answer.status_code != 200:
            self.refused[f"{action} {answer.status_code}"] += 1
            self.last_refusal[action] = answer.text
        if answer.status_code >= 500 and answer.status_code not in (503, 507):
            self.surprises.append(f"{action}: {answer.status_code} {answer.text}")
        return answer

    @asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        """Nobody changes anything meanwhile; who follows output goes on."""
        self._waits = True
        try:
            await until(lambda: not self._asking)
            yield
        finally:
            self._waits = False

    @contextlib.contextmanager
    def _using(self, sandbox_id: str | None) -> Iterator[None]:
        """A use of that sandbox, where it is one's."""
        start, over = time.time(), 0.0
        try:
            yield
        except httpx.TimeoutException:
            over = _ANSWER_S  # the server may be at it still
            raise
        finally:
            if sandbox_id is not None:
                self.promises[sandbox_id].uses.spans.append((start, time.time() + over))

    def _alive(self) -> list[Promise]:
        return [promise for promise in self.promises.values() if not promise.deleted]

    def _some(self) -> Promise | None:
        alive = self._alive()
        return self.rng.choice(alive) if alive else None


async def post(
    client: httpx.AsyncClient, url: str, action: str, body: dict[str, Any], headers: dict[str, str] | None = None
) -> httpx.Response:
    """At the server that can act on it: another one says where that is. (To pass it on takes Paddock's own listener,
    and these servers have that of uvicorn.)"""
    answer = await client.post(f"{url}/sandboxes/{action}", json=body, headers=headers)
    if answer.status_code == 421 and (there := answer.json()["error"]["details"]["url"]):
        return await client.post(f"{there}/sandboxes/{action}", json=body, headers=headers)
    return answer
