"""A real Chromium, spoken to by its own protocol, so that tests need nothing but the browser."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.support.waiting import PATIENCE_S

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)


_ANSWER_SECONDS = 150.0


class Navigated(Exception):
    """The page went elsewhere while it was asked something."""


class Page:
    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._number = 0

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        await self._connection.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        async with asyncio.timeout(_ANSWER_SECONDS):
            while True:
                message = json.loads(await self._connection.recv())
                if message.get("id") == self._number:
                    if "navigated" in message.get("error", {}).get("message", ""):
                        raise Navigated
                    assert "error" not in message, message
                    return dict(message["result"])

    async def evaluate(self, expression: str) -> Any:
        answer = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, expression: str) -> Any:
        """Wait until it is true in the page, or in one that it goes to."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    if value := await self.evaluate(expression):
                        return value
                except Navigated:
                    continue
                await asyncio.sleep(0.05)

    async def open(self, url: str) -> None:
        await self.call("Page.enable")
        await self.call("Page.navigate", url=url)

    async def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **size)

    async def click(self, element: str) -> None:
        """In the middle of what the expression finds."""
        box = await self.evaluate(f"(({element}).getBoundingClientRect()).toJSON()")
        at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2, "button": "left", "clickCount": 1}
        for kind in ("mousePressed", "mouseReleased"):
            await self.call("Input.dispatchMouseEvent", type=kind, **at)

    async def write(self, text: str) -> None:
        """Where the focus is."""
        await self.call("Input.insertText", text=text)

    async def press(self, key: str, *, ctrl: bool = False) -> None:
        code = {"Enter": 13, "Home": 36, "`": 192}.get(key) or ord(key.upper())
        named = {"code": "Backquote"} if key == "`" else {}
        keys = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 2 if ctrl else 0, **named}
        typed = {"text": "\r"} if key == "Enter" else {}
        await self.call("Input.dispatchKeyEvent", type="keyDown", **keys, **typed)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **keys)

    async def screenshot(self, path: Path) -> None:
        taken = await self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(taken["data"]))


class Browser:
    """One browser with one profile: its tabs share cookies and storage, as a person's do."""

    def __init__(self, address: str, control: Page, tabs: AsyncExitStack) -> None:
        self._address = address
        self._control = control
        self._tabs = tabs

    async def tab(self) -> Page:
        made = await self._control.call("Target.createTarget", url="about:blank")
        return await self._attach(made["targetId"])

    async def opened(self, part_of_the_url: str, seconds: float = 30) -> Page:
        """A tab that a page opened."""
        async with asyncio.timeout(seconds):
            while True:
                for target in (await self._control.call("Target.getTargets"))["targetInfos"]:
                    if target["type"] == "page" and part_of_the_url in target["url"]:
                        return await self._attach(target["targetId"])
                await asyncio.sleep(0.05)

    async def targets(self, kind: str) -> list[str]:
        """The addresses of all that is of this kind: ``page``, ``service_worker``."""
        found = (await self._control.call("Target.getTargets"))["targetInfos"]
        return [target["url"] for target in found if target["type"] == kind]

    async def frames(self) -> list[Page]:
        """Those that have a process of their own, as frames of another origin do."""
        found = (await self._control.call("Target.getTargets"))["targetInfos"]
        return [await self._attach(target["targetId"]) for target in found if target["type"] == "iframe"]

    async def cookies(self) -> list[dict[str, Any]]:
        return list((await self._control.call("Storage.getCookies"))["cookies"])

    async def _attach(self, target: str) -> Page:
        page = f"{self._address.partition('/devtools/')[0]}/devtools/page/{target}"
        return Page(await self._tabs.enter_async_context(connect(page, proxy=None, max_size=None)))


@asynccontextmanager
async def chromium(profile: Path, program: str | None = CHROMIUM) -> AsyncIterator[Page]:
    async with chromium_browser(profile, program) as browser:
        yield await browser.tab()


@asynccontextmanager
async def chromium_browser(profile: Path, program: str | None = CHROMIUM, *options: str) -> AsyncIterator[Browser]:
    assert program is not None
    process = await asyncio.create_subprocess_exec(
        program,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--no-proxy-server",
        "--no-first-run",
        "--remote-debugging-port=0",
        "--window-size=900,600",
        f"--user-data-dir={profile}",
        *options,
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(PATIENCE_S):
            while b"DevTools listening on " not in (line := await process.stderr.readline()):
                assert line, "Chromium did not start"
        address = line.decode().partition("listening on ")[2].strip()
        draining = asyncio.create_task(process.stderr.read())
        async with connect(address, proxy=None, max_size=None) as whole, AsyncExitStack() as tabs:
            yield Browser(address, Page(whole), tabs)
        draining.cancel()
    finally:
        process.terminate()
        await process.wait()
