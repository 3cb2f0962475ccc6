"""Files: small ones as JSON, any size as streams."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import Query, Request, Response

from paddock import base64_slices, errors
from paddock.api.auth import Authenticated, Calling
from paddock.api.download import Download, Upload, span_of
from paddock.api.file_content import FileContentAnswer, json_items
from paddock.api.openapi import failures, guarded_router
from paddock.api.params import PathQuery, SandboxIdHere, UserQuery
from paddock.api.shapes import file_answer
from paddock.api.sse import EVENTS, READY, EventStream, ServerSentEvent
from paddock.machine.base import DEFAULT_USER
from paddock.models import (
    FileAnswer,
    FileContent,
    FileList,
    FileWritten,
    MakeDirectory,
    MovePath,
    ReadFile,
    Success,
    WriteFile,
)

by_body = guarded_router("files")
router = guarded_router("files", "/sandboxes/{sandbox_id}/files")

_BYTES: dict[str, Any] = {"*/*": {"schema": {"type": "string", "format": "binary"}}}
_DOWNLOAD: dict[int | str, dict[str, Any]] = {
    200: {"description": "The file.", "content": _BYTES},
    206: {"description": "One range of it.", "content": _BYTES},
    **failures(404, 409, 416, 501, 507),
}
_UPLOAD: dict[str, Any] = {
    "requestBody": {
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
_CHANGES: dict[int | str, dict[str, Any]] = {
    200: {"description": "Events `change` with `path` and `change`.", "content": EVENTS}
}


@by_body.post("/sandboxes/write-file")
async def write_file(body: WriteFile, caller: Calling) -> FileWritten:
    """Create or replace a file, and create missing parent directories."""
    if body.encoding == "base64":
        try:
            data = await base64_slices.decode(body.content)
        except ValueError:  # also raised for non-ASCII text, which is not a binascii.Error
            raise errors.Invalid("content is not valid base64.") from None
    else:
        data = body.content.encode()
    info = await caller.context.files.write_bytes(caller.who, body.sandbox_id, body.path, data, user=_user(body))
    return FileWritten(file=file_answer(info), message=f"Wrote {len(data)} bytes to {body.path}.")


@by_body.post("/sandboxes/read-file", response_model=FileContent)
async def read_file(body: ReadFile, caller: Calling) -> Response:
    """Read a whole file as text, or as base64 with `encoding`."""
    files, user = caller.context.files, _user(body)
    data = await files.read_all(caller.who, body.sandbox_id, body.path, caller.holding, user=user)
    try:
        return await FileContentAnswer.of(body.path, data, body.encoding)
    except UnicodeDecodeError:
        raise errors.Invalid(
            f"{body.path} is not UTF-8 text; read it with encoding=base64, or stream it with "
            "GET /sandboxes/{sandbox_id}/files."
        ) from None


@router.get("", response_model=None, responses=_DOWNLOAD)
async def download_file(
    request: Request, sandbox_id: SandboxIdHere, path: PathQuery, caller: Calling, user: UserQuery = DEFAULT_USER
) -> Response:
    """Stream the file's bytes; `Range` requests a part."""
    files = caller.context.files
    info = await files.stat(caller.who, sandbox_id, path, follow=True, user=user)
    span = span_of(info, request.headers)
    chunks = files.read(caller.who, sandbox_id, path, span.start, span.length, user=user) if span.length else None
    return Download(info, span, chunks)


@router.head("", response_model=None, responses=_DOWNLOAD)
async def check_file(
    request: Request, sandbox_id: SandboxIdHere, path: PathQuery, caller: Calling, user: UserQuery = DEFAULT_USER
) -> Response:
    """The headers of a download, without the content."""
    info = await caller.context.files.stat(caller.who, sandbox_id, path, follow=True, user=user)
    return Download(info, span_of(info, request.headers), None)


@router.put("", openapi_extra=_UPLOAD)
async def upload_file(
    request: Request,
    sandbox_id: SandboxIdHere,
    path: PathQuery,
    caller: Calling,
    mode: Annotated[str | None, Query(pattern=r"^[0-7]{3,4}$", description="Octal.", examples=["0644"])] = None,
    user: UserQuery = DEFAULT_USER,
) -> FileWritten:
    """Create or replace a file, and missing parent directories, from the raw body of any size."""
    bits = None if mode is None else int(mode, 8)
    body = Upload(request.scope, request.stream())
    info = await caller.context.files.write(caller.who, sandbox_id, path, body, bits, user=user)
    return FileWritten(file=file_answer(info), message=f"Wrote {info.size} bytes to {path}.")


@router.delete("")
async def delete_file(
    sandbox_id: SandboxIdHere,
    path: PathQuery,
    caller: Calling,
    recursive: bool = False,
    user: UserQuery = DEFAULT_USER,
) -> Success:
    """Delete a file, an empty directory, or with `recursive` a non-empty one."""
    await caller.context.files.remove(caller.who, sandbox_id, path, recursive, user=user)
    return Success(message=f"Removed {path}.")


@router.get("/list", response_model=FileList)
async def list_files(
    sandbox_id: SandboxIdHere,
    caller: Calling,
    path: PathQuery = "/workspace",
    depth: Annotated[int, Query(ge=1, le=32)] = 1,
    user: UserQuery = DEFAULT_USER,
) -> Response:
    """List the entries below a directory, sorted by path."""
    async with caller.context.listings.turn(caller.who.user_id):
        entries = await caller.context.files.list_directory(caller.who, sandbox_id, path, depth, user=user)
        items = await json_items(entries, lambda info: file_answer(info).model_dump(mode="json"), caller.holding)
    body = b'{"path":%b,"entries":[%b]}' % (json.dumps(path).encode(), items)
    return Response(body, media_type="application/json")


@router.get("/stat")
async def stat_file(
    sandbox_id: SandboxIdHere, path: PathQuery, caller: Calling, user: UserQuery = DEFAULT_USER
) -> FileAnswer:
    return file_answer(await caller.context.files.stat(caller.who, sandbox_id, path, user=user))


@router.post("/move")
async def move_file(body: MovePath, sandbox_id: SandboxIdHere, caller: Calling) -> FileAnswer:
    files, user = caller.context.files, _user(body)
    return file_answer(await files.move(caller.who, sandbox_id, body.source, body.destination, user=user))


@router.post("/mkdir")
async def make_directory(body: MakeDirectory, sandbox_id: SandboxIdHere, caller: Calling) -> FileAnswer:
    """Create a directory and its missing parents. Succeeds if it exists."""
    return file_answer(await caller.context.files.make_directory(caller.who, sandbox_id, body.path, user=_user(body)))


@router.get("/watch", response_model=None, responses=_CHANGES)
async def watch_files(
    request: Request,
    sandbox_id: SandboxIdHere,
    caller: Calling,
    path: PathQuery = "/workspace",
    recursive: bool = False,
    user: UserQuery = DEFAULT_USER,
) -> Response:
    """Stream changes below a directory; every change after the response headers is reported."""
    return await EventStream.open(_changes(caller, sandbox_id, path, recursive, user), request)


def _user(body: WriteFile | ReadFile | MovePath | MakeDirectory) -> str:
    return body.user or DEFAULT_USER


async def _changes(
    caller: Authenticated, sandbox_id: str, path: str, recursive: bool, user: str
) -> AsyncGenerator[ServerSentEvent, None]:
    async with aclosing(caller.context.files.watch(caller.who, sandbox_id, path, recursive, user=user)) as changes:
        async for change in changes:
            if change is None:
                yield READY
            else:
                yield ServerSentEvent("change", {"path": change.path, "change": change.change.value})
