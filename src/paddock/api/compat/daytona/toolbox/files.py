"""Files: list, create, move, delete, search, replace. Content is transferred by :mod:`.transfer`."""

from __future__ import annotations

import json
import posixpath
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from paddock import errors
from paddock.api.compat.daytona.control.requests import DaytonaRequest
from paddock.api.compat.daytona.control.shapes import DAYTONA_USER
from paddock.api.compat.daytona.errors import DAEMON, DaytonaError
from paddock.api.compat.daytona.toolbox.inside import InsideHere, ToolboxContext, ToolboxRoute, bad_path
from paddock.api.file_content import json_items
from paddock.clock import iso
from paddock.machine.base import DEFAULT_USER, FileInfo, FileType, ProcessStatus
from paddock.models import Text

router = APIRouter(prefix="/{sandbox_id}/files", route_class=ToolboxRoute)

_SEARCH_SECONDS = 120.0
_MAX_FOUND = 8 << 20
_COPIES_OF_FOUND = 3
"""Copies in memory: the output, the parsed results, and the answer."""
_MAX_REPLACED = 16 << 20
_MAX_LISTED = 10_000
_MAX_DIGITS = 13
_LETTERS = "rwxrwxrwx"

FilePath = Annotated[str, Query(min_length=1, max_length=4095)]


class Replace(DaytonaRequest):
    files: list[Text]
    pattern: Text
    new_value: Text


@router.get("")
async def list_files(inside: InsideHere, path: str = "", depth: Annotated[int, Query(ge=1, le=100)] = 1) -> Response:
    where = inside.resolve(path)
    async with inside.caller.context.listings.turn(inside.sandbox.owner_id):
        entries = await inside.machine.list_directory(where, depth, user=inside.user)
        return _json(b"[%b]" % await json_items(entries, shown, inside.caller.holding))


@router.get("/info")
async def file_info(inside: InsideHere, path: FilePath) -> dict[str, Any]:
    return shown(await inside.machine.stat(inside.resolve(path), follow=True, user=inside.user))


@router.post("/folder")
async def create_folder(inside: InsideHere, path: FilePath, mode: str = "0755") -> Response:
    where, bits = inside.resolve(path), _bits(mode)
    await inside.machine.make_directory(where, inside.user)
    await _as_program(inside, ["chmod", f"{bits:o}", "--", where])
    return Response(status_code=201)


@router.delete("")
async def delete_file(inside: InsideHere, path: FilePath, recursive: bool = False) -> Response:
    where = inside.resolve(path)
    info = await inside.machine.stat(where, user=inside.user)
    if info.type is FileType.DIRECTORY and not recursive:
        raise bad_path(f"{where} is a directory; delete it with recursive=true")
    await inside.machine.remove(where, recursive, user=inside.user)
    await inside.use.record(event=("file.removed", {"path": where}))
    return Response(status_code=204)


@router.post("/move")
async def move_file(inside: InsideHere, source: FilePath, destination: FilePath) -> Response:
    start, end = inside.resolve(source), inside.resolve(destination)
    await inside.machine.move(start, end, user=inside.user)
    await inside.use.record(event=("file.moved", {"source": start, "destination": end}))
    return Response(status_code=200)


@router.post("/permissions")
async def set_permissions(
    inside: InsideHere,
    path: FilePath,
    mode: str = "",
    owner: Annotated[str, Query(max_length=64)] = "",
    group: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    """Changes the owner as root, which the caller could become anyway."""
    where = inside.resolve(path)
    await inside.machine.stat(where, user=inside.user)
    if mode:
        await _as_program(inside, ["chmod", f"{_bits(mode):o}", "--", where])
    owner, group = (_account(name) for name in (owner, group))
    if owner or group:
        await _as_program(inside, ["chown", f"{owner}:{group}" if group else owner, "--", where], user="root")
    return Response(status_code=200)


@router.get("/find")
async def find_in_files(inside: InsideHere, path: FilePath, pattern: Text) -> Response:
    """Lines that contain the text, in all text files; at most 10,000."""
    where = inside.resolve(path)
    await inside.machine.stat(where, follow=True, user=inside.user)
    argv = ["grep", "-rHnIZ", "--no-messages", "-F", "-e", pattern, "--", where]
    output = await _search(inside, argv, fine=(0, 1, 2))
    return _json(await inside.workers.call(len(output), found_lines, output))


@router.get("/search")
async def search_files(inside: InsideHere, path: FilePath, pattern: Text) -> Response:
    """Paths whose last segment matches the glob."""
    where = inside.resolve(path)
    await inside.machine.stat(where, follow=True, user=inside.user)
    argv = ["find", where, "-name", pattern, "-print0"]
    output = await _search(inside, argv, fine=(0, 1))
    return _json(await inside.workers.call(len(output), found_names, output))


@router.post("/replace")
async def replace_in_files(inside: InsideHere, body: Replace) -> list[dict[str, Any]]:
    """Each file separately: an error in one does not affect the others."""
    if not body.pattern:
        raise DaytonaError(400, "pattern must not be empty", source=DAEMON)
    answers: list[dict[str, Any]] = []
    for name in body.files:
        try:
            await _replace(inside, inside.resolve(name), body.pattern.encode(), body.new_value.encode())
            answers.append({"file": name, "success": True})
        except (errors.PaddockError, DaytonaError) as problem:
            answers.append({"file": name, "success": False, "error": str(problem)})
    return answers


async def _replace(inside: ToolboxContext, path: str, pattern: bytes, new: bytes) -> None:
    info = await inside.machine.stat(path, follow=True, user=inside.user)
    if info.size > _MAX_REPLACED:
        raise errors.PayloadTooLarge(f"{path} is larger than {_MAX_REPLACED} bytes")
    inside.caller.holding.reserve(2 * info.size)
    data = bytearray()
    async for chunk in inside.machine.read_file(path, 0, _MAX_REPLACED, user=inside.user):
        data += chunk
    changed = await inside.workers.call(len(data), replaced, bytes(data), pattern, new)

    async def whole() -> AsyncIterator[bytes]:
        yield changed or b""

    if changed is not None:
        await inside.machine.write_file(path, whole(), mode=info.mode, user=inside.user)


def replaced(data: bytes, pattern: bytes, new: bytes) -> bytes | None:
    """The new text; None if nothing changes. Raises if it would exceed the maximum file size."""
    count = data.count(pattern)
    if len(data) + count * (len(new) - len(pattern)) > _MAX_REPLACED:
        raise errors.PayloadTooLarge(f"the file would become larger than {_MAX_REPLACED} bytes")
    return data.replace(pattern, new) if count and new != pattern else None


def found_lines(output: bytes) -> bytes:
    """grep's output in Daytona's format."""
    found = []
    for record in output.split(b"\n"):
        name, mark, rest = record.partition(b"\0")
        number, _, text = rest.partition(b":")
        if mark and number.isdigit() and len(number) < _MAX_DIGITS:
            found.append((_text(name).split("/"), int(number), _text(name), _text(text)))
    kept = sorted(found)[:_MAX_LISTED]
    return json.dumps([{"file": file, "line": line, "content": text} for _, line, file, text in kept]).encode()


def found_names(output: bytes) -> bytes:
    """find's output in Daytona's format."""
    names = sorted((_text(name) for name in output.split(b"\0") if name), key=lambda name: name.split("/"))
    return json.dumps({"files": names}).encode()


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def shown(info: FileInfo) -> dict[str, Any]:
    directory = info.type is FileType.DIRECTORY
    kind = {FileType.DIRECTORY: "d", FileType.SYMLINK: "L"}.get(info.type, "-")
    letters = "".join(letter if info.mode >> (8 - place) & 1 else "-" for place, letter in enumerate(_LETTERS))
    return {
        "name": info.name,
        "path": info.path,
        "isDir": directory,
        "size": info.size,
        "mode": kind + letters,
        "permissions": f"{info.mode & 0o7777:04o}",
        "owner": info.owner,
        "group": info.group,
        "modTime": iso(info.modified_at),
        "modifiedAt": iso(info.modified_at),
    }


async def _search(inside: ToolboxContext, argv: list[str], fine: tuple[int, ...]) -> bytes:
    """Output of a search program. Results count even if some directories were unreadable."""
    spec = inside.spec(argv, label=" ".join(argv), hard_timeout=_SEARCH_SECONDS)
    info, stdout, stderr = await inside.machine.run(spec, None, _MAX_FOUND)
    if info.status is ProcessStatus.TIMED_OUT:
        raise DaytonaError(408, "the search took too long", "PROCESS_EXECUTION_TIMEOUT", DAEMON)
    if info.exit_code not in fine:
        raise DaytonaError(500, f"{argv[0]} failed: {_text(stderr.data)[:500]}", "FILE_READ_FAILED", DAEMON)
    inside.caller.holding.reserve(_COPIES_OF_FOUND * len(stdout.data))
    return stdout.data


async def _as_program(inside: ToolboxContext, argv: list[str], user: str | None = None) -> None:
    info, _, stderr = await inside.machine.run(inside.spec(argv, label=" ".join(argv), user=user, hard_timeout=30))
    if info.exit_code != 0:
        said = _text(stderr.data).strip()[:500] or f"{posixpath.basename(argv[0])} failed"
        code = "FILE_ACCESS_DENIED" if "not permitted" in said else None
        raise DaytonaError(403 if code else 400, said, code, DAEMON)


def _account(name: str) -> str:
    """Maps Daytona's user `daytona` to the sandbox's own user."""
    return DEFAULT_USER if name == DAYTONA_USER else name


def _bits(mode: str) -> int:
    try:
        bits = int(mode or "0755", 8)
    except ValueError:
        bits = -1
    if not 0 <= bits <= 0o7777:
        raise DaytonaError(400, f"invalid mode {mode[:20]!r}: octal digits, for example 0755", source=DAEMON)
    return bits


def _text(data: bytes) -> str:
    return data.decode(errors="replace")
