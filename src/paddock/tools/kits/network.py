"""HTTP requests from inside the sandbox."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, Field

from paddock.tools import running
from paddock.tools.context import ToolContext
from paddock.tools.excerpt import excerpt, once
from paddock.tools.tool import ToolFailed, ToolKit, ToolReply

kit = ToolKit("network")

_MAX_BODY = 8 << 20
_NO_TUNNEL = re.compile(
    r"tunnel failed,? response (\d{3})|HTTP code (\d{3}) from proxy|Tunnel connection failed: (\d{3})"
)
"""What curl, older curls and Python say where the proxy refuses to connect: then there is a head, and no answer."""
_UNRESOLVED = re.compile(r"Could not resolve host|Name or service not known|No address associated|name resolution")
_TUNNEL_HINTS = {
    "403": " The sandbox's egress rules do not allow this host.",
    "502": " The egress rules allow this host, but it could not be reached: its name may not resolve, or nothing "
    "listens on that port.",
    "503": " The sandbox has too many connections open.",
    "504": " The egress rules allow this host, but it did not answer in time.",
}
_SEPARATOR = "\036"
_SAFE = re.compile(r"[^\r\n]*")

_CURL = r"""
command -v curl >/dev/null || exit 127
h=$(mktemp) || exit 1
trap 'rm -f "$h"' EXIT
curl --dump-header "$h" "$@"
code=$?
printf '\036' >&2
cat "$h" >&2
exit $code
"""
"""The body is on stdout; on stderr what curl says, then, behind a separator, the headers."""

_PYTHON = r"""
import json, ssl, sys, urllib.error, urllib.request
asked = json.loads(sys.argv[1])
class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None
opener = urllib.request.build_opener(*([] if asked["redirects"] else [Stay]))
body = sys.stdin.buffer.read() or None
request = urllib.request.Request(asked["url"], body, dict(asked["headers"]), method=asked["method"])
said, code = "", 0
try:
    answer = opener.open(request, timeout=asked["timeout"])
except urllib.error.HTTPError as problem:
    answer = problem
except Exception as problem:
    sys.stderr.write("%s\036" % problem)
    sys.exit(7)
sys.stdout.buffer.write(answer.read(asked["most"]))
head = "".join("%s: %s\r\n" % pair for pair in answer.headers.items())
sys.stderr.write("%s\036HTTP/1.1 %d %s\r\n%s\r\n" % (answer.geturl(), answer.status, answer.reason, head))
"""


class HttpAnswer(BaseModel):
    status: int
    url: str = Field(description="Final URL, after redirects.")
    headers: dict[str, str] = Field(description="By name in lower case.")
    body: str = Field(description="As text; empty when it is binary, or was saved.")
    size: int = Field(description="Of the body, in bytes.")
    saved_to: str | None
    body_file: str | None = Field(description="File with the whole body, if it was too long.")


@kit.tool("http_request", "Send an HTTP request", open_world=True, destructive=True)
async def http_request(
    ctx: ToolContext,
    url: Annotated[str, Field(pattern=r"^https?://", max_length=8000, examples=["http://localhost:3000/health"])],
    method: Annotated[
        Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"], Field(description="HTTP method.")
    ] = "GET",
    headers: Annotated[dict[str, str] | None, Field(description="Request headers.")] = None,
    body: Annotated[str | None, Field(description="Request body as text.")] = None,
    json_body: Annotated[Any, Field(description="To send as JSON, instead of body.")] = None,
    timeout: Annotated[float, Field(gt=0, le=600, description="Seconds.")] = 30,
    follow_redirects: Annotated[bool, Field(description="Follow redirects.")] = True,
    save_to: Annotated[str | None, Field(description="Save the body to this file.")] = None,
) -> ToolReply[HttpAnswer]:
    """Send an HTTP request from inside the sandbox: to a server in it, or to the internet as far as egress rules allow.

    Answers with status, headers and body, whatever the status is. Binary bodies need save_to.
    """
    sent = {name: value for name, value in (headers or {}).items() if _fits(name) and _fits(value)}
    if len(sent) != len(headers or {}):
        raise ToolFailed("A header may not have line breaks.")
    if json_body is not None:
        if body is not None:
            raise ToolFailed("Give body or json_body, not both.")
        body = json.dumps(json_body)
        sent = {"Content-Type": "application/json", **sent}
    ran = await _send(ctx, url, method, sent, body, timeout, follow_redirects)
    said, separator, head = ran.err.partition(_SEPARATOR)
    if not separator or "HTTP/" not in head or _NO_TUNNEL.search(said):
        why = said.strip().removesuffix(url).strip()  # curl says at the end where it was
        raise _no_answer(url, why or f"exit code {ran.info.exit_code}", head)
    return await _answer(ctx, url, ran, said, head, save_to)


async def _send(
    ctx: ToolContext, url: str, method: str, headers: dict[str, str], body: str | None, timeout: float, follow: bool
) -> running.ProgramResult:
    argv = ["--silent", "--show-error", "--request", method, "--max-time", str(timeout), "--globoff"]
    argv += ["--proto", "=http,https", "--proto-redir", "=http,https"]
    argv += ["--write-out", "%{stderr}%{url_effective}"]
    argv += ["--location", "--max-redirs", "10"] if follow else []
    argv += ["--head"] if method == "HEAD" else []
    for name, value in headers.items():
        argv += ["--header", f"{name}: {value}" if value else f"{name};"]
    argv += ["--data-binary", "@-"] if body is not None else []
    stdin = b"" if body is None else body.encode(errors="replace")
    what, seconds = f"{method} {url[:100]}", timeout + 10
    words = ["/bin/sh", "-c", _CURL, "sh", *argv, "--", url]
    ran = await running.run(ctx, words, what=what, seconds=seconds, limit=_MAX_BODY, stdin=stdin)
    if ran.info.exit_code == running.NOT_FOUND:
        asked = {"url": url, "method": method, "headers": headers, "timeout": timeout, "redirects": follow}
        words = ["python3", "-c", _PYTHON, json.dumps({**asked, "most": _MAX_BODY})]
        ran = await running.run(ctx, words, what=what, seconds=seconds, limit=_MAX_BODY, stdin=stdin)
        running.needs(ran, "Neither curl nor python3", "Install one of them, or use a template that has it.")
    return ran


async def _answer(
    ctx: ToolContext, url: str, ran: running.ProgramResult, said: str, head: str, save_to: str | None
) -> ToolReply[HttpAnswer]:
    last = [block for block in head.replace("\r\n", "\n").split("\n\n") if block.startswith("HTTP/")][-1]
    first, *lines = last.splitlines()
    status = int(first.split()[1])
    named = [line.partition(":")[::2] for line in lines if ":" in line]
    headers = {name.strip().lower(): value.strip() for name, value in named}
    if save_to is not None:
        info = await ctx.machine.write_file(ctx.path(save_to), once(ran.stdout), user=ctx.user)
        shown, text, file = f"[{info.size} bytes saved to {info.path}]", "", None
    elif b"\0" in ran.stdout[:8192]:
        shown, text, file = f"[{len(ran.stdout)} bytes of binary data: use save_to]", "", None
    else:
        cut = await excerpt(ctx, ran.out, "http")
        shown, text, file = cut.text, cut.text, cut.file
    data = HttpAnswer(
        status=status,
        url=said.strip().splitlines()[-1] if said.strip() else url,
        headers=headers,
        body=text,
        size=ran.info.stdout_size,
        saved_to=None if save_to is None else ctx.path(save_to),
        body_file=file,
    )
    kind = headers.get("content-type", "no content type")
    return ToolReply(f"HTTP {status} ({kind}, {data.size} bytes) from {data.url}\n{shown}".rstrip(), data)


def _fits(text: str) -> bool:
    return _SAFE.fullmatch(text) is not None


def _no_answer(url: str, said: str, head: str) -> ToolFailed:
    """``head``: what the proxy answered to CONNECT, where curl says it."""
    host = urlsplit(url).hostname or url
    refused = _NO_TUNNEL.search(said)
    mark = re.search(r"^X-Paddock-Egress: *(\w+)", head, re.MULTILINE | re.IGNORECASE)
    hint = ""
    if (mark and mark[1] == "unresolved") or _UNRESOLVED.search(said):
        hint = f" The name {host} does not resolve: check how it is spelled. The egress rules are not the reason."
    elif refused:
        hint = _TUNNEL_HINTS.get(next(filter(None, refused.groups())), "")
    elif "onnection refused" in said or "Failed to connect" in said or "Couldn't connect" in said:
        hint = " Nothing listens there: see port_list."
    elif "timed out" in said:
        hint = " Give it a longer timeout, or look whether the server works."
    return ToolFailed(f"No answer from {url}: {said[:1000]}.{hint}")
