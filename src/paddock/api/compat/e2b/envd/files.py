"""``/files``: file content of any size, streamed in both directions.

Uploads are written in place (no temporary file, no rename), because watchers of the directory expect exactly these
events: created, owner changed, written.
"""

from __future__ import annotations

import mimetypes
import posixpath
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from email.utils import formatdate, parsedate_to_datetime
from typing import Any
from urllib.parse import quote

from starlette.datastructures import Headers

from paddock import errors
from paddock.api.compat.e2b.envd.coding import BadCoding, NotAcceptable, chosen, unzipped, zipped
from paddock.api.compat.e2b.envd.http import HttpError
from paddock.api.compat.e2b.envd.inside import EnvdContext
from paddock.api.compat.e2b.envd.multipart import BadMultipart, Multipart, Part, boundary_of
from paddock.api.compat.e2b.envd.users import ROOT, Account, BadPath, UnknownUser, basic_user
from paddock.api.download import Upload, span_of
from paddock.gateway.origin import FILE_POLICY
from paddock.machine.base import DEFAULT_USER, FileInfo, FileType
from paddock.machine.byte_sources import CountedSource
from paddock.runtime.files import read_recorded

_METADATA = "x-metadata-"
_MAX_KEY, _MAX_METADATA = 246, 4096
_PRINTABLE = re.compile(r"[\x20-\x7e]*")
_UNSAFE = re.compile(r'[^\x20-\x7e]|["\\]')
_MAX_COMPOSE = 1 << 20
_FIELD = "file"


async def download(inside: EnvdContext) -> None:
    """GET and HEAD."""
    exchange = inside.exchange
    path = await _target(inside, exchange.query.get("path", ""))
    info = await _regular(inside, path)
    ranged = "range" in exchange.headers
    try:
        coding = "identity" if ranged else chosen(exchange.headers.get("accept-encoding"))
    except NotAcceptable:
        raise HttpError(406, "no acceptable encoding found: gzip and identity are available") from None
    headers = _headers(info)
    if not ranged and _unchanged(info, exchange.headers, headers["ETag"]):
        await exchange.respond(304, headers={name: headers[name] for name in ("ETag", "Last-Modified", "Vary")})
    elif coding == "gzip":
        await _send(
            inside, zipped(read_recorded(inside.use, path, user=ROOT)), 200, {**headers, "Content-Encoding": "gzip"}
        )
    elif info.size == 0:
        await _send_unsized(inside, path, headers)
    else:
        await _send_span(inside, path, info, headers)


async def upload(inside: EnvdContext) -> None:
    """POST: one raw file, or any number of multipart parts."""
    exchange = inside.exchange
    account = await _account(inside)
    metadata = _pinned(exchange.headers)
    chunks: AsyncIterator[bytes] = Upload(exchange.scope, aiter(exchange.body))
    coding = exchange.headers.get("content-encoding", "identity").strip().lower()
    if coding == "gzip":
        chunks = unzipped(chunks)
    elif coding not in ("", "identity"):
        raise HttpError(400, f"unsupported content encoding: {coding[:50]}")
    kind = exchange.headers.get("content-type", "")
    essence = kind.partition(";")[0].strip().lower()
    try:
        if essence == "application/octet-stream":
            if not (asked := exchange.query.get("path", "")):
                raise HttpError(400, "the path of the file is missing")
            written = [await _store(inside, account, _resolve(account, asked), chunks, metadata)]
        elif essence == "multipart/form-data":
            written = await _store_parts(inside, account, Multipart(chunks, boundary_of(kind)), metadata)
        else:
            raise HttpError(400, f"unsupported content type: {essence[:100] or 'none'}")
    except (BadMultipart, BadCoding) as bad:
        raise HttpError(400, str(bad)) from None
    await exchange.respond_json(200, [_described(info, metadata) for info in written])


async def compose(inside: EnvdContext, document: dict[str, Any]) -> None:
    """POST /files/compose: concatenates several files into one."""
    sources, destination = document.get("source_paths"), document.get("destination")
    if not isinstance(sources, list) or not sources or not all(isinstance(path, str) for path in sources):
        raise HttpError(400, "source_paths must be a list of paths")
    if not isinstance(destination, str) or not destination:
        raise HttpError(400, "destination must be a path")
    account = await _account(inside, str(document.get("username") or ""))
    paths = [_resolve(account, path) for path in sources]
    target = _resolve(account, destination)
    if target in paths:
        raise HttpError(400, f"'{target}' cannot be both a source and the destination")
    for path in paths:
        await _regular(inside, path)

    async def joined() -> AsyncIterator[bytes]:
        for path in paths:
            async with aclosing(read_recorded(inside.use, path, user=ROOT)) as chunks:
                async for chunk in chunks:
                    yield chunk

    info = await _store(inside, account, target, joined(), {})
    await inside.exchange.respond_json(200, _described(info, {}))


# Downloads


async def _send(inside: EnvdContext, chunks: AsyncIterator[bytes], status: int, headers: dict[str, str]) -> None:
    """Read the first bytes before sending the status, so that errors of the file can be reported by it."""
    exchange = inside.exchange
    try:
        first = await anext(chunks, b"")
        await exchange.start(status, headers)
        if exchange.method != "HEAD":
            await exchange.write(first)
            async for chunk in chunks:
                await exchange.write(chunk)
        await exchange.write(b"", more=False)
    finally:
        if isinstance(chunks, AsyncGenerator):
            await chunks.aclose()


async def _send_unsized(inside: EnvdContext, path: str, headers: dict[str, str]) -> None:
    """For files in /proc, whose size is unknown before they are read. An empty file still gets a length, which
    JavaScript clients need."""
    chunks = read_recorded(inside.use, path, user=ROOT)
    first = await anext(chunks, b"")
    if not first:
        await chunks.aclose()
        await inside.exchange.respond(200, b"", headers)
        return

    async def all_of_it() -> AsyncGenerator[bytes, None]:
        async with aclosing(chunks):
            yield first
            async for chunk in chunks:
                yield chunk

    await _send(inside, all_of_it(), 200, headers)


async def _send_span(inside: EnvdContext, path: str, info: FileInfo, headers: dict[str, str]) -> None:
    """Send exactly the announced bytes or break the connection, so that a truncated file is never taken for
    complete."""
    try:
        span = span_of(info, inside.exchange.headers)
    except errors.RangeNotSatisfiable as error:
        await inside.exchange.respond_json(
            416, {"code": 416, "message": error.message}, {"Content-Range": f"bytes */{info.size}"}
        )
        return
    if span.partial:
        headers["Content-Range"] = f"bytes {span.start}-{span.start + span.length - 1}/{info.size}"
    headers["Content-Length"] = str(span.length)
    await _send(
        inside,
        read_recorded(inside.use, path, span.start, span.length, user=ROOT),
        206 if span.partial else 200,
        headers,
    )


def _headers(info: FileInfo) -> dict[str, str]:
    plain = _UNSAFE.sub("_", info.name)
    exact = "" if plain == info.name else f"; filename*=UTF-8''{quote(info.name, safe='')}"
    return {
        "Content-Type": mimetypes.guess_type(info.name)[0] or "application/octet-stream",
        "Content-Disposition": f'inline; filename="{plain}"{exact}',
        "Accept-Ranges": "bytes",
        "ETag": f'"{int(info.modified_at * 1000):x}-{info.size:x}"',
        "Last-Modified": formatdate(info.modified_at, usegmt=True),
        "Vary": "Accept-Encoding",
        # Inline as in E2B; but pages written in a sandbox must not run on this origin.
        "Content-Security-Policy": FILE_POLICY,
        "X-Content-Type-Options": "nosniff",
        "Cross-Origin-Resource-Policy": "cross-origin",  # a signed URL may be an image source on any page
    }


def _unchanged(info: FileInfo, headers: Headers, etag: str) -> bool:
    """RFC 9110, 13: whether the client's copy is current."""
    if (known := headers.get("if-none-match")) is not None:
        return any(tag.strip().removeprefix("W/") in ("*", etag) for tag in known.split(","))
    try:
        since = parsedate_to_datetime(headers.get("if-modified-since", ""))
    except ValueError:
        return False
    return int(info.modified_at) <= since.timestamp()


# Uploads


async def _store(
    inside: EnvdContext, account: Account, path: str, chunks: AsyncIterator[bytes], metadata: dict[str, str]
) -> FileInfo:
    counted = CountedSource(chunks)
    try:
        info = await inside.machine.write_file(
            path, counted, atomic=False, user=ROOT, owner=account.name, attributes=metadata
        )
    except errors.InsufficientStorage:
        raise HttpError(507, "not enough disk space available") from None
    except (errors.PathConflict, errors.PathDenied, errors.PathNotFound, errors.Invalid) as error:
        raise HttpError(400, await _why(inside, path, error)) from None
    await inside.use.record(bytes_in=counted.count, event=("file.written", {"path": path, "size": counted.count}))
    return info


async def _why(inside: EnvdContext, path: str, error: errors.PaddockError) -> str:
    try:
        there = await inside.machine.stat(path, follow=True, user=ROOT)
    except errors.PaddockError:
        return error.message
    return f"path is a directory: {path}" if there.type is FileType.DIRECTORY else error.message


async def _store_parts(
    inside: EnvdContext, account: Account, multipart: Multipart, metadata: dict[str, str]
) -> list[FileInfo]:
    written: list[FileInfo] = []
    taken: set[str] = set()
    async for part in multipart.parts():
        if part.name != _FIELD:
            continue
        path = _resolve(account, _part_path(inside, part))
        if path in taken:
            raise HttpError(400, f"you cannot upload multiple files to the same path '{path}' in one upload request")
        taken.add(path)
        written.append(await _store(inside, account, path, part.chunks, metadata))
    if not written:
        raise HttpError(400, "the request holds no part named 'file'")
    return written


def _part_path(inside: EnvdContext, part: Part) -> str:
    if asked := inside.exchange.query.get("path", ""):
        return asked
    if not part.filename:
        raise HttpError(400, "a part named 'file' has no filename, and there is no path")
    return part.filename


def _pinned(headers: Headers) -> dict[str, str]:
    """The metadata of an upload, within the file system's limits."""
    found = {name[len(_METADATA) :]: value for name, value in headers.items() if name.startswith(_METADATA)}
    for name, value in found.items():
        if not name or len(name) > _MAX_KEY:
            raise HttpError(400, f"a metadata key has 1 to {_MAX_KEY} bytes")
        if not _PRINTABLE.fullmatch(name) or not _PRINTABLE.fullmatch(value):
            raise HttpError(400, "metadata may hold printable ASCII only")
    if sum(len(name) + len(value) for name, value in found.items()) > _MAX_METADATA:
        raise HttpError(400, f"metadata may have at most {_MAX_METADATA} bytes in all")
    return found


def _described(info: FileInfo, metadata: dict[str, str]) -> dict[str, Any]:
    pinned = {"metadata": metadata} if metadata else {}
    return {"path": info.path, "name": info.name, "type": "file", **pinned}


# User and path


async def _account(inside: EnvdContext, name: str = "") -> Account:
    exchange = inside.exchange
    asked = name or exchange.query.get("username") or basic_user(exchange.headers.get("authorization", ""))
    try:
        return await inside.accounts.find(inside.machine, asked or DEFAULT_USER)
    except UnknownUser as unknown:
        raise HttpError(401, str(unknown)) from None


async def _target(inside: EnvdContext, path: str) -> str:
    return _resolve(await _account(inside), path)


def _resolve(account: Account, path: str) -> str:
    try:
        return account.resolve(path)
    except BadPath as bad:
        raise HttpError(400, str(bad)) from None


async def _regular(inside: EnvdContext, path: str) -> FileInfo:
    try:
        info = await inside.machine.stat(path, follow=True, user=ROOT)
    except errors.PathNotFound:
        raise HttpError(404, f"path '{path}' does not exist") from None
    except (errors.PathConflict, errors.Invalid) as error:
        raise HttpError(404 if isinstance(error, errors.PathConflict) else 400, error.message) from None
    if info.type is FileType.DIRECTORY:
        raise HttpError(400, f"path '{path}' is a directory")
    if info.type is not FileType.FILE:
        raise HttpError(400, f"path '{path}' is not a regular file")
    return replace(info, name=posixpath.basename(path))
