"""What is not a port's page and yet comes from a sandbox, opened in a real Chromium: files by every route, and MCP.

As in ``test_origins``, each is tried as it is and through a proxy that hides what browsers say of a request.
"""

from __future__ import annotations

import hmac
import json
from base64 import b64encode, urlsafe_b64encode
from hashlib import sha256
from urllib.parse import quote, urlencode

import pytest

from tests.gateway.bed import Box
from tests.gateway.browser import CHROMIUM, Browser, Page
from tests.gateway.hostile import Attacker, caught, opened

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt-get install chromium)"),
]

FILES = {
    "page.html": "<!doctype html><script>%s</script>",
    "page.xhtml": "<html xmlns='http://www.w3.org/1999/xhtml'><script>%s</script></html>",
    "picture.svg": "<svg xmlns='http://www.w3.org/2000/svg'><script>%s</script></svg>",
    "note.txt": "<!doctype html><script>%s</script>",
    "nothing": "<!doctype html><script>%s</script>",
    "sheet.xml": "<?xml version='1.0'?><x xmlns:h='http://www.w3.org/1999/xhtml'><h:script>%s</h:script></x>",
}


def put(attacker: Attacker, name: str, text: str) -> str:
    """A file of the attacker's; its path."""
    box, path = attacker.box, f"/workspace/{name}"
    with box.bed.api() as api:
        where = f"/sandboxes/{box.sandbox_id}/files"
        api.put(where, params={"path": path}, content=text.encode()).raise_for_status()
    return path


def signed_by_e2b(box: Box, path: str) -> str:
    token = box.bed.context.tokens.access(box.key)
    digest = b64encode(sha256(f"{path}:read:user:{token}".encode()).digest()).decode().rstrip("=")
    return urlencode({"path": path, "username": "user", "signature": f"v1_{digest}"})


def signed_by_daytona(box: Box, path: str) -> str:
    with box.bed.api() as api:
        key = api.get(f"/daytona/api/sandbox/{box.key}/signing-key").raise_for_status().json()
    digest = hmac.new(key.encode(), f"v1:files:GET:{path}:0".encode(), sha256).digest()
    signature = "v1_" + urlsafe_b64encode(digest).rstrip(b"=").decode()
    return urlencode({"path": path, "expires": 0, "signature": signature})


@pytest.mark.parametrize("name", FILES)
async def test_a_file_that_is_a_page_runs_nothing_where_it_is_shown(
    attacker: Attacker, browser: Browser, name: str
) -> None:
    """E2B's signed URLs are shown in the browser, on the API's own host."""
    box = attacker.box
    path = put(attacker, name, FILES[name] % attacker.code("caught('ran at ' + self.origin)"))
    query = signed_by_e2b(box, path)
    for address in (f"/files?{query}", f"/p/{box.key}/49983/files?{query}"):
        page = await browser.tab()
        await page.open(attacker.api + address)
        if name != "nothing":  # which is downloaded
            await page.until(f"location.href.startsWith('{attacker.api}/') && document.readyState === 'complete'")
            assert await page.evaluate("self.origin") == "null"
    assert await caught(browser, attacker) == []


async def with_key(browser: Browser, box: Box) -> Page:
    """A tab in which every request shows the key of who uses it."""
    page = await browser.tab()
    await page.call("Network.enable")
    await page.call("Network.setExtraHTTPHeaders", headers={"Authorization": f"Bearer {box.bed.key}"})
    return page


@pytest.mark.parametrize("name", FILES)
async def test_a_file_that_is_a_page_is_downloaded_and_never_shown(
    attacker: Attacker, browser: Browser, name: str
) -> None:
    """By the native route and Daytona's, also for who has the key or a signature; and in a frame."""
    box = attacker.box
    path = put(attacker, name, FILES[name] % attacker.code("caught('ran at ' + self.origin)"))
    daytona = f"/daytona/toolbox/{box.key}/files/download"
    signed = f"{daytona}?{signed_by_daytona(box, path)}"
    addresses = (f"/sandboxes/{box.sandbox_id}/files?path={quote(path)}", f"{daytona}?path={quote(path)}", signed)
    for address in addresses:
        page = await with_key(browser, box)
        await page.open(attacker.api + address)
        assert await page.evaluate("location.href") == "about:blank"
    stranger = await browser.tab()
    await stranger.open(attacker.api + signed)
    assert await stranger.evaluate("location.href") == "about:blank"
    framed = "".join(f"<iframe src='{attacker.api}{address}'></iframe>" for address in addresses)
    await opened(browser, attacker.host + attacker.page("", body=framed))
    assert await caught(browser, attacker) == []


@pytest.mark.parametrize("by", ["native", "daytona", "envd", "mcp"])
async def test_an_error_about_a_file_runs_nothing_of_its_name(attacker: Attacker, browser: Browser, by: str) -> None:
    box = attacker.box
    name = quote(f'<img src=x onerror="{attacker.code("caught(self.origin)")}">')
    address = {
        "native": f"/sandboxes/{box.sandbox_id}/files?path={name}",
        "daytona": f"/daytona/toolbox/{box.key}/files/download?path={name}",
        "envd": f"/p/{box.key}/49983/files?path={name}&username={name}&signature=v1_x",
        "mcp": f"/p/{box.key}/6060/{name}?{name}",
    }[by]
    page = await with_key(browser, box)
    await page.open(attacker.api + address)
    await page.until(f"location.href.startsWith('{attacker.api}/') && document.readyState === 'complete'")
    assert await page.evaluate("self.origin") == "null"
    assert await caught(browser, attacker) == []


@pytest.mark.parametrize("path", ["/", "/mcp/", "/health"])
@pytest.mark.parametrize("key", [True, False])
async def test_the_port_of_mcp_is_no_page_by_any_address(
    attacker: Attacker, browser: Browser, path: str, key: bool
) -> None:
    """The server answers on it, also where a program inside has taken it."""
    box = attacker.box
    box.run("python3 /workspace/attacker.py 6060", background=True)
    by_host = attacker.host.replace("3000-", "6060-")
    for address in (f"{attacker.api}/p/{box.key}/6060{path}", f"{by_host}{path}"):
        page = await with_key(browser, box) if key else await browser.tab()
        await page.open(address)
        await page.until(f"location.href === {json.dumps(address)} && document.readyState === 'complete'")
        assert await page.evaluate("self.origin") == "null"
        assert await page.evaluate("document.contentType") == "application/json"
    assert await caught(browser, attacker) == []


async def test_a_script_among_the_files_is_no_worker_of_the_api(attackers_box: Box, browser: Browser) -> None:
    attacker = Attacker(attackers_box, attackers_box.bed.port)
    path = put(attacker, "sw.js", "onfetch = () => {}")
    docs = await opened(browser, f"{attacker.api}/docs")
    by_e2b, by_daytona = signed_by_e2b(attackers_box, path), signed_by_daytona(attackers_box, path)
    for script in (
        f"/files?{by_e2b}",
        f"/p/{attackers_box.key}/49983/files?{by_e2b}",
        f"/daytona/toolbox/{attackers_box.key}/files/download?{by_daytona}",
    ):
        register = f"navigator.serviceWorker.register({json.dumps(script)}).then(() => 'registered', e => e.name)"
        assert await docs.evaluate(register) in ("TypeError", "SecurityError")
