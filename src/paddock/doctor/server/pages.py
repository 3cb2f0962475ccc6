"""Attacks on viewers of a sandbox's content through pages, headers, links and files, against the API's origin."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx

from paddock.doctor.server.target import NotTried, Target

_PROGRAM = Path(__file__).with_name("hostile_app.py")
_PORT, _OTHER_PORT = 3000, 3001
_START_TIMEOUT_S = 30.0
_POLL_S = 0.1
_DOCUMENTS = (
    {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"},
    {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"},
    {"Sec-Fetch-Mode": "same-origin", "Sec-Fetch-Dest": "serviceworker", "Service-Worker": "script"},
    {"Upgrade-Insecure-Requests": "1"},
)
_BROWSER = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
_BEYOND_THE_ORIGIN = ("Clear-Site-Data", "Strict-Transport-Security")
_FOR_THE_ORIGIN = (*_BEYOND_THE_ORIGIN, "Service-Worker-Allowed", "Refresh", "Speculation-Rules", "Report-To")


@dataclass(frozen=True, slots=True)
class App:
    """The hostile application in a member's sandbox, on two ports."""

    target: Target
    key: str
    sandbox_id: str
    mark: str

    def host(self, port: int = _PORT) -> dict[str, str]:
        return {"Host": f"{port}-{self.key}.localhost"}

    def header(self, port: int = _PORT) -> dict[str, str]:
        return {"E2b-Sandbox-Id": self.key, "E2b-Sandbox-Port": str(port)}

    def path(self, port: int = _PORT) -> str:
        return f"/p/{self.key}/{port}/"

    def answered(self, answer: httpx.Response) -> bool:
        """Whether the application answered, and not the server itself."""
        return answer.status_code == 200 and self.mark in answer.text


@asynccontextmanager
async def serving(target: Target) -> AsyncIterator[App]:
    made = await target.sandbox()
    name = made["sandbox_id"]
    looked = await target.tool(name, "run_command", command="command -v python3 || echo none")
    if "none" in str(looked):
        raise NotTried("the template has no python3, and so nothing can serve a page")
    program = await asyncio.to_thread(_PROGRAM.read_bytes)
    where = {"path": "/workspace/hostile_app.py"}
    (await target.member.put(f"/sandboxes/{name}/files", params=where, content=program)).raise_for_status()
    app = App(target, made["key"], name, secrets.token_hex(8))
    command = f"python3 /workspace/hostile_app.py {app.mark} {_PORT} {_OTHER_PORT}"
    await target.tool(name, "run_command", command=command, background=True)
    async with asyncio.timeout(_START_TIMEOUT_S):
        for port in (_PORT, _OTHER_PORT):
            await _listening(target, app.path(port))
    yield app


async def _listening(target: Target, path: str) -> None:
    while True:
        if (await target.member.get(path)).status_code != httpx.codes.BAD_GATEWAY:
            return
        await asyncio.sleep(_POLL_S)


async def page(target: Target) -> str | None:
    async with serving(target) as app:
        for path, address in ((app.path(), {}), ("/", app.header())):
            for wanted in _DOCUMENTS:
                answer = await target.member.get(path, headers={**address, **wanted})
                if answer.status_code != httpx.codes.FORBIDDEN or app.mark in answer.text:
                    return (
                        f"a browser is given a page of a sandbox on the API's origin ({answer.status_code}, {wanted})"
                    )
    docs = await target.member.get("/docs")
    policy = docs.headers.get("Content-Security-Policy", "")
    if "persistAuthorization: false" not in docs.text or "script-src 'nonce-" not in policy:
        return "/docs keeps keys, or runs scripts of others"
    return None


async def headers(target: Target) -> str | None:
    async with serving(target) as app:
        for path, address in ((app.path(), {}), ("/", app.header())):
            for asked_by in ({}, _BROWSER):
                answer = await target.member.get(path, headers={**address, **asked_by})
                if problem := on_the_apis_origin(answer, path, browser=bool(asked_by)) or _reached(app, answer):
                    return problem
        answer = await target.member.get("/", headers=app.host())
        return on_its_own_host(answer) or _reached(app, answer)


def _reached(app: App, answer: httpx.Response) -> str | None:
    """Fails if the application was not reached, or has received the key that gave access."""
    if not app.answered(answer):
        return f"the application is not reached ({answer.status_code}), so nothing is known of its headers"
    return "a key of the server is handed to the code in a sandbox" if app.target.key in answer.text else None


def on_the_apis_origin(answer: httpx.Response, path: str, *, browser: bool) -> str | None:
    if problem := no_document(answer):
        return problem
    if passed_on := [name for name in _FOR_THE_ORIGIN if name in answer.headers]:
        return f"an application speaks for the API's origin with {passed_on[0]}"
    cookies = answer.headers.get_list("Set-Cookie")
    if browser and cookies:
        return "an application sets a cookie for the API's host in a browser"
    if loose := [cookie for cookie in cookies if not _is_confined(cookie) or f"Path={path}" not in cookie]:
        return f"an application sets a cookie beyond its own port: {loose[0]}"
    return None


def on_its_own_host(answer: httpx.Response) -> str | None:
    if passed_on := [name for name in _BEYOND_THE_ORIGIN if name in answer.headers]:
        return f"an application speaks for the whole domain with {passed_on[0]}"
    if answer.headers.get("Origin-Agent-Cluster") == "?0":
        return "an application becomes one origin with its neighbours"
    if loose := [cookie for cookie in answer.headers.get_list("Set-Cookie") if not _is_confined(cookie)]:
        return f"an application sets a cookie beyond its own host: {loose[0]}"
    if answer.headers.get_list("Cross-Origin-Opener-Policy") != ["same-origin-allow-popups"]:
        return "a page that opens a sandbox's page keeps a reference to its window"
    return None


def no_document(answer: httpx.Response) -> str | None:
    """Whether a browser could render the response as a document with the API's origin."""
    directives = {
        directive.strip()
        for policy in answer.headers.get_list("Content-Security-Policy", split_commas=True)
        for directive in policy.split(";")
    }
    if "sandbox" not in directives:
        return f"an answer on the API's origin may become a page of it ({answer.request.url.path})"
    if answer.headers.get_list("X-Content-Type-Options") != ["nosniff"]:
        return f"a browser may guess what an answer on the API's origin is ({answer.request.url.path})"
    if answer.headers.get_list("Cross-Origin-Opener-Policy") != ["same-origin"]:
        return (
            f"the opener of an answer on the API's origin keeps a reference to its window ({answer.request.url.path})"
        )
    return None


def _is_confined(cookie: str) -> bool:
    name, _, _ = cookie.partition("=")
    attributes = [part.strip().lower() for part in cookie.split(";")[1:]]
    return "paddock_port" not in name and not any(part.startswith("domain") for part in attributes)


async def links(target: Target) -> str | None:
    """Each is valid for one port of one sandbox, in one form of its address."""
    async with serving(target) as app, serving(target) as other, target.stranger() as stranger:
        sandbox = f"/sandboxes/{app.sandbox_id}"
        link = (await target.member.post(f"{sandbox}/links", json={"port": _PORT})).raise_for_status().json()
        by_host, by_path = ({"paddock_link": _token(link[form], "paddock_link")} for form in ("url", "path"))
        good = {"by host": ("/", app.host(), by_host), "by path": (app.path(), {}, by_path)}
        bad = {
            "a link by host, used by path": (app.path(), {}, by_host),
            "a link by host, used by header": ("/", app.header(), by_host),
            "a link by path, used by host": ("/", app.host(), by_path),
            "a link by host, used for another port": ("/", app.host(_OTHER_PORT), by_host),
            "a link by path, used for another port": (app.path(_OTHER_PORT), {}, by_path),
            "a link by host, used for another sandbox": ("/", other.host(), by_host),
            "a link by path, used for another sandbox": (other.path(), {}, by_path),
        }
        for what, (path, address, shown) in good.items():
            answer = await stranger.get(path, headers=address, params=shown)
            if not app.answered(answer):
                return f"a link {what} does not open its own port ({answer.status_code}), so nothing is known of others"
            if shown["paddock_link"] in answer.text:
                return f"the code in a sandbox sees the link {what} by which somebody came"
        for what, (path, address, shown) in bad.items():
            answer = await stranger.get(path, headers=address, params=shown)
            if app.answered(answer) or other.answered(answer):
                return f"{what}, opens it"
        return await _tickets(app, other, stranger) or await _cookies(app, other, stranger, by_host)


async def _tickets(app: App, other: App, stranger: httpx.AsyncClient) -> str | None:
    places = {
        "used by path": (app.path(), {}),
        "used by header": ("/", app.header()),
        "used for another port": ("/", app.host(_OTHER_PORT)),
        "used for another sandbox": ("/", other.host()),
    }
    for what, (path, address) in places.items():
        if _opens(app, other, await stranger.get(path, headers=address, params=await _ticket(app))):
            return f"a ticket, {what}, opens it"
    ticket = await _ticket(app)
    once, twice = [await stranger.get("/", headers=app.host(), params=ticket) for _ in range(2)]
    if not app.answered(once):
        return f"a ticket does not open its own port ({once.status_code}), so nothing is known of others"
    return "a ticket opens its port twice" if app.answered(twice) else None


async def _cookies(app: App, other: App, stranger: httpx.AsyncClient, link: Mapping[str, str]) -> str | None:
    """Cookies set for a browser that used a link."""
    came = await stranger.get("/", headers={**app.host(), **_DOCUMENTS[0], "Sec-Fetch-Site": "none"}, params=link)
    given = came.headers.get("Set-Cookie", "").partition(";")[0]
    shown = {"Cookie": given, "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
    stranger.cookies.clear()
    places = {
        "used by path": (app.path(), {}),
        "used by header": ("/", app.header()),
        "used for another port": ("/", app.host(_OTHER_PORT)),
        "used for another sandbox": ("/", other.host()),
    }
    if not app.answered(await stranger.get("/", headers={**app.host(), **shown})):
        return "the cookie of a browser that came by a link does not open the port, so nothing is known of others"
    for what, (path, address) in places.items():
        if _opens(app, other, await stranger.get(path, headers={**address, **shown})):
            return f"the cookie of a browser that came by a link, {what}, opens it"
    foreign = {**app.host(), **shown, "Sec-Fetch-Site": "same-site", "Origin": f"http://{other.host()['Host']}"}
    answer = await stranger.get("/", headers=foreign)
    return "a page of another sandbox uses the cookie of who looks at it" if app.answered(answer) else None


def _opens(app: App, other: App, answer: httpx.Response) -> bool:
    return app.answered(answer) or other.answered(answer)


def _token(url: str, parameter: str) -> str:
    return parse_qs(urlsplit(url).query)[parameter][0]


async def _ticket(app: App) -> dict[str, str]:
    made = await app.target.member.post(f"/sandboxes/{app.sandbox_id}/tickets", json={"port": _PORT})
    return {"paddock_ticket": made.raise_for_status().json()["ticket"]}


async def files(target: Target) -> str | None:
    """HTML in files: rendered by E2B's signed URLs, downloaded elsewhere."""
    made = await target.sandbox()
    name, key, path = made["sandbox_id"], made["key"], "/workspace/page.html"
    await target.tool(name, "write_file", path=path, content="<!doctype html><script>alert(origin)</script>")
    found = (await target.member.get(f"/e2b/sandboxes/{key}")).raise_for_status().json()
    signed = _signed(path, found["envdAccessToken"])
    shown = (f"/files?{signed}", f"/p/{key}/49983/files?{signed}")
    attached = (f"/sandboxes/{name}/files?path={path}", f"/daytona/toolbox/{key}/files/download?path={path}")
    async with target.stranger() as stranger:
        for address in (*shown, *attached):
            for asked_by in ({}, _DOCUMENTS[0], _DOCUMENTS[1]):
                client = stranger if address in shown else target.member
                answer = await client.get(address, headers=asked_by)
                if answer.status_code != httpx.codes.OK:
                    return f"a file is not answered at {answer.request.url.path} ({answer.status_code})"
                if problem := no_document(answer):
                    return problem
                if address in attached and not answer.headers.get("Content-Disposition", "").startswith("attachment"):
                    return f"a file of a sandbox is shown on the API's origin ({answer.request.url.path})"
    return None


def _signed(path: str, token: str) -> str:
    """A URL signed as by E2B's SDKs."""
    digest = base64.b64encode(hashlib.sha256(f"{path}:read:user:{token}".encode()).digest()).decode().rstrip("=")
    return urlencode({"path": path, "username": "user", "signature": f"v1_{digest}"})
