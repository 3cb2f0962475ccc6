"""A person watches the browser through the gateway, and takes it over."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from PIL import Image
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from tests.browser.conftest import URL, Visitor

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # the first test waits for the install
SECONDS = 60


@asynccontextmanager
async def watching(visitor: Visitor, **headers: str) -> AsyncIterator[Watcher]:
    box = visitor.box
    given = {"X-API-Key": box.bed.key, **headers}
    address = f"ws://127.0.0.1:{box.bed.port}/p/{box.key}/6080/live"
    async with connect(address, additional_headers=given, proxy=None, max_size=None, open_timeout=SECONDS) as socket:
        yield Watcher(socket)


class Watcher:
    """Keeps all that it was sent: a page at rest is pictured once, and that may come before anything else."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._seen: list[Any] = []

    async def send(self, **wish: Any) -> None:
        await self._socket.send(json.dumps(wish))

    async def until(self, wanted: Callable[[Any], bool]) -> Any:
        """The first message that is wanted: a picture as bytes, anything else as it was before JSON."""
        async with asyncio.timeout(SECONDS):
            while not (found := [said for said in self._seen if wanted(said)]):
                message = await self._socket.recv()
                self._seen.append(message if isinstance(message, bytes) else json.loads(message))
            return found[0]


def titles(*expected: str) -> Callable[[Any], bool]:
    return lambda said: isinstance(said, dict) and [tab["title"] for tab in said.get("tabs", ())] == list(expected)


async def test_whoever_watches_sees_pictures_and_tabs(visitor: Visitor) -> None:
    async with watching(visitor) as watcher:
        await watcher.until(titles("First"))
        picture = Image.open(io.BytesIO(await watcher.until(lambda said: isinstance(said, bytes))))
        assert picture.format == "JPEG"
        red, green, blue = picture.convert("RGB").getpixel((600, 100))
        assert red > 200 and green < 60 and blue < 60


async def test_whoever_takes_control_has_the_mouse_the_keys_and_the_address(visitor: Visitor) -> None:
    async with watching(visitor) as watcher:
        await watcher.until(lambda said: isinstance(said, bytes))
        for kind in ("down", "up"):
            await watcher.send(type="mouse", kind=kind, x=50, y=50, button=0)
        shown = "getComputedStyle(document.querySelector('#corner')).backgroundColor"
        async with asyncio.timeout(SECONDS):
            while await asyncio.to_thread(visitor.value, shown) != "rgb(0, 128, 0)":
                await asyncio.sleep(0.1)
        await watcher.send(type="navigate", url=f"{URL}/second")
        await watcher.until(titles("Second"))


async def test_another_sites_page_may_not_watch(visitor: Visitor) -> None:
    with pytest.raises(InvalidStatus):
        async with watching(visitor, Origin="http://elsewhere.example"):
            pass


def test_the_link_opens_at_the_first_click_and_nobody_comes_without(visitor: Visitor) -> None:
    link = visitor.do("browser_live_view").data["url"]
    box = visitor.box
    target = link.partition(f".localhost:{box.bed.port}")[2]
    with httpx.Client(base_url=box.bed.url, headers={"Host": box.host(6080), "Accept": "text/html"}) as person:
        assert person.get("/").status_code == 403
        first = person.get(target)
        assert first.status_code == 302
        page = person.get("/", headers={"Cookie": first.headers["set-cookie"].partition(";")[0]})
        assert page.status_code == 200
        assert "Take control" in page.text
