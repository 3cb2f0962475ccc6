"""Pages of sandboxes in a real Chromium, with every trick to become one with the API's own origin.

A victim uses ``/docs`` with a key, and opens what a sandbox serves. Nothing of it may run on the API's origin, leave
anything there, or keep a hold on a page of it. Most tricks are played twice: as they are, where the gateway refuses
what a browser would show or run; and through a proxy that hides what browsers say of a request, where the answer's own
headers must do.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.gateway.bed import PORT, Bed, Box
from tests.gateway.browser import CHROMIUM, Browser, chromium_browser
from tests.gateway.hostile import Attacker, box_of_attacker, caught, click, give_swagger_the_key, opened
from tests.gateway.old_proxy import OldProxy
from tests.support.waiting import PATIENCE_S

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt-get install chromium)"),
]

SCRIPT = ("Content-Type", "text/javascript")
EXPOSE = f"""python3 - <<'END'
import json, os, urllib.request
call = {{"name": "expose_port", "arguments": {{"port": {PORT}}}}}
asked = {{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}}
headers = {{
    "Authorization": "Bearer " + os.environ["PADDOCK_MCP_TOKEN"],
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
}}
request = urllib.request.Request(os.environ["PADDOCK_MCP_URL"], json.dumps(asked).encode(), headers)
print(urllib.request.urlopen(request).read().decode())
END"""


async def test_a_preview_page_cannot_steal_the_key_of_who_uses_the_docs(local_bed: Bed, browser: Browser) -> None:
    """As it was reported: a link made from inside, a redirect to the path form, the stored key, a service worker."""
    box = box_of_attacker(local_bed)
    attacker = Attacker(box, local_bed.port)
    victim = await opened(browser, f"{attacker.api}/docs")
    await give_swagger_the_key(victim, local_bed.key)

    said = box.run(EXPOSE)
    link = next(word for word in said.replace('"', " ").replace("\\", " ").split() if "paddock_link=" in word)
    token = link.partition("paddock_link=")[2].rstrip(".,)")
    worker = attacker.answer("onfetch = () => {}", SCRIPT, ("Service-Worker-Allowed", "/"), path="/sw.js")
    steal = f"""document.title = 'stolen ' + JSON.stringify(localStorage);
        navigator.serviceWorker.register('/p/{box.key}/{PORT}{worker}', {{scope: '/'}})"""
    there = f"{attacker.prefix}{attacker.page(steal)}&paddock_link={token}"
    preview = await browser.tab()
    await preview.open(f"{attacker.host}{attacker.page(f'location = {json.dumps(there)}')}&paddock_link={token}")
    await preview.until(f"location.href.startsWith('{attacker.api}/') && document.readyState === 'complete'")
    assert "stolen" not in await preview.evaluate("document.title")
    assert "for programs" in await preview.evaluate("document.title")
    assert await preview.evaluate("navigator.serviceWorker.getRegistrations().then(found => found.length)") == 0
    assert local_bed.key not in await victim.evaluate("JSON.stringify({...localStorage, ...sessionStorage})")
    box.delete()


async def test_the_docs_work_and_violate_no_policy_of_their_own(attackers_box: Box, browser: Browser) -> None:
    attacker = Attacker(attackers_box, attackers_box.bed.port)
    page = await browser.tab()
    await page.call("Page.enable")
    watch = (
        "window.violations = []; addEventListener('securitypolicyviolation', e => violations.push(e.violatedDirective))"
    )
    await page.call("Page.addScriptToEvaluateOnNewDocument", source=watch)
    await page.open(f"{attacker.api}/docs")
    await give_swagger_the_key(page, attackers_box.bed.key)
    await page.click("document.querySelector('.btn-done')")
    listed = "#operations-sandboxes-list_sandboxes"
    for button in (".opblock-summary-control", ".try-out__btn", ".execute"):
        await page.until(f"document.querySelector('{listed} {button}') !== null")
        await page.evaluate(f"document.querySelector('{listed} {button}').click()")
    await page.until(
        f"document.querySelector('{listed} .live-responses-table')?.innerText.includes('{attackers_box.key}')"
    )
    assert await page.evaluate("violations") == []
    assert await page.evaluate("localStorage.length + sessionStorage.length") == 0
    await page.evaluate("localStorage.setItem('authorized', 'a key that an earlier version has kept')")
    again = await opened(browser, f"{attacker.api}/docs")
    await again.until("document.querySelector('.btn.authorize') !== null")
    assert await again.evaluate("localStorage.length") == 0


WAYS = {
    "location": "location = there",
    "replace": "location.replace(there)",
    "form": "document.body.innerHTML = `<form method=post action='${there}'></form>`; document.forms[0].submit()",
    "meta": "document.head.innerHTML = `<meta http-equiv=refresh content='0; url=${there}'>`",
    "302": "location = moved(302)",
    "307": "location = moved(307)",
    "refresh": "location = refresh",
}


@pytest.mark.parametrize("way", WAYS)
async def test_however_a_page_goes_to_the_path_form_it_runs_nothing_there(
    attacker: Attacker, browser: Browser, way: str
) -> None:
    there = attacker.prefix + attacker.page("caught('ran at ' + location.origin + ' ' + localStorage.length)")
    moved = {code: attacker.answer("", ("Location", there), path="/moved", status=code) for code in (302, 307)}
    refresh = attacker.answer("", ("Refresh", f"0; url={there}"), path="/refresh")
    code = f"""
        const there = {json.dumps(there)}, refresh = {json.dumps(refresh)};
        const moved = (code) => ({json.dumps(moved)})[code];
        onload = () => {{ {WAYS[way]} }}"""
    page = await browser.tab()
    await page.open(attacker.host + attacker.page(code))
    await page.until(f"location.href.startsWith('{attacker.api}/') && document.readyState === 'complete'")
    assert await caught(browser, attacker) == []


async def test_no_element_loads_the_path_form_as_a_document_of_the_apis_origin(
    attacker: Attacker, browser: Browser
) -> None:
    ran = attacker.code("caught('ran at ' + self.origin + ' ' + self.location.origin)")
    page = f"<!doctype html><script>{ran}</script>"
    svg = f"<svg xmlns='http://www.w3.org/2000/svg'><script>{ran}</script></svg>"
    kinds = {
        "html": (page, "text/html"),
        "xhtml": (f"<html xmlns='http://www.w3.org/1999/xhtml'><script>{ran}</script></html>", "application/xhtml+xml"),
        "svg": (svg, "image/svg+xml"),
        "text": (page, "text/plain"),
        "unknown": (page, "x/y"),
        "parts": (f"--b\r\nContent-Type: text/html\r\n\r\n{page}\r\n--b--", "multipart/x-mixed-replace; boundary=b"),
        "own policy": (page, "text/html"),
        "error": (page, "text/html"),
    }
    addresses = [
        attacker.prefix
        + attacker.answer(
            body,
            ("Content-Type", kind),
            *(
                (("Content-Security-Policy", "sandbox allow-scripts allow-same-origin"),)
                if name == "own policy"
                else ()
            ),
            status=500 if name == "error" else 200,
            path=f"/{name.replace(' ', '-')}",
        )
        for name, (body, kind) in kinds.items()
    ]
    code = f"""
        const load = (tag, property, value) => new Promise(done => {{
            const made = document.createElement(tag);
            made.onload = made.onerror = () => done(tag);
            made[property] = value;
            document.body.append(made);
            setTimeout(done, 5000);
        }});
        window.tried = (async () => {{
            for (const address of {json.dumps(addresses)}) await Promise.all([
                load('iframe', 'src', address), load('object', 'data', address), load('embed', 'src', address),
                load('iframe', 'srcdoc', `<iframe src="${{address.replaceAll('"', '&quot;')}}"></iframe>`),
            ]);
            return 'all';
        }})()"""
    preview = await opened(browser, attacker.host + attacker.page(code, body="<body></body>"))
    assert await preview.until("window.tried") == "all"
    assert await caught(browser, attacker) == []


async def test_a_page_cannot_make_a_worker_of_the_api_from_its_own_scripts(
    attackers_box: Box, browser: Browser
) -> None:
    """Not even code that runs on the API's origin gets a sandbox's script as a worker there; on its own host it may."""
    attacker = Attacker(attackers_box, attackers_box.bed.port)
    worker = attacker.answer("onfetch = () => {}", SCRIPT, ("Service-Worker-Allowed", "/"), path="/sw.js")
    register = "navigator.serviceWorker.register(%s, {scope: '/'}).then(() => 'registered', e => e.name)"
    here = await opened(browser, f"{attacker.api}/openapi.json")
    there = attacker.prefix + worker
    docs = await opened(browser, f"{attacker.api}/docs")
    assert await docs.evaluate(register % json.dumps(there)) in ("TypeError", "SecurityError")
    run = f"new Promise(done => {{ const w = new Worker({json.dumps(there)}); w.onerror = () => done('refused') }})"
    assert (
        await docs.evaluate(f"(async () => {{ try {{ return await {run} }} catch (e) {{ return 'refused' }} }})()")
        == "refused"
    )
    assert await here.evaluate("self.origin") == "null"
    own = await opened(browser, attacker.host + attacker.page(""))
    assert await own.evaluate(register % json.dumps(worker)) == "registered"


async def test_a_worker_from_before_is_ended(attackers_box: Box, proxy: OldProxy, browser: Browser) -> None:
    """Earlier versions let a page leave one, which answers for ``/docs`` until it is gone."""
    attacker = Attacker(attackers_box, proxy.port)
    script = f"/p/{attackers_box.key}/{PORT}/sw.js"
    said = "oninstall = () => skipWaiting(); onactivate = e => e.waitUntil(clients.claim());"
    said += "onfetch = e => e.request.mode === 'navigate' && e.respondWith(new Response('<title>hijacked</title>',"
    said += "{headers: {'Content-Type': 'text/html'}}))"
    head = "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nService-Worker-Allowed: /\r\nConnection: close\r\n\r\n%s"
    proxy.earlier[script.encode()] = (head % ("text/javascript", said)).encode()
    proxy.earlier[b"/docs"] = (head % ("text/html", "<title>earlier</title>")).encode()
    page = await opened(browser, f"{attacker.api}/docs")
    await page.evaluate(f"navigator.serviceWorker.register('{script}', {{scope: '/'}}).then(() => true)")
    await page.until("navigator.serviceWorker.controller !== null")
    await page.open(f"{attacker.api}/docs")
    await page.until("document.title === 'hijacked'")
    proxy.earlier.clear()
    # Browsers look for a newer script by themselves, after a page was opened; here at once.
    update = "navigator.serviceWorker.getRegistration().then(found => found.update()).catch(e => e.name)"
    assert await page.evaluate(update) == "AbortError"
    await page.until("navigator.serviceWorker.getRegistrations().then(found => found.length === 0)")
    await page.open(f"{attacker.api}/docs")
    await page.until("document.title === 'Paddock API'")


@pytest.mark.parametrize("target", ["/docs", "/openapi.json", "/nowhere", "/p/x/1/", "own"])
async def test_whoever_opens_a_window_of_ours_has_no_hold_on_it(
    attackers_box: Box, browser: Browser, target: str
) -> None:
    attacker = Attacker(attackers_box, attackers_box.bed.port)
    with attackers_box.bed.api() as api:
        port = api.post(f"/sandboxes/{attackers_box.sandbox_id}/links", json={"port": 9000}).json()["url"]
    url = port if target == "own" else attacker.api + target
    page = await opened(browser, attacker.host + attacker.page(""))
    await click(page, f"window.held = window.open({json.dumps(url)}, 'named'); 0")
    ours = await browser.opened(url.partition("?")[0])
    await ours.until("document.readyState === 'complete' && location.href !== 'about:blank'")
    assert await ours.evaluate("window.opener === null && window.name === ''")
    await page.until("window.held.closed")
    await click(page, "window.held.location = 'about:blank'; window.held.postMessage('hello', '*'); 0")
    await page.evaluate("new Promise(done => setTimeout(done, 200))")
    assert await ours.evaluate("location.href") != "about:blank"


async def test_no_page_of_ours_is_shown_in_a_frame(attackers_box: Box, browser: Browser) -> None:
    attacker = Attacker(attackers_box, attackers_box.bed.port)
    refused = ["/docs", "/openapi.json", f"/p/{attackers_box.key}/{PORT}/", "/nowhere"]
    shown = f"http://{attackers_box.host(3999)}/"  # of the gateway's own: a preview in somebody's frame may be starting
    addresses = [*(attacker.api + target for target in refused), shown]
    frames = "".join(f"<iframe src='{address}'></iframe>" for address in addresses)
    page = await opened(browser, attacker.host + attacker.page("", body=frames))
    assert await page.evaluate("frames.length") == len(addresses)
    seen = {await frame.evaluate("location.href") for frame in await browser.frames()}
    assert seen == {shown, "chrome-error://chromewebdata/"}


async def test_neighbours_cannot_agree_to_be_one_origin(attackers_box: Box, browser: Browser) -> None:
    attacker = Attacker(attackers_box, attackers_box.bed.port)
    agreed = ("Origin-Agent-Cluster", "?0")
    page = await opened(browser, attacker.host + attacker.page("document.domain = 'localhost'", agreed))
    assert await page.evaluate("originAgentCluster") is True
    docs = await opened(browser, f"{attacker.api}/docs")
    assert await docs.evaluate("originAgentCluster") is True


async def test_a_page_cannot_clear_what_its_neighbours_keep(attackers_box: Box, browser: Browser) -> None:
    attacker = Attacker(attackers_box, attackers_box.bed.port)
    docs = await opened(browser, f"{attacker.api}/docs")
    await docs.evaluate("document.cookie = 'session=1; path=/'; localStorage.setItem('kept', '1')")
    clear = ("Clear-Site-Data", '"*", "cookies", "storage", "cache"')
    page = await opened(browser, attacker.host + attacker.page("", clear))
    asked = attacker.prefix + attacker.answer("", clear, ("Access-Control-Allow-Origin", "*"))
    assert await page.evaluate(f"fetch({json.dumps(asked)}).then(answer => answer.status)") == 200
    assert "session" in {cookie["name"] for cookie in await browser.cookies()}
    assert await docs.evaluate("localStorage.getItem('kept')") == "1"


async def test_cookies_of_the_apis_host_do_not_reach_a_sandbox_nor_come_from_one(
    attackers_box: Box, browser: Browser
) -> None:
    attacker = Attacker(attackers_box, attackers_box.bed.port)
    docs = await opened(browser, f"{attacker.api}/docs")
    await docs.evaluate("document.cookie = 'dashboard=secret; path=/'")
    headers = (
        ("Access-Control-Allow-Origin", attacker.host),
        ("Access-Control-Allow-Credentials", "true"),
        ("Set-Cookie", "tossed=1; Path=/; Domain=localhost"),
        ("Set-Cookie", "paddock_port=tossed; Path=/"),
        ("Set-Cookie", "own=1; Path=/"),
    )
    page = await opened(browser, attacker.host + attacker.page("", *headers))
    asked = attacker.prefix + attacker.answer("", *headers, path="/asked")
    assert await page.evaluate(f"fetch({json.dumps(asked)}, {{credentials: 'include'}}).then(a => a.status)") == 200
    seen = await asyncio.to_thread(attacker.requests, "/asked")
    assert seen and not [one for one in seen if "cookie" in one["headers"]]
    kept = {(cookie["name"], cookie["domain"]) for cookie in await browser.cookies()}
    own = attacker.host.removeprefix("http://").partition(":")[0]
    assert kept == {("dashboard", "localhost"), ("own", own), ("tossed", own)}


async def test_cookies_for_the_whole_domain_lock_nobody_out(attackers_box: Box, tmp_path: Path) -> None:
    """A script sets as many as the browser takes, for the domain that the sandboxes and the API are on."""
    port = attackers_box.bed.port
    domain = f"sandboxes.example:{port}"
    options = (
        "--host-resolver-rules=MAP *.example 127.0.0.1",
        f"--unsafely-treat-insecure-origin-as-secure=http://{domain}",
    )
    bomb = """for (let n = 0; n < 170; n++)
        document.cookie = `bomb${n}=${'x'.repeat(4000)}; domain=sandboxes.example; path=/; max-age=99999`"""
    async with chromium_browser(tmp_path / "bombed", CHROMIUM, *options) as browser:
        attacker = Attacker(attackers_box, port)
        page = await opened(browser, f"http://{PORT}-{attackers_box.key}.{domain}{attacker.page(bomb)}")
        async with asyncio.timeout(PATIENCE_S):
            while len(await browser.cookies()) < 100:  # they are stored a little later than they are set
                await asyncio.sleep(0.05)
        await page.open(f"http://{domain}/docs")
        await page.until("document.body?.innerText.includes('told to clear')")
        await page.open(f"http://{domain}/docs")
        await page.until("document.querySelector('.btn.authorize') !== null")
        assert await browser.cookies() == []


async def test_on_its_own_host_a_page_may_do_what_pages_do(attackers_box: Box, browser: Browser) -> None:
    """Storage, cookies, workers, frames of its own, and windows that it opens and speaks to."""
    attacker = Attacker(attackers_box, attackers_box.bed.port)
    page = await opened(browser, attacker.host + attacker.page("", ("Set-Cookie", "a=1; Path=/")))
    await page.evaluate("localStorage.setItem('b', '2')")
    other = attacker.page("onload = () => opener && opener.postMessage('from the window', '*')", path="/other")
    heard = await click(
        page,
        f"""new Promise(done => {{
            onmessage = (said) => done(said.data + document.cookie + localStorage.getItem('b'));
            window.open({json.dumps(other)});
        }})""",
    )
    assert heard == "from the windowa=12"
