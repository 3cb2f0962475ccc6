"""Files inside a sandbox. Short text is sent as JSON, everything else is streamed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from paddock.client.answers import Done, File, FileChange, Written
from paddock.client.call import ApiCall, Body, StreamCall, answer, event, given, listed, nothing
from paddock.client.calls.sandboxes import sandbox_path
from paddock.client.errors import from_event
from paddock.client.retry import Repeat
from paddock.client.sse import EventDecoder
from paddock.models import FileContent

MAX_JSON = 256 * 1024
"""Longer text is streamed, which avoids escaping it."""


def write_file(
    sandbox_id: str, path: str, content: str | Body | None, *, mode: int | None = None, user: str | None = None
) -> ApiCall[Written]:
    """Create or replace a file, and create missing parent directories. Accepts text, bytes, a file object or an
    iterator of bytes.

    None creates an empty file.
    """
    content = "" if content is None else content
    if not isinstance(content, str):
        return upload(sandbox_id, path, content, mode=mode, user=user)
    if mode is not None or len(content) > MAX_JSON:
        return upload(sandbox_id, path, content.encode(), mode=mode, user=user)
    return ApiCall(
        method="POST",
        path="/sandboxes/write-file",
        json=given(sandbox_id=sandbox_id, path=path, content=content, user=user),
        read=answer(Written),
    )


def upload(
    sandbox_id: str, path: str, source: Body, *, mode: int | None = None, user: str | None = None
) -> ApiCall[Written]:
    """Stream bytes, a local file (``Path``), a file object or an iterator into a file.

    Bytes and local files are sent again if a try fails; the others can be read only once.
    """
    if isinstance(source, str):
        raise TypeError("give a pathlib.Path to upload a local file, or bytes; write_file takes text")
    if isinstance(source, bytearray | memoryview):
        source = bytes(source)
    return ApiCall(
        method="PUT",
        path=sandbox_path(sandbox_id, "files"),
        params=given(path=path, mode=None if mode is None else f"{mode:04o}", user=user),
        headers={"Content-Type": "application/octet-stream"},
        body=source,
        repeat=Repeat.SAFE if isinstance(source, bytes | Path) else Repeat.UNSENT,
        read=answer(Written),
    )


def read_file(sandbox_id: str, path: str, *, user: str | None = None) -> ApiCall[str]:
    """Read a whole text file."""
    return ApiCall(
        method="POST",
        path="/sandboxes/read-file",
        json=given(sandbox_id=sandbox_id, path=path, user=user),
        read=lambda response: answer(FileContent)(response).content,
    )


def read_bytes(sandbox_id: str, path: str, *, user: str | None = None) -> ApiCall[bytes]:
    """Read a whole file."""
    return ApiCall(
        method="GET",
        path=sandbox_path(sandbox_id, "files"),
        params=given(path=path, user=user),
        read=lambda response: response.content,
    )


def download(sandbox_id: str, path: str, *, offset: int = 0, user: str | None = None) -> StreamCall[bytes]:
    """Stream a file's bytes from ``offset``. Raises an error if the file is not received completely."""
    return StreamCall(
        call=ApiCall(
            method="GET",
            path=sandbox_path(sandbox_id, "files"),
            params=given(path=path, user=user),
            headers={"Range": f"bytes={offset}-"} if offset else {},
            read=nothing,
        ),
        decoder=_Bytes,
    )


def list_files(
    sandbox_id: str, path: str = "/workspace", *, depth: int = 1, user: str | None = None
) -> ApiCall[list[File]]:
    """The entries below a directory, sorted by path."""
    return ApiCall(
        method="GET",
        path=sandbox_path(sandbox_id, "files", "list"),
        params=given(path=path, depth=depth, user=user),
        read=listed(File, "entries"),
    )


def stat_file(sandbox_id: str, path: str, *, user: str | None = None) -> ApiCall[File]:
    return ApiCall(
        method="GET",
        path=sandbox_path(sandbox_id, "files", "stat"),
        params=given(path=path, user=user),
        read=answer(File),
    )


def move_file(sandbox_id: str, source: str, destination: str, *, user: str | None = None) -> ApiCall[File]:
    """Move a file. Never retried, because a second try would not find the file."""
    return ApiCall(
        method="POST",
        path=sandbox_path(sandbox_id, "files", "move"),
        json=given(source=source, destination=destination, user=user),
        read=answer(File),
        repeat=Repeat.UNSENT,
    )


def make_directory(sandbox_id: str, path: str, *, user: str | None = None) -> ApiCall[File]:
    """Create a directory and its missing parents. Succeeds if it exists."""
    return ApiCall(
        method="POST",
        path=sandbox_path(sandbox_id, "files", "mkdir"),
        json=given(path=path, user=user),
        read=answer(File),
    )


def delete_file(sandbox_id: str, path: str, *, recursive: bool = False, user: str | None = None) -> ApiCall[Done]:
    return ApiCall(
        method="DELETE",
        path=sandbox_path(sandbox_id, "files"),
        params=given(path=path, recursive=str(recursive).lower(), user=user),
        read=answer(Done),
    )


def watch_files(
    sandbox_id: str, path: str = "/workspace", *, recursive: bool = False, user: str | None = None
) -> StreamCall[FileChange]:
    """Changes below a directory as they happen. A lost connection is an error, because changes would be missed."""
    return StreamCall(
        call=ApiCall(
            method="GET",
            path=sandbox_path(sandbox_id, "files", "watch"),
            params=given(path=path, recursive=str(recursive).lower(), user=user),
            read=nothing,
        ),
        decoder=_Changes,
    )


class _Bytes:
    complete = True

    def feed(self, chunk: bytes) -> Iterable[bytes]:
        return (chunk,)

    def resume(self) -> None:
        return None


class _Changes:
    complete = False

    def __init__(self) -> None:
        self._decoder = EventDecoder()

    def feed(self, chunk: bytes) -> Iterable[FileChange]:
        for item in self._decoder.feed(chunk):
            if item.event == "error":
                raise from_event(item.data)
            yield event(FileChange, item.data)

    def resume(self) -> None:
        return None
