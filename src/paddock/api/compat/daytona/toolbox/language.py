"""Language servers, if one is installed in the sandbox: documents, symbols and completions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote, unquote

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from paddock.accounts.byte_budget import Reservation
from paddock.api.compat.daytona.control.requests import DaytonaRequest
from paddock.api.compat.daytona.errors import DAEMON, DaytonaError
from paddock.api.compat.daytona.toolbox.inside import BASH, InsideHere, ToolboxContext, ToolboxRoute
from paddock.api.compat.daytona.toolbox.language_server import LanguageServer, MethodNotFound
from paddock.api.file_content import json_items
from paddock.errors import PathConflict, PathNotFound
from paddock.models import Text

router = APIRouter(prefix="/{sandbox_id}/lsp", route_class=ToolboxRoute)

# The first installed one is used; only pylsp does not support `workspace/symbol`.
_PYTHON = ("pyright-langserver --stdio", "basedpyright-langserver --stdio", "jedi-language-server", "pylsp")
_SCRIPT = ("typescript-language-server --stdio",)
PROGRAMS = {"python": _PYTHON, "typescript": _SCRIPT, "javascript": _SCRIPT}
_INSTALL = {
    "python": "pip install jedi-language-server",
    "typescript": "npm install -g typescript-language-server typescript",
}
_MAX_DOCUMENT = 16 << 20
_COPIES_OF_DOCUMENT = 3
"""Copies in memory: the file, its text, and the message."""
_MAX_SERVERS, _MAX_SERVERS_OF_USER, _MAX_SERVERS_OF_SANDBOX = 1000, 100, 8
"""Maximum running language servers."""
Language = Annotated[str, Query(alias="languageId")]
Project = Annotated[str, Query(alias="pathToProject")]
Servers = dict[tuple[str, str, str], LanguageServer]


class LanguageServerRef(DaytonaRequest):
    language_id: Text
    path_to_project: Text


class Document(LanguageServerRef):
    uri: Text


class Position(DaytonaRequest):
    line: int = Field(ge=0)
    character: int = Field(ge=0)


class Completions(Document):
    position: Position
    context: dict[str, Any] | None = None


@router.post("/start")
async def start(inside: InsideHere, request: Request, body: LanguageServerRef) -> Response:
    servers, key = _servers(request), _key(inside, body)
    known = servers.get(key)
    if known is None or not known.alive:
        _check_room(servers, inside)
        servers[key] = await _start(inside, body, key[2])
    return Response(status_code=200)


@router.post("/stop")
async def stop(inside: InsideHere, request: Request, body: LanguageServerRef) -> Response:
    server = _get(inside, request, body)
    del _servers(request)[_key(inside, body)]
    await server.stop()
    return Response(status_code=200)


@router.post("/did-open")
async def did_open(inside: InsideHere, request: Request, body: Document) -> Response:
    server = _get(inside, request, body)
    path = await _path(inside, body, body.uri)
    text = await inside.read(path, _MAX_DOCUMENT)
    if text is None:
        raise DaytonaError(404, f"{body.uri[:500]} is not there: looked at {path}", "FILE_NOT_FOUND", DAEMON)
    inside.caller.holding.reserve(_COPIES_OF_DOCUMENT * len(text))
    uri = _uri(path)
    document = {
        "uri": uri,
        "languageId": body.language_id,
        "version": 1,
        "text": text.decode(errors="replace"),
    }
    await server.tell("textDocument/didOpen", {"textDocument": document})
    server.open_documents.add(uri)
    return Response(status_code=200)


@router.post("/did-close")
async def did_close(inside: InsideHere, request: Request, body: Document) -> Response:
    server = _get(inside, request, body)
    uri = _uri(await _path(inside, body, body.uri))
    await server.tell("textDocument/didClose", {"textDocument": {"uri": uri}})
    server.open_documents.discard(uri)
    return Response(status_code=200)


@router.post("/completions")
async def completions(inside: InsideHere, request: Request, body: Completions) -> Response:
    server = _get(inside, request, body)
    uri = _uri(await _path(inside, body, body.uri))
    asked: dict[str, Any] = {"textDocument": {"uri": uri}, "position": body.position.model_dump()}
    found = await server.ask("textDocument/completion", asked | ({"context": body.context} if body.context else {}))
    whole: dict[str, Any] = found if isinstance(found, dict) else {"isIncomplete": False, "items": found or []}
    told = whole.get("items")
    known = [each for each in told if isinstance(each, dict) and "label" in each] if isinstance(told, list) else []
    incomplete = b"true" if whole.get("isIncomplete") else b"false"
    items = await json_items(known, _item, inside.caller.holding)
    return _json(b'{"isIncomplete":%b,"items":[%b]}' % (incomplete, items))


@router.get("/document-symbols")
async def document_symbols(
    inside: InsideHere, request: Request, language: Language, project: Project, uri: str
) -> Response:
    which = LanguageServerRef(language_id=language, path_to_project=project)
    server = _get(inside, request, which)
    uri = _uri(await _path(inside, which, uri))
    found = await server.ask("textDocument/documentSymbol", {"textDocument": {"uri": uri}})
    return await _symbols(inside, found, uri)


@router.get("/workspacesymbols")
@router.get("/workspace-symbols")
async def workspace_symbols(
    inside: InsideHere, request: Request, query: str, language: Language, project: Project
) -> Response:
    server = _get(inside, request, LanguageServerRef(language_id=language, path_to_project=project))
    try:
        found = await server.ask("workspace/symbol", {"query": query})
    except MethodNotFound as problem:
        hint = f"This language server does not know workspace/symbol. Install one that does: {_hint(language)}"
        raise DaytonaError(501, hint, "NOT_SUPPORTED", DAEMON) from problem
    return await _symbols(inside, found, "")


async def _start(inside: ToolboxContext, body: LanguageServerRef, root: str) -> LanguageServer:
    await inside.machine.stat(root, follow=True, user=inside.user)
    program = await _installed(inside, body.language_id)
    argv = [BASH, "-c", f"exec {program}"]
    spec = inside.spec(argv, label=f"language server {program}", cwd=root, stdin=True)
    holding = Reservation(inside.caller.context.in_flight)
    holding.belongs_to(inside.sandbox.owner_id)
    server = LanguageServer(inside.machine, spec, holding, inside.workers, inside.sandbox.owner_id)
    try:
        await server.start(root)
    except BaseException:
        await server.stop()
        raise
    return server


async def _installed(inside: ToolboxContext, language: str) -> str:
    programs = PROGRAMS.get(language)
    if programs is None:
        raise DaytonaError(400, f"unsupported language {language[:50]!r}: {', '.join(PROGRAMS)}", source=DAEMON)
    script = "".join(f"command -v {each.split()[0]} >/dev/null && echo '{each}' && exit\n" for each in programs)
    _, stdout, _ = await inside.machine.run(inside.spec([BASH, "-c", script], label="find a language server"))
    if found := stdout.data.decode(errors="replace").strip():
        return found
    names = ", ".join(each.split()[0] for each in programs)
    message = f"No language server for {language} is installed in this sandbox ({names}). "
    message += f"Install one: {_hint(language)}"
    raise DaytonaError(501, message, "NOT_SUPPORTED", DAEMON)


def _servers(request: Request) -> Servers:
    known: Servers = request.app.state.language_servers
    for key in [key for key, server in known.items() if not server.alive]:
        del known[key]
    return known


def _check_room(known: Servers, inside: ToolboxContext) -> None:
    sandbox = inside.sandbox
    here = sum(sandbox_id == sandbox.sandbox_id for sandbox_id, _, _ in known)
    of_user = sum(server.owner_id == sandbox.owner_id for server in known.values())
    if here >= _MAX_SERVERS_OF_SANDBOX or of_user >= _MAX_SERVERS_OF_USER:
        most = f"{_MAX_SERVERS_OF_SANDBOX} language servers, and {_MAX_SERVERS_OF_USER} those of one user together"
        raise DaytonaError(429, f"a sandbox may have {most}: stop one first", source=DAEMON)
    if len(known) >= _MAX_SERVERS:
        raise DaytonaError(503, "too many language servers run on this server", source=DAEMON)


def _key(inside: ToolboxContext, which: LanguageServerRef) -> tuple[str, str, str]:
    return inside.sandbox.sandbox_id, which.language_id, inside.resolve(which.path_to_project)


def _get(inside: ToolboxContext, request: Request, which: LanguageServerRef) -> LanguageServer:
    server = _servers(request).get(_key(inside, which))
    if server is None:
        message = f"LSP server not initialized: start one for {which.language_id[:50]} in {which.path_to_project[:500]}"
        raise DaytonaError(400, message, "LSP_SERVER_NOT_INITIALIZED", DAEMON)
    return server


def _hint(language: str) -> str:
    return _INSTALL["python" if language == "python" else "typescript"]


async def _path(inside: ToolboxContext, which: LanguageServerRef, uri: str) -> str:
    """Clients put `file://` before any path. A relative path is resolved against the working directory, or against the
    project if it exists only there."""
    given = unquote(uri.removeprefix("file://"))
    path = inside.resolve(given)
    if not given.startswith("/"):
        try:
            await inside.machine.stat(path, follow=True, user=inside.user)
        except (PathNotFound, PathConflict):
            return inside.resolve(f"{which.path_to_project.rstrip('/')}/{given}")
    return path


def _uri(path: str) -> str:
    return f"file://{quote(path)}"


def _item(found: dict[str, Any]) -> dict[str, Any]:
    """With the types that clients require: documentation given as text becomes an object."""
    texts = ("label", "detail", "filterText", "insertText", "sortText")
    item: dict[str, Any] = {name: str(found[name]) for name in texts if found.get(name) is not None}
    if isinstance(found.get("kind"), int):
        item["kind"] = found["kind"]
    if found.get("documentation") is not None:
        said = found["documentation"]
        item["documentation"] = said if isinstance(said, dict) else {"kind": "plaintext", "value": str(said)}
    return item


async def _symbols(inside: ToolboxContext, found: Any, uri: str) -> Response:
    return _json(b"[%b]" % await json_items(list(_flat(found)), partial(_symbol, uri), inside.caller.holding))


def _flat(found: Any) -> Iterator[dict[str, Any]]:
    """All symbols including nested ones, each before its children."""
    left = list(reversed(found)) if isinstance(found, list) else []
    while left:
        symbol = left.pop()
        if not isinstance(symbol, dict) or "name" not in symbol:
            continue
        if isinstance(children := symbol.get("children"), list):
            left.extend(reversed(children))
        yield symbol


def _symbol(uri: str, symbol: dict[str, Any]) -> dict[str, Any]:
    place = symbol.get("location")
    if not isinstance(place, dict):
        place = {"uri": uri, "range": symbol.get("selectionRange") or symbol.get("range")}
    kind = symbol.get("kind", 1)
    nowhere = {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}}
    return {
        "name": str(symbol["name"]),
        "kind": kind if isinstance(kind, int) else 1,
        "location": {"uri": str(place.get("uri", uri)), "range": place.get("range") or nowhere},
    }


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
