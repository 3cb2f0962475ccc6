"""Programs that take all resources they can get, as shell commands for the inside of a sandbox. Each ends by itself."""

from __future__ import annotations

from dataclasses import dataclass

SECONDS = 6
"""Maximum duration of one."""


@dataclass(frozen=True, slots=True)
class Bomb:
    name: str
    what: str
    command: str


def _python(program: str) -> str:
    """A Python command, with ``end``, the time at which it has to stop, and common imports."""
    lines = [
        "import os, socket, threading, time",
        f"end = time.monotonic() + {SECONDS}",
        *program.strip("\n").splitlines(),
    ]
    body = "\n".join(lines).replace("'", '"')
    return f"exec python3 -c '{body}'"


_FORK = """
while time.monotonic() < end:
    try:
        os.fork()
    except OSError:
        time.sleep(0.001)
os._exit(0)
"""

_THREADS = """
threading.stack_size(65536)
while time.monotonic() < end:
    try:
        threading.Thread(target=time.sleep, args=(0.05,), daemon=True).start()
    except RuntimeError:
        pass
os._exit(0)
"""

_MAPPINGS = """
import ctypes, mmap
libc = open(next(line.split()[-1] for line in open("/proc/self/maps") if "libc" in line), "rb")
for _ in range(8):
    if os.fork() == 0:
        break
while time.monotonic() < end:
    held = [mmap.mmap(libc.fileno(), 4096, mmap.MAP_SHARED, mmap.PROT_READ) for _ in range(2000)]
os._exit(0)
"""

_MEMORY = """
while time.monotonic() < end:
    if os.fork() == 0:
        held = []
        while time.monotonic() < end:
            held.append(bytearray(1 << 20))
        os._exit(0)
    try:
        os.wait()
    except OSError:
        pass
"""

_PAGE_CACHE = """
path = "/workspace/cache"
with open(path, "wb") as file:
    for _ in range(700):
        file.write(bytes(1 << 20))
for _ in range(4):
    if os.fork() == 0:
        break
while time.monotonic() < end:
    with open(path, "rb", buffering=0) as file:
        while time.monotonic() < end and file.read(1 << 20):
            pass
os._exit(0)
"""

_DISK = """
for _ in range(3):
    if os.fork() == 0:
        break
while time.monotonic() < end:
    try:
        with open(f"/workspace/disk-{os.getpid()}", "wb", buffering=0) as file:
            for _ in range(64):
                file.write(os.urandom(1 << 20))
                os.fsync(file.fileno())
    except OSError:
        pass
os._exit(0)
"""

_DESCRIPTORS = """
for _ in range(8):
    if os.fork() == 0:
        break
while time.monotonic() < end:
    held = []
    try:
        while time.monotonic() < end:
            held.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        for one in held:
            os.close(one)
os._exit(0)
"""

_INOTIFY = """
import ctypes
libc = ctypes.CDLL(None)
folders = [f"/tmp/watched-{number}" for number in range(200)]
for path in folders:
    os.makedirs(path, exist_ok=True)
for _ in range(4):
    if os.fork() == 0:
        break
watchers = [fd for fd in (libc.inotify_init1(0o4000) for _ in range(64)) if fd >= 0]
for fd in watchers:
    for path in folders:
        libc.inotify_add_watch(fd, path.encode(), 0xfff)
while time.monotonic() < end:
    for path in folders:
        open(path + "/x", "w").close()
        os.unlink(path + "/x")
os._exit(0)
"""

_SOCKETS = """
def serve(server):
    while True:
        try:
            peer = server.accept()[0]
            while peer.recv(65536):
                pass
        except OSError:
            pass
server = socket.create_server(("127.0.0.1", 0), backlog=512)
for _ in range(4):
    threading.Thread(target=serve, args=(server,), daemon=True).start()
for _ in range(4):
    if os.fork() == 0:
        break
data = bytes(65536)
while time.monotonic() < end:
    try:
        with socket.create_connection(server.getsockname(), 1) as peer:
            peer.settimeout(0.2)
            for _ in range(50):
                peer.sendall(data)
    except OSError:
        pass
os._exit(0)
"""

_TERMINALS = """
for _ in range(4):
    if os.fork() == 0:
        break
while time.monotonic() < end:
    held = []
    try:
        while len(held) < 400:
            held.extend(os.openpty())
            os.write(held[-1], b"x" * 1024)
    except OSError:
        pass
    for one in held:
        os.close(one)
os._exit(0)
"""

_SIGNALS = """
import signal
signal.signal(signal.SIGUSR1, lambda *_: None)
for _ in range(16):
    if os.fork() == 0:
        break
while time.monotonic() < end:
    try:
        os.killpg(os.getpgrp(), signal.SIGUSR1)
    except OSError:
        pass
os._exit(0)
"""

_CPU = """
for _ in range(15):
    if os.fork() == 0:
        break
while time.monotonic() < end:
    pass
os._exit(0)
"""

_SHELL = f"exec timeout -s KILL {SECONDS} bash -c ':(){{ :|:& }};:; sleep {SECONDS}'"
_LOOPS = "for i in $(seq 16); do (while :; do /bin/true; done) & done; wait"
_EXEC = f"exec timeout -s KILL {SECONDS} bash -c '{_LOOPS}'"
_OUTPUT = f"timeout -s KILL {SECONDS} yes & exec timeout -s KILL {SECONDS} yes 1>&2"

BOMBS: tuple[Bomb, ...] = (
    Bomb("cpu", "16 processes that only calculate", _python(_CPU)),
    Bomb("shell", "`:(){ :&#124;:& };:` of bash", _SHELL),
    Bomb("fork", "`fork()` of Python, in every child again", _python(_FORK)),
    Bomb("exec", "fork and exec of /bin/true, 16 loops", _EXEC),
    Bomb("threads", "threads that end at once", _python(_THREADS)),
    Bomb("mappings", "libc mapped 16,000 times, again and again", _python(_MAPPINGS)),
    Bomb("memory", "memory, and again after every kill", _python(_MEMORY)),
    Bomb("page cache", "a file that is larger than its memory, read over and over", _python(_PAGE_CACHE)),
    Bomb("disk", "written and synced, until it is full and again", _python(_DISK)),
    Bomb("descriptors", "open files, nine processes", _python(_DESCRIPTORS)),
    Bomb("output", "to stdout and stderr, as fast as it goes", _OUTPUT),
    Bomb("inotify", "watches and their events", _python(_INOTIFY)),
    Bomb("sockets", "connections and traffic on its loopback", _python(_SOCKETS)),
    Bomb("terminals", "pseudo terminals", _python(_TERMINALS)),
    Bomb("signals", "signals between 17 processes", _python(_SIGNALS)),
)
