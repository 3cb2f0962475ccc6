"""``paddock cp``: copies files and directories between this machine and a sandbox, streamed."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Annotated, Protocol, Self

import typer

from paddock import paths
from paddock.cli import output
from paddock.cli.arguments import complete_sandbox_id
from paddock.cli.session import CliSession, command
from paddock.errors import Invalid, PathNotFound

if TYPE_CHECKING:
    from paddock.client import File, SyncSandboxClient

Advance = Callable[[int], None]


class CopyProgress(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...

    def file(self, name: str, size: int | None) -> AbstractContextManager[Advance]:
        """Show one file while the context is open; call the yielded function with the size of each chunk."""


class NoProgress:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def file(self, name: str, size: int | None) -> AbstractContextManager[Advance]:
        return nullcontext(lambda count: None)


class ProgressBars:
    def __init__(self) -> None:
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
        from rich.progress import Progress as RichProgress

        self._rich = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=output.console(stderr=True),
            transient=True,
        )

    def __enter__(self) -> Self:
        self._rich.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._rich.stop()

    @contextmanager
    def file(self, name: str, size: int | None) -> Iterator[Advance]:
        task = self._rich.add_task(output.escape(name), total=size)
        try:
            yield lambda count: self._rich.advance(task, count)
        finally:
            self._rich.remove_task(task)


CHUNK = 256 * 1024
_REMOTE = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]*):(/.*)|([A-Za-z0-9][A-Za-z0-9_-]*_[0-9a-f]{8}):(.*)", re.DOTALL)
"""For a relative path the prefix must look like a sandbox id, since local file names may contain a colon."""


def complete_place(ctx: typer.Context, incomplete: str) -> list[str]:
    return [f"{sandbox_id}:/" for sandbox_id, _ in complete_sandbox_id(ctx, incomplete)]


@command
def cp(
    session: CliSession,
    source: Annotated[str, typer.Argument(metavar="SRC", autocompletion=complete_place, help="PATH, ID:PATH or -")],
    destination: Annotated[
        str, typer.Argument(metavar="DST", autocompletion=complete_place, help="PATH, ID:PATH or -")
    ],
) -> None:
    """Copy files or directories into or out of a sandbox."""
    incoming, outgoing = _remote(source), _remote(destination)
    if (incoming is None) == (outgoing is None):
        raise typer.BadParameter("one of SRC and DST must be in a sandbox, written ID:path", param_hint="SRC DST")
    copy = _Copy(session)
    with copy.progress:
        if outgoing:
            copy.into(source, *outgoing)
        elif incoming:
            copy.out_of(*incoming, destination)
    done = {"success": True, "files": copy.files, "bytes": copy.bytes, "skipped": copy.skipped}
    session.answer(
        done, lambda: output.note(f"Copied {copy.files} file{'s' * (copy.files != 1)}, {output.size(copy.bytes)}.")
    )


def _remote(place: str) -> tuple[str, str] | None:
    """The sandbox id and the path in it; None for a local path."""
    found = _REMOTE.fullmatch(place)
    if found is None:
        return None
    return (found[1] or found[3]), paths.absolute(found[2] or found[4] or "")


class _Copy:
    def __init__(self, session: CliSession) -> None:
        self.files = 0
        self.bytes = 0
        self.skipped: list[str] = []
        self.progress: CopyProgress = ProgressBars() if sys.stderr.isatty() and not session.json else NoProgress()
        self._session = session

    @property
    def _client(self) -> SyncSandboxClient:
        return self._session.client

    # Into a sandbox

    def into(self, source: str, sandbox_id: str, path: str) -> None:
        if source == "-":
            self._upload(sandbox_id, path, sys.stdin.buffer, "stdin", None)
            return
        local = Path(source)
        if not local.exists():
            raise Invalid(f"There is no file {source!r} on this machine.")
        target = PurePosixPath(path)
        if path.endswith("/") or self._is_directory(sandbox_id, path):
            target /= local.resolve().name
        if not local.is_dir():
            self._upload_file(sandbox_id, str(target), local)
            return
        for directory, names, files in os.walk(local):
            names.sort()
            below = target / PurePosixPath(Path(directory).relative_to(local))
            self._client.make_directory(sandbox_id, str(below))
            for name in sorted(files):
                self._upload_file(sandbox_id, str(below / name), Path(directory) / name)
            for name in [name for name in names if (Path(directory) / name).is_symlink()]:
                self._skip(Path(directory) / name)

    def _upload_file(self, sandbox_id: str, path: str, local: Path) -> None:
        if not local.is_file():
            self._skip(local)
            return
        status = local.stat()
        with local.open("rb") as file:
            self._upload(sandbox_id, path, file, local.name, status.st_size, status.st_mode & 0o777)

    def _upload(
        self, sandbox_id: str, path: str, file: IO[bytes], name: str, size: int | None, mode: int | None = None
    ) -> None:
        chunks = iter(lambda: file.read(CHUNK), b"")
        self._client.upload(sandbox_id, path, self._counted(chunks, name, size), mode=mode)
        self.files += 1

    def _is_directory(self, sandbox_id: str, path: str) -> bool:
        try:
            return self._client.stat_file(sandbox_id, path).type == "directory"
        except PathNotFound:
            return False

    # Out of a sandbox

    def out_of(self, sandbox_id: str, path: str, destination: str) -> None:
        if destination == "-":
            for chunk in self._counted(self._client.download(sandbox_id, path), path, None):
                sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            self.files += 1
            return
        found = self._client.stat_file(sandbox_id, path)
        target = Path(destination)
        if target.is_dir() or destination.endswith("/"):
            target /= PurePosixPath(path).name
        if found.type == "directory":
            self._download_directory(sandbox_id, path, target)
        else:
            self._download(sandbox_id, found, target)

    def _download_directory(self, sandbox_id: str, path: str, target: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        for entry in self._client.list_files(sandbox_id, path):
            if entry.type == "directory":
                self._download_directory(sandbox_id, entry.path, target / _safe(entry.name))
            elif entry.type == "file":
                self._download(sandbox_id, entry, target / _safe(entry.name))
            else:
                # A symlink could point anywhere on this machine.
                self._skip(entry.path)

    def _download(self, sandbox_id: str, found: File, target: Path) -> None:
        """Written beside the target and then renamed, so that an existing file stays whole until then."""
        import tempfile

        target.parent.mkdir(parents=True, exist_ok=True)
        plain = found.type == "file"  # a symlink's own size and mode are not those of its target
        chunks = self._counted(self._client.download(sandbox_id, found.path), found.name, found.size if plain else None)
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name[:200]}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                os.fchmod(file.fileno(), int(found.mode, 8) & 0o777 if plain else 0o644)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        self.files += 1

    def _counted(self, chunks: Iterable[bytes], name: str, size: int | None) -> Iterator[bytes]:
        with self.progress.file(name, size) as advance:
            for chunk in chunks:
                self.bytes += len(chunk)
                advance(len(chunk))
                yield chunk

    def _skip(self, path: object) -> None:
        self.skipped.append(str(path))
        if not self._session.json:
            output.note(f"Skipped {path}: neither a file nor a directory.")


def _safe(name: str) -> str:
    """Check the name of an entry, which programs in the sandbox can choose."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise Invalid(f"The sandbox lists a file with the unsafe name {name!r}. Rename it in the sandbox.")
    return name
