"""The system-call filter in the real kernel: it answers as promised, and ordinary programs run under it."""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paddock.providers.common.seccomp.numbers import Architecture, numbers
from tests.local.seccomp_oracle import ERRNO, NO_ARGUMENTS, PROMISES, Oracle, filters

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="system calls of Linux")


@pytest.mark.skipif(shutil.which("cc") is None, reason="no compiler that could show the kernel's headers")
def test_numbers_agree_with_the_kernel_headers() -> None:
    wants = ["RENAMEAT", "NEW_STAT", "SET_GET_RLIMIT", "SYS_CLONE3", "MEMFD_SECRET"]
    generic = "".join(f"#define __ARCH_WANT_{want}\n" for want in wants) + "#include <asm-generic/unistd.h>"
    for architecture, source in ((Architecture.native(), "#include <asm/unistd.h>"), (Architecture.AARCH64, generic)):
        macros = subprocess.run(
            ["cc", "-E", "-dM", "-"], input=source, capture_output=True, text=True, check=True
        ).stdout
        of_64_bits = dict(re.findall(r"^#define __NR3264_(\w+) (\d+)$", macros, re.MULTILINE))
        found = dict(re.findall(r"^#define __NR_(\w+) (\w+)$", macros, re.MULTILINE))
        theirs = {
            name: int(of_64_bits.get(value.removeprefix("__NR3264_"), 0) or value) for name, value in found.items()
        }
        for absent in ("syscalls", "arch_specific_syscall"):
            theirs.pop(absent, None)
        assert len(theirs) > 280
        assert {name: numbers(architecture).get(name) for name in theirs} == theirs


def confined(*roles: str) -> Callable[[], None]:
    """What runs in a new process before it becomes the program: the filters, installed as the agent does it."""
    native = Architecture.native()
    codes = [filters(native)[role] for role in roles]
    libc, call = ctypes.CDLL(None, use_errno=True), numbers(native)["seccomp"]

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    def install() -> None:
        assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
        for code in codes:
            assert libc.syscall(call, 1, 0, ctypes.byref(Program(len(code) // 8, code))) == 0, ctypes.get_errno()

    return install


def run(command: list[str], *roles: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        preexec_fn=confined(*roles),
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )


TRY = """
import ctypes, json, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(number, *arguments):
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(argument) for argument in arguments))
    return ctypes.get_errno() if result == -1 else 0
print(json.dumps([attempt(*one) for one in json.loads(sys.argv[1])]))
"""


def attempt(calls: list[tuple[int, ...]], *roles: str) -> list[int]:
    done = run([sys.executable, "-c", TRY, json.dumps(calls)], *roles)
    assert done.returncode == 0, done.stderr
    errors: list[int] = json.loads(done.stdout)
    return errors


@pytest.mark.parametrize("roles", [("children",), ("agent", "children")], ids="+".join)
def test_the_kernel_refuses_every_call_that_the_policy_refuses(roles: tuple[str, ...]) -> None:
    native, oracle = Architecture.native(), Oracle("children")
    names = {number: name for name, number in numbers(native).items()}
    # With every argument -1, a call that came through would fail otherwise (EFAULT, EBADF, EINVAL) and do no harm.
    refused = [number for number in range(601) if oracle.says(names.get(number), (-1,) * 6) != "allow"]
    # uretprobe and uprobe go past every filter on newer kernels, and end a process that no probe has led there.
    elsewhere = {*oracle.rules, "uretprobe", "uprobe"}
    refused = [number for number in refused if names.get(number) not in elsewhere]
    errors = attempt([(number, *(-1,) * 6) for number in refused], *roles)
    expected = [ERRNO[oracle.says(names.get(number), NO_ARGUMENTS)] for number in refused]
    assert len(refused) > 250
    assert dict(zip(refused, errors, strict=True)) == dict(zip(refused, expected, strict=True))


def test_the_kernel_decides_by_arguments() -> None:
    native = Architecture.native()
    wanted = [one for one in PROMISES if one[0] in ("socket", "ioctl", "personality") or one[2] != "allow"]
    errors = attempt(
        [(numbers(native)[call], *(*arguments, *NO_ARGUMENTS)[:6]) for call, arguments, _ in wanted], "children"
    )
    for (call, arguments, answer), error in zip(wanted, errors, strict=True):
        allowed = {0, 25} if call == "ioctl" else {0, 13, 97}  # ENOTTY; no ping group, no IPv6
        assert error in ({ERRNO[answer]} if answer != "allow" else allowed), (call, arguments)


def test_the_agent_may_make_a_user_namespace_and_nothing_else() -> None:
    unshare, setns = numbers(Architecture.native())["unshare"], numbers(Architecture.native())["setns"]
    assert attempt([(unshare, 1 << bit) for bit in (17, 25, 26, 27, 29, 30)], "agent") == [1] * 6
    assert attempt([(setns, -1, 0x10000000), (setns, -1, 0), (setns, -1, 0x20000)], "agent") == [9, 1, 1]
    plain = subprocess.run(["unshare", "--user", "true"], capture_output=True).returncode
    assert (run(["unshare", "--user", "true"], "agent").returncode == 0) == (plain == 0)
    assert run(["unshare", "--user", "true"], "agent", "children").returncode != 0


INT80 = """
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(bytes.fromhex("b814000000cd80c3"))  # mov eax, 20 (getpid of i386); int 0x80; ret
assert ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))() > 0
"""


@pytest.mark.skipif(Architecture.native() is not Architecture.X86_64, reason="int 0x80 is of x86")
def test_a_32_bit_call_kills() -> None:
    if subprocess.run([sys.executable, "-c", INT80], capture_output=True).returncode:
        pytest.skip("this kernel runs no 32-bit calls at all")
    assert run([sys.executable, "-c", INT80], "children").returncode == -signal.SIGSYS


PYTHON = """
import asyncio, concurrent.futures, multiprocessing, os, pty, socket, sqlite3, subprocess, tempfile, threading
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    assert sum(pool.map(lambda n: n * n, range(100))) == 328350
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
async def echo():
    server = await asyncio.start_server(lambda r, w: (w.write(b"hi"), w.close()), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    assert await reader.read() == b"hi"
    child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    assert (await child.communicate(b"x"))[0] == b"x"
asyncio.run(echo())
with tempfile.TemporaryDirectory() as folder:
    sqlite3.connect(folder + "/db").execute("create table t (a)")
    os.mkfifo(folder + "/fifo")
pid, terminal = pty.fork()
if pid == 0:
    os.execvp("tty", ["tty"])
assert b"/dev/pts" in os.read(terminal, 100) and os.waitpid(pid, 0)[1] == 0
socket.if_nameindex(), socket.getaddrinfo("localhost", 80)
print("fine")
"""
NODE = """
const { Worker } = require('worker_threads')
const http = require('http'), child = require('child_process')
const server = http.createServer((q, s) => s.end('fine')).listen(0, '127.0.0.1', () =>
  http.get(server.address(), r => r.on('data', d => {
    child.execSync('true'); server.close()
    new Worker("require('worker_threads').parentPort.postMessage('x')", { eval: true })
      .on('message', () => console.log(`${d}`))
  })))
"""
GIT = """
set -e; git init -q .; echo a > a; git add a
git -c user.name=a -c user.email=a@b commit -qm a; git gc -q; git log
"""
BASH = """
set -e; a=$(seq 3 | sort -r | head -1); (exit 3) || [ $? = 3 ]
true & wait; cat <<< "fine$a" | grep fine3; ulimit -a
"""
PROGRAMS: list[tuple[list[str], str]] = [
    (["bash", "-c", BASH], "fine3"),
    ([sys.executable, "-c", PYTHON], "fine"),
    (["bash", "-c", GIT], "Author: a <a@b>"),
    (["node", "-e", NODE], "fine"),
    (["perl", "-e", "use POSIX; if (!fork) { exit 4 } wait; print 'fine ', $? >> 8"], "fine 4"),
    (["strace", "-f", "-o", "/dev/stdout", "sh", "-c", "true; /bin/true"], "exited with 0"),
    (
        ["gdb", "-q", "-batch", "-ex", "starti", "-ex", "info registers", "-ex", "continue", "/bin/true"],
        "exited normally",
    ),
    (["sh", "-c", "echo 'int main(void){return 0;}' > a.c && cc -o a a.c && ./a && echo fine"], "fine"),
]


@pytest.mark.parametrize(
    ("command", "output"), PROGRAMS, ids=lambda value: Path(value[0]).name if isinstance(value, list) else ""
)
def test_ordinary_programs_run_under_it(tmp_path: Path, command: list[str], output: str) -> None:
    if shutil.which(command[0]) is None or (command[0] == "sh" and shutil.which("cc") is None):
        pytest.skip(f"{command[0]} is not installed")
    done = run(command, "agent", "children", cwd=tmp_path)
    assert (done.returncode, output in done.stdout) == (0, True), done.stdout + done.stderr
