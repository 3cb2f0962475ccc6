"""The program of a worker: reads a job, does it, writes what came of it; until its input ends.

Run as ``python -m paddock.worker_process <bytes of memory>`` by :mod:`paddock.workers`. The kernel ends it where it
takes more time than it was given, whatever it is doing, also when the server that would have killed it is gone.
"""

from __future__ import annotations

import importlib
import os
import pickle
import resource
import signal
import struct
import sys
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any, BinaryIO, Final

HEAD: Final = struct.Struct(">Q")
_GRACE_SECONDS = 2.0
"""The server kills it first, and says so."""


def main() -> None:
    _confine(int(sys.argv[1]))
    jobs, results = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not end up among the results
    _answer(results, b"")
    while head := jobs.read(HEAD.size):
        (size,) = HEAD.unpack(head)
        _answer(results, _done(jobs.read(size)))


def _confine(memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    # If the machine runs out of memory, this is what it can do without.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _answer(results: BinaryIO, message: bytes) -> None:
    results.write(HEAD.pack(len(message)) + message)
    results.flush()


def _done(message: bytes) -> bytes:
    seconds, module, name, args, kwargs = pickle.loads(message)  # noqa: S301 (from the server)
    signal.setitimer(signal.ITIMER_REAL, seconds + _GRACE_SECONDS)
    try:
        outcome = (True, _function(module, name)(*args, **kwargs))
    except MemoryError:
        raise
    except Exception as problem:  # noqa: BLE001 (whoever asked hears of it)
        outcome = (False, problem)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return pickle.dumps(outcome, pickle.HIGHEST_PROTOCOL)


def _function(module: str, name: str) -> Any:
    return reduce(getattr, name.split("."), importlib.import_module(module))


if __name__ == "__main__":
    main()
