"""Progress of a copy: a bar per file on a terminal, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Protocol, Self

from paddock.cli import output

Advance = Callable[[int], None]


class Progress(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...

    def file(self, name: str, size: int | None) -> AbstractContextManager[Advance]:
        """Show one file while the context is open; call the yielded function with the size of each chunk."""


class Silent:
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def file(self, name: str, size: int | None) -> AbstractContextManager[Advance]:
        return nullcontext(lambda count: None)


class Bars:
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
