"""A person's hands on the live view: its own page in a real Chromium, driving the one in the sandbox."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Visitor
from tests.gateway.browser import CHROMIUM, Page, chromium

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),  # the first test waits for the install
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt-get install chromium)"),
]
SECONDS = 60
PASTED = "first line\nÜmlaut, 漢字, 😀\n" * 600
WATCH = """(() => {
  window.doubles = 0;
  addEventListener('dblclick', () => { window.doubles += 1; });
  document.body.insertAdjacentHTML('beforeend', '<textarea id="wide">');
  wide.style = 'position: absolute; left: 200px; top: 0; width: 400px; height: 200px';
})()"""


@pytest.fixture
async def viewer(visitor: Visitor, tmp_path: Path) -> AsyncIterator[Page]:
    """In control."""
    await asyncio.to_thread(visitor.value, WATCH)
    link = (await asyncio.to_thread(visitor.do, "browser_live_view")).data["url"]
    async with chromium(tmp_path / "viewer") as page:
        await page.open(link)
        await page.until("document.title.includes('First')")
        await page.click("document.querySelector('#control')")
        yield page


async def point(page: Page, x: float, y: float, clicks: int = 1) -> None:
    """At these pixels of the page that is watched."""
    spot = await page.evaluate(
        "(() => { const box = screen.getBoundingClientRect();"
        f" return [box.left + {x} * box.width / screen.width, box.top + {y} * box.height / screen.height] }})()"
    )
    at = {"x": spot[0], "y": spot[1], "button": "left"}
    for count in range(1, clicks + 1):
        for kind in ("mousePressed", "mouseReleased"):
            await page.call("Input.dispatchMouseEvent", type=kind, clickCount=count, **at)


async def key(page: Page, name: str, **more: Any) -> None:
    text = {"text": name} if len(name) == 1 else {}
    await page.call("Input.dispatchKeyEvent", type="keyDown", key=name, **{**text, **more})
    await page.call("Input.dispatchKeyEvent", type="keyUp", key=name)


async def until(visitor: Visitor, expression: str, wanted: Any) -> None:
    found = None
    try:
        async with asyncio.timeout(SECONDS):
            while (found := await asyncio.to_thread(visitor.value, expression)) != wanted:
                await asyncio.sleep(0.1)
    except TimeoutError:
        pytest.fail(f"{expression} is {found!r}, not {wanted!r}")


async def test_a_double_click_is_one_and_selects_a_word(visitor: Visitor, viewer: Page) -> None:
    await asyncio.to_thread(visitor.value, "document.querySelector('#wide').value = 'oneword'")
    await point(viewer, 220, 12, clicks=2)
    await until(visitor, "[window.doubles, document.getSelection().toString()]", [1, "oneword"])


async def test_every_character_can_be_typed_composed_and_pasted(visitor: Visitor, viewer: Page) -> None:
    await point(viewer, 300, 100)
    await until(visitor, "document.activeElement.id", "wide")
    typed = "document.querySelector('#wide').value"

    for character in "aBü€é ":
        await key(viewer, character)
    await key(viewer, "x")
    await key(viewer, "Backspace", windowsVirtualKeyCode=8)
    await until(visitor, typed, "aBü€é ")

    await viewer.call("Input.imeSetComposition", text="にほ", selectionStart=2, selectionEnd=2)
    await viewer.call("Input.insertText", text="日本")
    await until(visitor, typed, "aBü€é 日本")

    await viewer.evaluate(
        f"(() => {{ const data = new DataTransfer(); data.setData('text/plain', {json.dumps(PASTED)});"
        " keys.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, cancelable: true })) })()"
    )
    await until(visitor, typed, f"aBü€é 日本{PASTED}")


async def test_keys_of_other_keyboards_are_typed_for_other_viewers_too(visitor: Visitor, viewer: Page) -> None:
    """Who speaks the protocol without our page."""
    await point(viewer, 300, 100)
    await until(visitor, "document.activeElement.id", "wide")
    await viewer.evaluate("for (const kind of ['down', 'up']) act({ type: 'key', kind, key: 'ß' })")
    await until(visitor, "document.querySelector('#wide').value", "ß")
