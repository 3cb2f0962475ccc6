"""``python -m paddock.mcp``: the same tools, acting on the machine that this runs on. Over HTTP, or over stdio."""

from __future__ import annotations

import argparse
import asyncio
import hmac
import os
import secrets
import sys
from collections.abc import Sequence

import uvicorn
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from paddock import errors
from paddock.mcp.app import PATH, PORT, AdmittedClient, McpApp, bearer
from paddock.mcp.endpoint import Endpoint, sdk
from paddock.mcp.standalone import MachineToolHost, StandaloneHost, this_machine
from paddock.tools.catalogue import usual_tools
from paddock.tools.selection import DEFAULT, Selection

TOKEN = "PADDOCK_MCP_TOKEN"  # noqa: S105 - the variable's name
_MAX_BODY = 64 << 20


def main(arguments: Sequence[str] | None = None) -> None:
    given = _parse(arguments)
    try:
        place, usual = StandaloneHost.here(given.workspace, given.user), usual_tools(given.tools)
        if given.stdio:
            serving = _serve_stdio(place, usual, structured=given.structured)
        else:
            serving = _serve_http(place, usual, given.host, given.port)
        asyncio.run(serving)
    except errors.PaddockError as problem:
        sys.exit(f"paddock.mcp: {problem.message}")
    except KeyboardInterrupt:
        return


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m paddock.mcp",
        description=f"Serves the tools of a Paddock sandbox over MCP, acting on this machine. Over HTTP the token "
        f"is that in {TOKEN}, or a new one, which is printed.",
    )
    parser.add_argument("--stdio", action="store_true", help="speak over standard input and output instead of HTTP")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=int, default=PORT, help="the port to listen on (default: %(default)s)")
    parser.add_argument("--workspace", help="where relative paths begin (default: /workspace, else this directory)")
    parser.add_argument(
        "--tools",
        default=DEFAULT,
        metavar="NAMES",
        help="which tools clients are shown: default, minimal, full, or kits and names, as files,shell",
    )
    parser.add_argument(
        "--structured",
        action="store_true",
        help="over stdio: answer with structuredContent, too, for programs (over HTTP: ?structured=true)",
    )
    parser.add_argument(
        "--user", help="user as whom the tools act (default: user if it exists, else the one who runs this)"
    )
    return parser.parse_args(arguments)


async def _serve_stdio(place: StandaloneHost, usual: Selection, *, structured: bool) -> None:
    async with this_machine(place) as machine:
        server, stdio = await sdk("paddock.mcp.server"), await sdk("mcp.server.stdio")
        tool_host = MachineToolHost(machine, place, os.environ, usual)
        serving = server.serve(tool_host, structured=structured)
        try:
            async with stdio.stdio_server() as (received, sent):
                await serving.run(received, sent, serving.create_initialization_options())
        finally:
            await tool_host.close()


async def _serve_http(place: StandaloneHost, usual: Selection, host: str, port: int) -> None:
    token = os.environ.get(TOKEN, "")
    if not token:
        token = secrets.token_hex(32)
        sys.stderr.write(f"{TOKEN}={token}\n")
    async with this_machine(place) as machine:
        tool_host = MachineToolHost(machine, place, os.environ, usual)
        endpoint = Endpoint(_MAX_BODY)

        async def admit(scope: Scope, headers: Headers) -> AdmittedClient:
            if not hmac.compare_digest((bearer(headers) or "").encode(), token.encode()):
                raise errors.Unauthorized(f"Give the token from {TOKEN}, as `Authorization: Bearer <token>`.")
            return AdmittedClient(tool_host, {})

        config = uvicorn.Config(
            _with_error_responses(McpApp(endpoint, admit)),
            host=host,
            port=port,
            lifespan="off",
            log_level="warning",
            ws="none",
        )
        server = uvicorn.Server(config)
        sys.stderr.write(f"MCP at http://{host}:{port}{PATH}\n")
        try:
            await server.serve()
        finally:
            await endpoint.close()
            await tool_host.close()


def _with_error_responses(app: ASGIApp) -> ASGIApp:
    """Reports errors in the format of the server's own API."""

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        except errors.PaddockError as problem:
            error = {"code": problem.code, "message": problem.message, "status": problem.status}
            headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else None
            await JSONResponse({"success": False, "error": error}, problem.status, headers)(scope, receive, send)

    return answered


if __name__ == "__main__":
    main()
