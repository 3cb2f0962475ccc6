"""File content of any size, streamed in both directions.

A bulk answer has one part per path, in the order of the request. A file that cannot be read is a part with an error;
the others are sent all the same.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute

from paddock import errors
from paddock.api.auth import Authenticated
from paddock.api.byte_accounting import holding_of
from paddock.api.compat.daytona.control.lifecycle import intervals_of
from paddock.api.compat.daytona.control.requests import DaytonaRequest
from paddock.api.compat.daytona.errors import DAEMON, DaytonaError, as_daytona
from paddock.api.compat.daytona.route import Handler
from paddock.api.compat.daytona.toolbox.inside import InsideHere, ToolboxContext, ToolboxRoute, bad_path
from paddock.api.compat.e2b.envd.multipart import BadMultipart, Multipart, Part, boundary_of
from paddock.api.download import Download, span_of
from paddock.gateway.asgi_extensions import prove
from paddock.machine.base import FileInfo, FileType
from paddock.machine.byte_sources import CountedSource
from paddock.models import State, Text
from paddock.runtime.files import read_recorded
from paddock.server.context import ServerContext

_MAX_FIELD = 4096
_MAX_FILES = 10_000


class SignedRoute(ToolboxRoute):
    """Also accepts a URL that was signed for one file instead of a key."""

    def get_route_handler(self) -> Handler:
        with_key = super().get_route_handler()
        handle = APIRoute.get_route_handler(self)

        async def by_signature(request: Request) -> Response:
            request.state.caller = await _by_signature(request)
            return await handle(request)

        signed = self.answering(by_signature)

        async def either(request: Request) -> Response:
            return await (signed if "signature" in request.query_params else with_key)(request)

        return either


router = APIRouter(prefix="/{sandbox_id}/files", route_class=ToolboxRoute)
signed = APIRouter(prefix="/{sandbox_id}/files", route_class=SignedRoute)


class Paths(DaytonaRequest):
    paths: list[Text]


@signed.get("/download")
async def download(
    inside: InsideHere, request: Request, path: Annotated[str, Query(min_length=1, max_length=4095)]
) -> Response:
    where = inside.resolve(path)
    info = await _regular(inside, where)
    span = span_of(info, request.headers)
    return Download(
        info, span, read_recorded(inside.use, where, span.start, span.length if info.size else None, user=inside.user)
    )


@signed.post("/upload-v2")
@signed.post("/upload")
async def upload(
    inside: InsideHere, request: Request, path: Annotated[str, Query(min_length=1, max_length=4095)]
) -> dict[str, Any]:
    where = inside.resolve(path)
    written: FileInfo | None = None
    async for part in _parts(request):
        if part.name == "file":
            written = await _store(inside, where, part.chunks)
    if written is None:
        raise DaytonaError(400, "the field 'file' is missing", source=DAEMON)
    return {"name": written.name, "path": where, "type": "file"}


@router.post("/bulk-upload")
async def bulk_upload(inside: InsideHere, request: Request) -> Response:
    """Pairs of form fields: ``files[N].path`` followed by ``files[N].file``."""
    paths: dict[str, str] = {}
    written: list[dict[str, Any]] = []
    problems: list[str] = []
    async for part in _parts(request):
        stem, _, field = part.name.rpartition(".")
        if field == "path":
            if len(paths) >= _MAX_FILES:
                raise DaytonaError(400, f"at most {_MAX_FILES} files can be uploaded at once", source=DAEMON)
            paths[stem] = await _field(part)
        elif field == "file" and (path := paths.get(stem) or part.filename):
            try:
                info = await _store(inside, inside.resolve(path), part.chunks)
                written.append({"path": info.path, "bytes": info.size})
            except (
                errors.PathConflict,
                errors.PathDenied,
                errors.PathNotFound,
                errors.InsufficientStorage,
                errors.Invalid,
            ) as problem:
                problems.append(f"{path}: {problem.message}")
            except DaytonaError as problem:
                problems.append(f"{path}: {problem.message}")
    if problems:
        told = DaytonaError(400, "; ".join(problems), source=DAEMON)
        body = {**told.body(request.scope["path"], "POST"), "errors": problems, "files": written}
        return JSONResponse(body, 400)
    if not written:
        raise DaytonaError(400, "no files were uploaded", source=DAEMON)
    return JSONResponse({"files": written, "errors": []})


@router.post("/bulk-download")
async def bulk_download(inside: InsideHere, body: Paths) -> Response:
    if not body.paths:
        raise DaytonaError(400, "paths must not be empty", source=DAEMON)
    boundary = secrets.token_hex(24)
    kind = f"multipart/form-data; boundary={boundary}"
    return StreamingResponse(_multipart(inside, body.paths, boundary), media_type=kind)


async def _multipart(inside: ToolboxContext, paths: list[str], boundary: str) -> AsyncIterator[bytes]:
    for path in paths:
        chunks: AsyncGenerator[bytes, None] | None = None
        try:
            where = inside.resolve(path)
            info = await _regular(inside, where)
            chunks = read_recorded(inside.use, where, user=inside.user)
            # Read the first bytes before sending the part's head, so that errors of the file can be reported there.
            first = await anext(chunks, b"")
        except (errors.PaddockError, DaytonaError) as problem:
            yield _head(boundary, "error", path, "application/json")
            yield json.dumps(as_daytona(problem, DAEMON).body(path)).encode() + b"\r\n"
            continue
        size = {"Content-Length": str(info.size)} if info.size else {}
        yield _head(boundary, "file", path, "application/octet-stream", size)
        async with aclosing(chunks):
            if first:
                yield first
            async for chunk in chunks:
                yield chunk
        yield b"\r\n"
    yield f"--{boundary}--\r\n".encode()


def _head(boundary: str, name: str, path: str, kind: str, more: dict[str, str] | None = None) -> bytes:
    """Contains the path exactly as requested, by which the client identifies the file."""
    plain = path.replace("\\", "\\\\").replace('"', '\\"')
    if path.isascii() and path.isprintable():
        filename = f'filename="{plain}"'
    else:
        filename = f"filename*=UTF-8''{quote(path, safe='/')}"
    lines = [
        f"--{boundary}",
        f'Content-Disposition: form-data; name="{name}"; {filename}',
        f"Content-Type: {kind}",
        *(f"{title}: {value}" for title, value in (more or {}).items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _parts(request: Request) -> AsyncIterator[Part]:
    try:
        multipart = Multipart(aiter(request.stream()), boundary_of(request.headers.get("content-type", "")))
        async for part in multipart.parts():
            yield part
    except BadMultipart as bad:
        raise DaytonaError(400, str(bad), source=DAEMON) from None


async def _field(part: Part) -> str:
    data = bytearray()
    async for chunk in part.chunks:
        data += chunk
        if len(data) > _MAX_FIELD:
            raise bad_path("The path is too long")
    return data.decode(errors="replace")


async def _store(inside: ToolboxContext, path: str, chunks: AsyncIterator[bytes]) -> FileInfo:
    counted = CountedSource(chunks)
    info = await inside.machine.write_file(path, counted, user=inside.user)
    await inside.use.record(bytes_in=counted.count, event=("file.written", {"path": path, "size": counted.count}))
    return info


async def _regular(inside: ToolboxContext, path: str) -> FileInfo:
    info = await inside.machine.stat(path, follow=True, user=inside.user)
    if info.type is FileType.DIRECTORY:
        raise bad_path(f"{path} is a directory")
    return info


async def _by_signature(request: Request) -> Authenticated:
    """A valid signature grants the permissions of the sandbox's owner for this one path."""
    context: ServerContext = request.app.state.context
    refused = DaytonaError(401, "The signature is not valid, or has expired", source=DAEMON)
    query = request.query_params
    path, expires = query.get("path", ""), query.get("expires", "")
    if not (expires.isascii() and expires.isdecimal() and len(expires) <= 12):
        raise refused
    if int(expires) and int(expires) <= context.clock.now():
        raise refused
    try:
        sandbox = await context.controller.by_key(request.path_params["sandbox_id"])
    except errors.SandboxNotFound:
        raise refused from None
    key = context.tokens.file_key(sandbox.key, intervals_of(sandbox).keys_rotated)
    said = f"v1:files:{request.method}:{path}:{int(expires)}".encode(errors="replace")
    digest = hmac.new(key.encode(), said, hashlib.sha256).digest()
    good = "v1_" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    if sandbox.state is State.DELETED or not hmac.compare_digest(good.encode(), query["signature"].encode()):
        raise refused
    who = await context.accounts.stand_for(sandbox.owner_id)
    prove(request.scope, who)
    request.app.state.limiter.take(who)
    holding = holding_of(request.scope, context.in_flight)
    holding.belongs_to(who.user_id)
    return Authenticated(context, who, holding)
