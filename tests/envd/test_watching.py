"""Watches on the wire: asked for news, or told as it happens; in both nothing that was done before is missing."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.envd.box import Box
from tests.support.waiting import PATIENCE_S

SERVICE = "filesystem.Filesystem/"
WATCH, CREATE, NEWS, REMOVE = (
    SERVICE + name for name in ("WatchDir", "CreateWatcher", "GetWatcherEvents", "RemoveWatcher")
)


class Watcher:
    def __init__(self, box: Box, watcher_id: str) -> None:
        self.box = box
        self.watcher_id = watcher_id

    @classmethod
    async def on(cls, box: Box, path: str, **more: bool) -> Watcher:
        return cls(box, (await box.ok(CREATE, {"path": path, **more}))["watcherId"])

    async def news(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.box.ok(NEWS, {"watcherId": self.watcher_id})).get("events", [])
        return found

    async def short(self) -> list[tuple[str, str]]:
        return [(event["name"], event["type"].removeprefix("EVENT_TYPE_")) for event in await self.news()]


async def test_a_fresh_upload_is_exactly_three_events(box: Box) -> None:
    await box.ok(SERVICE + "MakeDir", {"path": "w"})
    watcher = await Watcher.on(box, "w")
    await box.put("w/file", b"content")
    assert await watcher.short() == [("file", "CREATE"), ("file", "CHMOD"), ("file", "WRITE")]
    assert await watcher.short() == []


async def test_metadata_adds_nothing_that_a_watch_sees_twice(box: Box) -> None:
    await box.ok(SERVICE + "MakeDir", {"path": "w"})
    watcher = await Watcher.on(box, "w")
    await box.put("w/file", b"content", **{"X-Metadata-A": "1", "X-Metadata-B": "2"})
    assert await watcher.short() == [("file", "CREATE"), ("file", "CHMOD"), ("file", "WRITE")]


async def test_every_act_has_its_type(box: Box) -> None:
    await box.ok(SERVICE + "MakeDir", {"path": "w"})
    await box.put("w/old", b"x")
    watcher = await Watcher.on(box, "w")
    await box.ok(SERVICE + "Move", {"source": "w/old", "destination": "w/new"})
    assert await watcher.short() == [("old", "RENAME"), ("new", "CREATE")]
    await box.run("chmod 600 w/new")
    assert await watcher.short() == [("new", "CHMOD")]
    await box.run("echo more >> w/new")
    assert await watcher.short() == [("new", "WRITE")]
    await box.ok(SERVICE + "Remove", {"path": "w/new"})
    assert await watcher.short() == [("new", "REMOVE")]


async def test_below_is_watched_when_asked_for(box: Box) -> None:
    await box.ok(SERVICE + "MakeDir", {"path": "w/deep"})
    flat, whole = await Watcher.on(box, "w"), await Watcher.on(box, "w", recursive=True)
    await box.put("w/deep/file", b"x")
    assert await flat.short() == []
    assert ("deep/file", "CREATE") in await whole.short()
    await box.put("w/new/dir/file", b"x")
    assert ("new/dir/file", "CREATE") in await whole.short()


async def test_the_entry_comes_along_when_asked_for(box: Box) -> None:
    await box.ok(SERVICE + "MakeDir", {"path": "w"})
    watcher = await Watcher.on(box, "w", includeEntry=True)
    await box.put("w/file", b"content")
    events = await watcher.news()
    assert [event["entry"]["path"] for event in events] == ["/home/user/w/file"] * 3
    assert events[0]["entry"]["size"] == "7"
    await box.ok(SERVICE + "Remove", {"path": "w/file"})
    assert "entry" not in (await watcher.news())[0]


async def test_a_watcher_ends_once(box: Box) -> None:
    watcher = await Watcher.on(box, "/tmp")
    await box.ok(REMOVE, {"watcherId": watcher.watcher_id})
    for method in (REMOVE, NEWS):
        await box.fails(method, {"watcherId": watcher.watcher_id}, 404, "not_found")


async def test_only_a_directory_that_is_there_can_be_watched(box: Box) -> None:
    await box.put("file", b"")
    await box.fails(CREATE, {"path": "missing"}, 404, "not_found")
    await box.fails(CREATE, {"path": "file"}, 400, "invalid_argument")
    for path, code in (("missing", "not_found"), ("file", "invalid_argument")):
        async with box.stream(WATCH, {"path": path}) as stream:
            [(flags, last)] = await stream.rest()
        assert (flags, last["error"]["code"]) == (2, code)


async def test_a_stream_tells_as_it_happens(box: Box) -> None:
    await box.ok(SERVICE + "MakeDir", {"path": "w"})
    async with (
        asyncio.timeout(PATIENCE_S),
        box.stream(WATCH, {"path": "w"}, **{"Keepalive-Ping-Interval": "1"}) as stream,
    ):
        assert await anext(stream) == (0, {"start": {}})
        await box.put("w/file", b"x")
        seen = [(await anext(stream))[1]["filesystem"] for _ in range(3)]
        assert [event["type"] for event in seen] == ["EVENT_TYPE_CREATE", "EVENT_TYPE_CHMOD", "EVENT_TYPE_WRITE"]
        assert {event["name"] for event in seen} == {"file"}
        assert await anext(stream) == (0, {"keepalive": {}})


async def test_a_stream_ends_at_its_deadline(box: Box) -> None:
    async with box.stream(WATCH, {"path": "/tmp"}, **{"Connect-Timeout-Ms": "300"}) as stream:
        items = await stream.rest()
    assert items[0] == (0, {"start": {}})
    assert items[-1][1]["error"]["code"] == "deadline_exceeded"


async def test_a_sandbox_has_only_so_many_watchers(box: Box) -> None:
    made = 0
    while (answer := await box.call(CREATE, {"path": "/tmp"})).status_code == 200:
        made += 1
    assert answer.json()["code"] == "resource_exhausted"
    assert 16 < made <= 128
