"""The Python kernel: ipykernel with the additions that the interpreter's protocol requires.

- environment variables for one execution, reset afterwards;
- output that is never dropped and never accumulates: the printing program blocks until it is read;
- output of subprocesses belongs to the execution that started them, not to the next one;
- results as data (``e2b/data``, ``e2b/chart``, lists and dictionaries as JSON).
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
from .fork_server import BEGUN, ENV

WAITING_MESSAGES = 16
_PIECE = 64 * 1024
_MAX_UNSENT = 256 * 1024
_DATA_PACKAGES = "/opt/paddock/code-interpreter/lib"
_INLINE = "module://matplotlib_inline.backend_inline"


class OutputStream(OutStream):  # type: ignore[misc]
    """Standard output or error of Python code and its subprocesses."""

    flush_timeout = 3600

    def __init__(self, *args: Any, **options: Any) -> None:
        self._unsent = 0
        self._pipe_turn = threading.Lock()
        super().__init__(*args, **options)

    def write(self, string: str) -> int | None:
        for begin in range(0, len(string), _PIECE):
            super().write(string[begin : begin + _PIECE])
            self._unsent += min(_PIECE, len(string) - begin)
            if self._unsent >= _MAX_UNSENT:
                self.flush()
        return len(string)

    def flush(self) -> None:
        self._unsent = 0
        super().flush()

    def catch_up(self) -> None:
        """Read what processes have written to the descriptor so far."""
        with self._pipe_turn:
            while self._take():
                pass
        self.flush()

    def _watch_pipe_fd(self) -> None:
        """Replaces the base class's watcher, which cannot be waited for."""
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
        except OSError:  # empty, or closed
            return False
        if data:
            self.write(data.decode(errors="replace"))
        return bool(data)


class SandboxIPythonKernel(IPythonKernel):  # type: ignore[misc]
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
            with suppress(OSError):  # the disk is full: run the code anyway
                os.close(os.open(note, os.O_CREAT | os.O_WRONLY, 0o600))
        importlib.invalidate_caches()  # packages installed since the last execution can be imported
        try:
            with _environment((cell_meta or {}).get(ENV) or {}):
                return await super().do_execute(
                    code, silent, store_history, user_expressions, allow_stdin, cell_meta=cell_meta, cell_id=cell_id
                )
        finally:
            # The code has ended; a late interrupt must not hit the next execution.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            for stream in (sys.stdout, sys.stderr):
                if isinstance(stream, OutputStream):
                    stream.catch_up()


class KernelApp(IPKernelApp):  # type: ignore[misc]
    def init_iopub(self, context: Any) -> None:
        # The default publisher drops messages for a slow reader; this one blocks.
        before = dict(context.sockopts)
        context.setsockopt(zmq.XPUB_NODROP, 1)
        context.setsockopt(zmq.SNDHWM, WAITING_MESSAGES)
        super().init_iopub(context)
        context.sockopts = before


def run(connection_file: str) -> None:
    """Run the kernel until a shutdown request."""
    config = Config()
    config.HistoryManager.enabled = False
    config.PlainTextFormatter.max_seq_length = 0
    app = KernelApp.instance(
        config=config,
        connection_file=connection_file,
        kernel_class=SandboxIPythonKernel,
        outstream_class=f"{OutputStream.__module__}.OutputStream",
    )
    _find_user_packages()
    app.initialize([])
    if os.environ.get("MPLBACKEND") == _INLINE:
        # Set for this process alone: programs started by the user would inherit it, and do not have this backend.
        del os.environ["MPLBACKEND"]
        imports.after("matplotlib", _use_inline_backend)
    imports.after("matplotlib.axes._axes", charts.remember_boxes)
    imports.after("PIL.Image", formatters.show_saved_images)
    imports.install()
    formatters.install(app.shell)
    IOLoop.current().add_callback(_wake_on_signals)
    app.start()


def _wake_on_signals() -> None:
    """Python's signal handler only records an interrupt, and the event loop would sleep on. Installing any asyncio
    signal handler makes the loop wake for every signal; this one is for an unused signal."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGURG, lambda: None)


def _find_user_packages() -> None:
    """`pip install --user` and the add-on code-interpreter may create these directories after the kernel has started,
    and Python looks for them only at its start."""
    folders = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    folders += [f"{_DATA_PACKAGES}/{sysconfig.get_config_var('SOABI')}"]
    sys.path += [folder for folder in folders if folder not in sys.path]


def _use_inline_backend(matplotlib: Any) -> None:
    if not hasattr(matplotlib.RcParams, "_get"):  # before 3.7, as in Debian 12: the kit's matplotlib-inline is newer
        matplotlib.RcParams._get = dict.__getitem__
        imports.after("matplotlib.pyplot", _configure_inline_backend)
    matplotlib.rcParams["backend"] = _INLINE


def _configure_inline_backend(pyplot: Any) -> None:
    """With such a matplotlib the backend is loaded by the first plot and would be configured only for the second."""
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
