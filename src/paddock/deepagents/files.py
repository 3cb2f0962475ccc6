"""File operations in the form that deepagents expects: one or two requests each, and no process in the sandbox.

Expected failures are results with an ``error`` in deepagents' wording. None instead of a result means that the file is
too large to fetch; the scripts of ``BaseSandbox`` then do it inside the sandbox.
"""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Generator
from typing import Any

import httpx
from deepagents.backends import protocol
from deepagents.backends.protocol import (
    EditResult,
    FileData,
    FileDownloadResponse,
    FileInfo,
    FileUploadResponse,
    LsResult,
    ReadResult,
    WriteResult,
)

from paddock import paths
from paddock.client.call import ApiCall, Steps, ask
from paddock.client.calls.files import delete_file, list_files, read_bytes, stat_file, upload
from paddock.deepagents.pages import FilePage, UnreadablePage, page
from paddock.errors import DiskFull, Invalid, PaddockError, PathConflict, PathDenied, PathNotFound


class NotReplaced(Exception):
    """The reason, in deepagents' wording."""


def replace(text: str, old: str, new: str, *, everywhere: bool) -> tuple[str, int]:
    """The new text, and the number of occurrences of ``old``.

    Models see only ``\n``. Text that does not match is searched again with the other line ending, and the replacement
    is converted to the line ending of its place.
    """
    plain_old, plain_new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    styles = (
        (old, new),
        (plain_old.replace("\n", "\r\n"), plain_new.replace("\n", "\r\n")),
        (plain_old, plain_new),
    )
    for wanted, instead in styles:
        if count := text.count(wanted):
            if count > 1 and not everywhere:
                raise NotReplaced(
                    f"Error: String '{old}' appears multiple times. Use replace_all=True to replace all occurrences."
                )
            return text.replace(wanted, instead), count
    raise NotReplaced(f"Error: String not found in file: '{old}'")


MAX_FETCHED = 8 << 20
"""Maximum bytes of a file that is fetched to be read or edited."""
WRITES_OVER = hasattr(protocol, "DeleteResult")
"""Since 0.7, which added ``DeleteResult``, writing replaces an existing file."""
_PAGED = {field.name for field in dataclasses.fields(ReadResult)}
_EXPECTED = (PathNotFound, PathDenied, PathConflict, DiskFull, Invalid)
_UNSATISFIABLE = 416


def list_directory(sandbox_id: str, path: str, user: str | None) -> Steps[LsResult]:
    try:
        entries = yield from ask(list_files(sandbox_id, _absolute(path), user=user))
    except _EXPECTED as error:
        reason = {"file_not_found": "path_not_found", "is_directory": "not_a_directory"}.get(code := _code(error), code)
        return LsResult(entries=None, error=f"Path '{path}': {reason}")
    found = [
        FileInfo(
            path=posixpath.join(path, entry.name),
            is_dir=entry.type == "directory",
            size=entry.size,
            modified_at=entry.modified_at,
        )
        for entry in entries
    ]
    return LsResult(entries=found)


def read(sandbox_id: str, path: str, offset: int, limit: int, user: str | None) -> Steps[ReadResult | None]:
    try:
        data, size = yield from ask(_beginning(sandbox_id, _absolute(path), user))
        if size > len(data):
            return None
        return _read_result(page(path, data, int(offset), int(limit)), int(limit))
    except _EXPECTED as error:
        code = _code(error)
        return ReadResult(error=f"File '{path}': {'not_a_file' if code == 'is_directory' else code}")
    except UnreadablePage as reason:
        return ReadResult(error=f"File '{path}': {reason}")


def write(sandbox_id: str, path: str, content: str, user: str | None) -> Steps[WriteResult]:
    target = _absolute(path)
    try:
        if not WRITES_OVER and (yield from _exists(sandbox_id, target, user)):
            return WriteResult(error=f"Error: File already exists: {path!r}")
        yield from ask(upload(sandbox_id, target, content.encode(), user=user))
    except _EXPECTED as error:
        return WriteResult(error=f"Failed to write file '{path}': {_code(error)}")
    return WriteResult(path=path)


def edit(
    sandbox_id: str, path: str, old: str, new: str, everywhere: bool, user: str | None
) -> Steps[EditResult | None]:
    if not old:
        return EditResult(error="Error: old_string cannot be empty. Provide the exact text to replace.")
    target = _absolute(path)
    try:
        data, size = yield from ask(_beginning(sandbox_id, target, user))
        if size > len(data):
            return None
        text, count = replace(data.decode(), old, new, everywhere=everywhere)
        yield from ask(upload(sandbox_id, target, text.encode(), user=user))
    except UnicodeDecodeError:
        return EditResult(error=f"Error: File '{path}' is not a text file")
    except NotReplaced as reason:
        return EditResult(error=str(reason))
    except _EXPECTED as error:
        return EditResult(error=_edit_error(error, path))
    return EditResult(path=path, occurrences=count)


def delete(sandbox_id: str, path: str, user: str | None) -> Generator[ApiCall[Any], Any, Any]:
    """Returns a ``DeleteResult``, which deepagents before 0.7 does not have."""
    try:
        yield from ask(delete_file(sandbox_id, _absolute(path), recursive=True, user=user))
    except PathNotFound:
        return protocol.DeleteResult(error=f"Error: '{path}' not found")
    except _EXPECTED as error:
        return protocol.DeleteResult(error=f"Error deleting file '{path}': {error.message}")
    return protocol.DeleteResult(path=path)


def upload_one(sandbox_id: str, path: str, content: bytes, user: str | None) -> Steps[FileUploadResponse]:
    if not path.startswith("/"):  # as in deepagents: only absolute paths are uploaded and downloaded
        return FileUploadResponse(path=path, error="invalid_path")
    try:
        yield from ask(upload(sandbox_id, path, content, user=user))
    except PaddockError as error:
        return FileUploadResponse(path=path, error=_code(error))
    return FileUploadResponse(path=path)


def download_one(sandbox_id: str, path: str, user: str | None) -> Steps[FileDownloadResponse]:
    if not path.startswith("/"):
        return FileDownloadResponse(path=path, error="invalid_path")
    try:
        content = yield from ask(read_bytes(sandbox_id, path, user=user))
    except PaddockError as error:
        return FileDownloadResponse(path=path, error=_code(error))
    return FileDownloadResponse(path=path, content=content)


def _absolute(path: str) -> str:
    """The absolute path, resolved against the workspace."""
    return posixpath.normpath(paths.absolute(path))


def _exists(sandbox_id: str, path: str, user: str | None) -> Steps[bool]:
    try:
        yield from ask(stat_file(sandbox_id, path, user=user))
    except PathNotFound:
        return False
    return True


def _beginning(sandbox_id: str, path: str, user: str | None) -> ApiCall[tuple[bytes, int]]:
    """The first bytes of a file, and its size."""

    def take(response: httpx.Response) -> tuple[bytes, int]:
        if response.status_code == _UNSATISFIABLE:
            return b"", 0
        _, _, size = response.headers.get("content-range", "").partition("/")
        return response.content, int(size) if size.isdigit() else len(response.content)

    whole = read_bytes(sandbox_id, path, user=user)
    return ApiCall(
        method=whole.method,
        path=whole.path,
        params=whole.params,
        headers={"Range": f"bytes=0-{MAX_FETCHED - 1}"},
        also=frozenset({_UNSATISFIABLE}),
        read=take,
    )


def _read_result(found: FilePage, limit: int) -> ReadResult:
    paging: dict[str, Any] = {
        "total_lines": found.total_lines,
        "start_line": found.start_line,
        "end_line": found.end_line,
        "next_offset": found.next_offset,
        "no_lines_requested": limit <= 0 and not found.content,
    }
    known = {name: value for name, value in paging.items() if name in _PAGED}
    return ReadResult(file_data=FileData(content=found.content, encoding=found.encoding), **known)


def _edit_error(error: PaddockError, path: str) -> str:
    match _code(error):
        case "file_not_found":
            return f"Error: File '{path}' not found"
        case "permission_denied":
            return f"Error: Permission denied editing file '{path}'"
        case "is_directory":
            return f"Error: '{path}' is not a regular file"
    return f"Error editing file '{path}': {error.message}"


def _code(error: PaddockError) -> str:
    """deepagents' error code, or the server's message."""
    match error:
        case PathNotFound():
            return "file_not_found"
        case PathDenied():
            return "permission_denied"
        case DiskFull():
            return error.message
        case PathConflict():
            return "is_directory"
        case Invalid():
            return "invalid_path"
    return error.message
