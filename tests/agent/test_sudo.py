"""sudo: the shim and the agent's side of it. Who becomes root is tested where there are users: in test_modes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.agent import client as wire
from tests.agent.client import HEADER, Client, raw, words
from tests.agent.conftest import Running, Starter
from tests.support.waiting import PATIENCE_S, wait_until

RUN, STATUS, SIGNAL = 0x50, 0x51, 0x52


class Sudo:
    """A shim beside a socket of its own."""

    def __init__(self, agent: Running, folder: Path) -> None:
        self.agent = agent
        self.shim = folder / "sudo"
        self.shim.symlink_to(agent.binary)
        self.socket = str(agent.folder / "sudo.sock")
        self.env = {
            "PATH": f"{folder}:/usr/bin:/bin",
            "PADDOCK_SUDO_SOCKET": self.socket,
            "HOME": "/home/me",
            "TERM": "vt52",
        }
        self.env["ASAN_OPTIONS"] = "detect_leaks=0"  # the shim lives for one command, and frees nothing

    def run(self, *arguments: str, input: bytes = b"", cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
        command = [str(self.shim), *arguments]
        return subprocess.run(
            command, env=self.env, capture_output=True, input=input, cwd=cwd, timeout=PATIENCE_S, check=False
        )

    def connect(self) -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.connect(self.socket)
        made.settimeout(PATIENCE_S)
        return made


@pytest.fixture
def sudo(start: Starter, tmp_path: Path) -> Iterator[Sudo]:
    folder = Path(f"/tmp/paddock-sudo-{os.getpid()}-{time.monotonic_ns()}")
    folder.mkdir()
    agent = start("--sudo", str(folder / "sudo.sock"))
    agent.connect().ask(wire.PING)
    made = Sudo(agent, tmp_path)
    made.socket = str(folder / "sudo.sock")
    made.env["PADDOCK_SUDO_SOCKET"] = made.socket
    yield made
    shutil.rmtree(folder)


def test_a_command_runs_with_the_callers_streams_and_directory(sudo: Sudo, tmp_path: Path) -> None:
    done = sudo.run("sh", "-c", "cat; pwd; echo err >&2; exit 7", input=b"in\n", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (7, b"in\n%s\n" % bytes(tmp_path), b"err\n")


def test_its_environment_is_made_new_but_for_a_few(sudo: Sudo) -> None:
    sudo.env |= {"SECRET": "x", "LC_ALL": "C", "http_proxy": "http://p", "HTTPS_PROXY": "http://q", "DISPLAY": ":0"}
    sudo.env |= {"PIP_INDEX_URL": "http://i", "UV_BREAK_SYSTEM_PACKAGES": "1"}
    sudo.env |= {"SSL_CERT_FILE": "/ca.pem", "NODE_EXTRA_CA_CERTS": "/ca.pem"}
    done = sudo.run("-n", "MINE=1", "env")
    variables = dict(line.split("=", 1) for line in done.stdout.decode().splitlines())
    assert (variables["HOME"], variables["USER"], variables["LOGNAME"]) == ("/root", "root", "root")
    assert (variables["TERM"], variables["LC_ALL"], variables["http_proxy"]) == ("vt52", "C", "http://p")
    assert (variables["HTTPS_PROXY"], variables["DISPLAY"], variables["MINE"]) == ("http://q", ":0", "1")
    assert variables["SUDO_UID"] == str(os.getuid()) and variables["SUDO_GID"] == str(os.getgid())
    assert variables["SUDO_COMMAND"] == "env" and variables["SUDO_USER"]
    assert variables["PATH"].startswith("/usr/local/sbin:")
    assert (variables["PIP_INDEX_URL"], variables["UV_BREAK_SYSTEM_PACKAGES"]) == ("http://i", "1")
    assert (variables["SSL_CERT_FILE"], variables["NODE_EXTRA_CA_CERTS"]) == ("/ca.pem", "/ca.pem")
    assert "SECRET" not in variables and "PADDOCK_SUDO_SOCKET" not in variables
    kept = sudo.run("-E", "env").stdout.decode()
    assert "SECRET=x" in kept and "HOME=/home/me" in kept
    assert "HOME=/root" in sudo.run("-E", "-H", "env").stdout.decode()


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["-u", "root", "echo", "a"], b"a\n"),
        (["-uroot", "--", "echo", "-x"], b"-x\n"),
        (["--user=root", "-EHn", "echo", "b"], b"b\n"),
        (["--user", "root", "--preserve-env=A,B", "echo", "c"], b"c\n"),
        (["-p", "prompt", "-S", "echo", "d"], b"d\n"),
        (["-s", "echo", "a b", "$HOME", "*"], b"a b /root *\n"),
        (["-i", "echo", "quote'd", "x;y"], b"quote'd x;y\n"),
        (["-k"], b""),
        (["-v"], b""),
    ],
)
def test_the_usual_options_are_understood(sudo: Sudo, arguments: list[str], output: bytes) -> None:
    sudo.env["SHELL"] = "/bin/sh"
    if "-i" in arguments and not os.access("/root", os.X_OK):
        pytest.skip("without users nobody becomes the root who may enter /root")
    done = sudo.run(*arguments)
    assert (done.returncode, done.stdout) == (0, output), done.stderr


def test_what_can_be_answered_without_the_agent(sudo: Sudo) -> None:
    assert b"usage" in sudo.run("--help").stdout
    assert b"Paddock" in sudo.run("-V").stdout
    assert b"NOPASSWD: ALL" in sudo.run("-l").stdout
    for arguments in ([], ["--nonsense"], ["-Z", "true"], ["-u"], ["-u", "nobody-here", "true"]):
        done = sudo.run(*arguments)
        assert done.returncode == 1 and done.stderr.startswith(b"sudo: ")
    sudo.env["PADDOCK_SUDO_SOCKET"] = "/no/such/socket"
    assert b"does not answer" in sudo.run("true").stderr


def test_a_missing_program_is_told_by_sudo(sudo: Sudo) -> None:
    done = sudo.run("no-such-program")
    assert (done.returncode, done.stderr) == (127, b"sudo: no-such-program: not found\n")


def test_an_end_by_a_signal_is_the_shims_end_too(sudo: Sudo) -> None:
    assert sudo.run("sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM


def test_signals_are_passed_on(sudo: Sudo) -> None:
    script = "trap 'echo caught; exit 3' TERM; echo up; while :; do sleep 0.01; done"
    with subprocess.Popen([sudo.shim, "sh", "-c", script], env=sudo.env, stdout=subprocess.PIPE) as running:
        assert running.stdout
        assert running.stdout.readline() == b"up\n"
        running.terminate()
        assert running.stdout.read() == b"caught\n"
        assert running.wait(PATIENCE_S) == 3


def test_a_command_does_not_outlive_a_caller_that_was_killed(sudo: Sudo) -> None:
    with subprocess.Popen(
        [sudo.shim, "sh", "-c", "echo $$; exec sleep 1000"], env=sudo.env, stdout=subprocess.PIPE
    ) as running:
        assert running.stdout
        pid = int(running.stdout.readline())
        running.kill()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


def order(argv: list[str], kind: int = RUN, extra: bytes = b"") -> bytes:
    payload = words(argv) + words(["A=1"]) + raw("root") + extra
    return HEADER.pack(len(payload), kind, 4, 0, 1) + payload


def four() -> list[int]:
    return [os.open("/dev/null", os.O_RDWR) for _ in range(3)] + [os.open("/", os.O_PATH)]


def test_hostile_callers_are_dropped_and_leave_nothing(sudo: Sudo) -> None:
    client: Client = sudo.agent.connect()
    client.ask(wire.PING)
    before = sudo.agent.descriptors()
    fds = four()
    for data, count in (
        (order(["true"]), 0), (order(["true"]), 3), (order(["true"], extra=b"x"), 4), (order([]), 4),
        (order(["true"], kind=0x10), 4), (HEADER.pack(0xFFFFFFFF, RUN, 4, 0, 1), 4), (b"\0" * 5, 1),
        (HEADER.pack(1 << 18, RUN, 4, 0, 1) + b"x" * 100, 4), (order(["true"]) + b"more", 4),
        (HEADER.pack(12, RUN, 4, 0, 1) + struct.pack("<III", 0xFFFFFF, 0, 0), 4),
    ):  # fmt: skip
        with sudo.connect() as caller:
            socket.send_fds(caller, [data], fds[:count])
            if len(data) < 12 or len(data) == 112:
                continue  # not whole yet: it is dropped when the caller leaves
            with suppress(ConnectionResetError):
                assert caller.recv(100) == b""
    with sudo.connect() as caller, suppress(BrokenPipeError, ConnectionResetError):
        for fd in fds:
            socket.send_fds(caller, [b"\0"], [fd] * 50)
    for fd in fds:
        os.close(fd)
    wait_until(lambda: client.ask(wire.PING) and sudo.agent.descriptors() == before)
    assert sudo.run("echo", "fine").stdout == b"fine\n"


def test_callers_that_only_hold_on_give_way(sudo: Sudo) -> None:
    holding = [sudo.connect() for _ in range(200)]
    assert sudo.run("echo", "fine").stdout == b"fine\n"
    assert sudo.agent.connect().run("p", "echo too")[1] == b"too\n"
    for caller in holding:
        caller.close()


def test_a_message_in_the_smallest_pieces_is_a_message(sudo: Sudo) -> None:
    fds = four()
    read, write = os.pipe()
    os.close(fds[1])
    fds[1] = write
    with sudo.connect() as caller, os.fdopen(read, "rb") as output:
        data = order(["/bin/echo", "hi"])
        socket.send_fds(caller, [data[:1]], fds)
        for fd in fds:
            os.close(fd)
        for byte in data[1:]:
            caller.sendall(bytes([byte]))
        assert output.read() == b"hi\n"
        frames = b""
        while part := caller.recv(100):
            frames += part
        assert frames == HEADER.pack(0, 0x80, 0, 0, 1) + HEADER.pack(4, STATUS, 0, 0, 1) + bytes(4)


def test_a_directory_that_is_none_is_refused(sudo: Sudo) -> None:
    fds = [os.open("/dev/null", os.O_RDWR) for _ in range(4)]
    with sudo.connect() as caller:
        socket.send_fds(caller, [order(["true"])], fds)
        kind, number = caller.recv(12)[4], struct.unpack("<i", caller.recv(4))[0]
        assert (kind, os.strerror(number)) == (0xFF, "Not a directory")
    for fd in fds:
        os.close(fd)


def test_a_signal_out_of_range_ends_the_caller(sudo: Sudo) -> None:
    fds = four()
    with sudo.connect() as caller:
        socket.send_fds(caller, [order(["sleep", "1000"])], fds)
        assert caller.recv(12)[4] == 0x80
        caller.sendall(HEADER.pack(4, SIGNAL, 0, 0, 1) + struct.pack("<i", -9))
        assert caller.recv(100) == b""
    for fd in fds:
        os.close(fd)
