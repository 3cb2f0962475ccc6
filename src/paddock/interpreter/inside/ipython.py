"""A Python kernel from the inside: ipykernel, with what the interpreter's protocol promises beyond it.

- environment variables for one execution, put back afterwards;
- output that is never dropped and never piles up: the program that prints waits for whoever reads;
- what subprocesses wrote is part of the execution that ran them, not of the next one;
- results that are data (``e2b/data``, ``e2b/chart``, lists and dictionaries as JSON).
"""

from __future__ import annotations

import asyncio
import importlib
import os
import select
import signal
import site
import sys
import sysconfig
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import IPython
import zmq
from ipykernel.iostream import OutStream
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from tornado.ioloop import IOLoop
from traitlets.config import Config

from . import charts, formatters, imports
from .nursery import BEGUN, ENV

WAITING_MESSAGES = 16
_PIECE = 64 * 1024
_MOST_UNSENT = 256 * 1024
_DATA_PACKAGES = "/opt/paddock/code-interpreter/lib"
_INLINE = "module://matplotlib_inline.backend_inline"


class Stream(OutStream):  # type: ignore[misc]
    """Standard output or error, of Python code and of what it starts."""

    flush_timeout = 3600

    def __init__(self, *args: Any, **options: Any) -> None:
        self._unsent = 0
        self._pipe_turn = threading.Lock()
        super().__init__(*args, **options)

    def write(self, string: str) -> int | None:
        for begin in range(0, len(string), _PIECE):
            super().write(string[begin : begin + _PIECE])
            self._unsent += min(_PIECE, len(string) - begin)
            if self._unsent >= _MOST_UNSENT:
                self.flush()
        return len(string)

    def flush(self) -> None:
        self._unsent = 0
        super().flush()

    def catch_up(self) -> None:
        """Take in what processes wrote to the descriptor until now."""
        with self._pipe_turn:
            while self._take():
                pass
        self.flush()

    def _watch_pipe_fd(self) -> None:
        """In place of the base's, which nobody can wait for."""
        if self._fid is None:
            return
        os.set_blocking(self._fid, False)
        while self._should_watch:
            select.select([self._fid], [], [])
            with self._pipe_turn:
                self._take()

    def _take(self) -> bool:
        if getattr(self, "_fid", None) is None:
            return False
        try:
            data = os.read(self._fid, _PIECE)
        except OSError:  # nothing there (or nothing any more)
            return False
        if data:
            self.write(data.decode(errors="replace"))
        return bool(data)


class Kernel(IPythonKernel):  # type: ignore[misc]
    async def do_execute(
        self,
        code: str,
        silent: bool,
        store_history: bool = True,
        user_expressions: dict[str, Any] | None = None,
        allow_stdin: bool = False,
        *,
        cell_meta: Mapping[str, Any] | None = None,
        cell_id: str | None = None,
    ) -> Any:
        if note := (cell_meta or {}).get(BEGUN):
            with suppress(OSError):  # a full disk: code runs all the same
                os.close(os.open(note, os.O_CREAT | os.O_WRONLY, 0o600))
        importlib.invalidate_caches()  # what was installed since is there to be imported
        try:
            with _environment((cell_meta or {}).get(ENV) or {}):
                return await super().do_execute(
                    code, silent, store_history, user_expressions, allow_stdin, cell_meta=cell_meta, cell_id=cell_id
                )
        finally:
            # The code has ended; an interrupt that was meant for it must not hit what comes after.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            for stream in (sys.stdout, sys.stderr):
                if isinstance(stream, Stream):
                    stream.catch_up()


class KernelApp(IPKernelApp):  # type: ignore[misc]
    def init_iopub(self, context: Any) -> None:
        # A publisher would drop what a slow reader has not taken; this one waits for it.
        before = dict(context.sockopts)
        context.setsockopt(zmq.XPUB_NODROP, 1)
        context.setsockopt(zmq.SNDHWM, WAITING_MESSAGES)
        super().init_iopub(context)
        context.sockopts = before


def run(connection_file: str) -> None:
    """Be a kernel until told to end."""
    config = Config()
    config.HistoryManager.enabled = False
    config.PlainTextFormatter.max_seq_length = 0
    app = KernelApp.instance(
        config=config,
        connection_file=connection_file,
        kernel_class=Kernel,
        outstream_class=f"{Stream.__module__}.Stream",
    )
    _find_user_packages()
    app.initialize([])
    if os.environ.get("MPLBACKEND") == _INLINE:
        # Programs that the user starts inherit it, and have no such backend: set it for this process alone.
        del os.environ["MPLBACKEND"]
        imports.after("matplotlib", _use_inline_backend)
    imports.after("matplotlib.axes._axes", charts.remember_boxes)
    imports.after("PIL.Image", formatters.show_saved_images)
    imports.install()
    formatters.install(app.shell)
    IOLoop.current().add_callback(_wake_on_signals)
    app.start()


def _wake_on_signals() -> None:
    """An interrupt of code that awaits something is noted by its handler, but the loop would sleep on. Any handler of
    asyncio's own makes it wake for every signal; this one is for a signal that means nothing otherwise."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGURG, lambda: None)


def _find_user_packages() -> None:
    """`pip install --user` and Paddock's add-on code-interpreter may make these folders later than Python, which looks
    for them when it starts, was started."""
    folders = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    folders += [f"{_DATA_PACKAGES}/{sysconfig.get_config_var('SOABI')}"]
    sys.path += [folder for folder in folders if folder not in sys.path]


def _use_inline_backend(matplotlib: Any) -> None:
    if not hasattr(matplotlib.RcParams, "_get"):  # before 3.7, as in Debian 12: the kit's matplotlib-inline is younger
        matplotlib.RcParams._get = dict.__getitem__
        imports.after("matplotlib.pyplot", _configure_inline_backend)
    matplotlib.rcParams["backend"] = _INLINE


def _configure_inline_backend(pyplot: Any) -> None:
    """With such a matplotlib the backend is loaded by the first plot, and would know its formats from the second on."""
    from matplotlib_inline import backend_inline

    backend_inline.configure_inline_support(  # type: ignore[no-untyped-call]
        IPython.get_ipython(), _INLINE
    )


@contextmanager
def _environment(given: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
