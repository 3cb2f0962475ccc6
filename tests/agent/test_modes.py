"""As PID 1 of real namespaces: who is who, who may do what, and what everybody has given up."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agent import client as wire
from tests.agent.client import Client
from tests.agent.test_files import number_of
from tests.support.waiting import wait_until

OUTSIDE = {"range": 2_000_000, "single": 23_456}
KEPT = 0x8000_04FB
"""CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, NET_BIND_SERVICE, SETFCAP."""
USED = KEPT & ~(1 << 4 | 1 << 31)


class Sandbox:
    """An agent in namespaces, and a workspace that belongs to the sandbox's user."""

    def __init__(self, mode: str, folder: Path, binary: Path) -> None:
        self.mode, self.folder = mode, folder
        root = os.getuid() == 0
        self.outside = OUTSIDE[mode] if root else os.getuid()
        self.user_outside = self.outside + 1000 if mode == "range" else self.outside
        self.workspace, self.state = folder / "workspace", folder / "state"
        self.agent = folder / "paddock-agent"
        shutil.copy(binary, self.agent)
        (folder / "sudo").symlink_to(self.agent)
        for path, owner in (
            (folder / "run", self.outside),
            (self.state, self.outside),
            (self.workspace, self.user_outside),
        ):
            path.mkdir()
            if root:
                os.chown(path, owner, owner)
        self.process = self._start()
        self.client = Client(str(folder / "agent.sock"))

    def _start(self) -> subprocess.Popen[bytes]:
        with socket.socket(socket.AF_UNIX) as listener, (self.folder / "stderr").open("wb") as errors:
            listener.bind(str(self.folder / "agent.sock"))
            listener.listen()
            state = os.open(self.state, os.O_RDONLY)
            inside = [sys.executable, str(Path(__file__).with_name("inside.py")), self.mode, str(self.outside)]
            serve = ["serve", "--listen", str(listener.fileno()), "--state", str(state), "--mode", self.mode]
            try:
                return subprocess.Popen(
                    [*inside, str(self.agent), *serve, "--sudo", str(self.folder / "run/sudo.sock")],
                    pass_fds=[listener.fileno(), state], stderr=errors,
                )  # fmt: skip
            finally:
                os.close(state)

    def run(self, script: str, user: str = "user", **options: object) -> str:
        env = [f"PATH={self.folder}:/usr/bin:/bin", f"PADDOCK_SUDO_SOCKET={self.folder}/run/sudo.sock"]
        process_id = uuid.uuid4().hex
        self.client.shell(process_id, script, user=user, env=env, cwd=str(self.workspace), **options)
        self.client.wait(process_id)
        return (self.client.everything(process_id) + self.client.everything(process_id, wire.STDERR)).decode().strip()

    def status(self, user: str) -> dict[str, str]:
        return fields(self.run("cat /proc/self/status", user))

    def agent_pid(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[-1])

    def stop(self) -> None:
        self.client.close()
        os.kill(self.agent_pid(), 9)
        self.process.wait()


def fields(text: str) -> dict[str, str]:
    return {name: " ".join(value.split()) for name, _, value in (line.partition(":") for line in text.splitlines())}


@pytest.fixture(params=["range", "single"])
def sandbox(request: pytest.FixtureRequest, plain_binary: Path) -> Iterator[Sandbox]:
    if request.param == "range" and os.getuid() != 0:
        pytest.skip("a range of ids takes root")
    folder = Path(f"/tmp/paddock-mode-{uuid.uuid4().hex[:12]}")
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    try:
        try:
            made = Sandbox(request.param, folder, plain_binary)
        except (wire.Broken, BrokenPipeError):
            pytest.skip((folder / "stderr").read_text().strip() or "no namespaces here")
        yield made
        made.stop()
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)


def test_the_agent_keeps_only_what_it_uses(sandbox: Sandbox) -> None:
    status = fields(Path(f"/proc/{sandbox.agent_pid()}/status").read_text())
    assert status["NSpid"].split()[-1] == "1"
    assert int(status["CapEff"], 16) == USED
    assert int(status["CapPrm"], 16) == int(status["CapBnd"], 16) == KEPT
    assert int(status["CapInh"], 16) == int(status["CapAmb"], 16) == 0
    assert status["NoNewPrivs"] == "1"


def test_root_is_the_sandboxs_root_and_no_more(sandbox: Sandbox) -> None:
    status = sandbox.status("root")
    assert status["Uid"] == status["Gid"] == "0 0 0 0"
    assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")} == {KEPT}
    assert {int(status[name], 16) for name in ("CapInh", "CapAmb")} == {0}
    assert status["NoNewPrivs"] == "1"


def test_the_user_is_nobody_special(sandbox: Sandbox) -> None:
    status = sandbox.status("user")
    assert status["Uid"] == status["Gid"] == "1000 1000 1000 1000"
    assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}
    assert int(status["CapBnd"], 16) == KEPT
    assert status["NoNewPrivs"] == "1"
    assert "0" not in status["Groups"].split()
    assert sandbox.run("echo $HOME $USER") == "/home/user user"
    assert sandbox.run("id -u", user="1000") == "1000"


def test_other_users_exist_only_where_there_are_ids(sandbox: Sandbox) -> None:
    if sandbox.mode == "range":
        assert sandbox.run("id -u; id -g", user="1234").split() == ["1234", "1234"]
        assert number_of(sandbox.client.shell, "p", "true", user="70000") == errno.EINVAL
        assert number_of(sandbox.client.stat, "/", user="70000") == errno.EINVAL
    else:
        assert number_of(sandbox.client.shell, "p", "true", user="1234") == errno.EINVAL
        assert number_of(sandbox.client.stat, "/", user="1234") == errno.EINVAL


@pytest.mark.parametrize("user", ["root", "user"])
def test_nobody_inside_gets_at_the_agent(sandbox: Sandbox, user: str) -> None:
    assert sandbox.run("cat /proc/1/environ /proc/1/maps >/dev/null 2>&1 || echo closed", user) == "closed"
    assert sandbox.run("head -c1 /proc/1/mem >/dev/null 2>&1 || echo closed", user) == "closed"
    assert sandbox.run("ls /proc/1/fd/* -l 2>/dev/null | grep -c -- '->' ; readlink /proc/1/fd/3; true", user) == "0"
    sandbox.run("kill -9 1; kill -TERM 1", user)
    assert sandbox.client.ask(wire.PING).type == wire.OK
    # A program that it has started is an ordinary one: debuggers work.
    script = "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    assert sandbox.run(f'{sys.executable} -c "{script}" 2>/dev/null || python3 -c "{script}"', user) == "1"


def test_no_state_and_no_socket_of_the_agent_gets_into_a_process(sandbox: Sandbox) -> None:
    for user in ("root", "user"):
        assert sandbox.run("ls /proc/self/fd", user).split() == ["0", "1", "2", "3"]


def test_files_belong_to_who_makes_them(sandbox: Sandbox) -> None:
    client, workspace = sandbox.client, sandbox.workspace
    sandbox.run("echo x > by-command")
    entry = client.put(str(workspace / "deep/by-agent"), b"x")
    assert (entry.uid, entry.gid) == (1000, 1000)
    for name in ("by-command", "deep", "deep/by-agent"):
        assert client.stat(str(workspace / name)).uid == 1000
        assert (workspace / name).stat().st_uid == sandbox.user_outside
    assert {entry.uid for entry in client.listing(str(workspace), 5)[0]} == {1000}
    assert client.put(str(workspace / "of-root"), b"x", user="root").uid == 0
    assert sandbox.run("stat -c %u of-root", "root") == "0"


def test_file_operations_have_the_rights_of_their_user(sandbox: Sandbox) -> None:
    if sandbox.mode == "single":
        pytest.skip("root and user are the same owner here")
    client, private = sandbox.client, sandbox.workspace / "private"
    assert client.mkdir(str(private), 0o700, user="root")
    client.put(str(private / "file"), b"secret", user="root")
    client.put(str(sandbox.workspace / "read-only"), b"root's", user="root")
    for call in (client.stat, client.open, client.remove):
        assert number_of(call, str(private / "file")) == errno.EACCES
    assert number_of(client.listing, str(private)) == errno.EACCES
    assert number_of(client.listing, str(private), 3) == errno.EACCES
    assert number_of(client.watch, str(private)) == errno.EACCES
    assert number_of(client.put, str(private / "new"), b"") == errno.EACCES
    assert number_of(client.mkdir, str(private / "new/deep")) == errno.EACCES
    assert number_of(client.remove, str(private), recursive=True) == errno.EACCES
    assert number_of(client.chmod, str(private), 0o777) == errno.EPERM
    assert number_of(client.open, str(sandbox.workspace / "read-only"), wire.IN_PLACE) == errno.EACCES
    assert number_of(client.shell, "p", "true", cwd=str(private)) == errno.EACCES
    assert client.get(str(private / "file"), user="root") == b"secret"
    assert len(client.listing(str(sandbox.workspace), 3)[0]) == 2
    assert len(client.listing(str(sandbox.workspace), 3, user="root")[0]) == 3
    client.remove(str(private), recursive=True, user="root")


def test_a_user_is_kept_out_of_his_own_closed_files_as_anywhere(sandbox: Sandbox) -> None:
    client, path = sandbox.client, str(sandbox.workspace / "closed")
    client.put(path, b"x", mode=0)
    assert number_of(client.open, path) == errno.EACCES
    assert sandbox.run("cat closed 2>&1 >/dev/null | grep -c denied") == "1"
    assert client.get(path, user="root") == b"x"
    assert client.chmod(path, 0o600).mode == 0o600
    assert client.get(path) == b"x"


def test_groups_of_the_sandbox_count(sandbox: Sandbox) -> None:
    if sandbox.mode == "single":
        pytest.skip("there is one group only")
    groups = [line.split(":") for line in Path("/etc/group").read_text().splitlines()]
    expected = {name_gid[2] for name_gid in groups if "user" in name_gid[3].split(",")} | {"1000"}
    assert set(sandbox.run("id -G").split()) == expected


def test_sudo_becomes_root_and_back(sandbox: Sandbox) -> None:
    assert sandbox.run("sudo id -u; sudo -u user id -u; sudo sh -c 'echo $HOME $SUDO_UID $USER'").split() == [
        "0", "1000", "/root", "1000", "root",
    ]  # fmt: skip
    assert sandbox.run(f"sudo -u user id -u; sudo -E -u user {sandbox.folder}/sudo id -u", "root").split() == [
        "1000",
        "0",
    ]
    status = fields(sandbox.run("sudo cat /proc/self/status"))
    assert int(status["CapEff"], 16) == KEPT
    assert sandbox.run(
        "echo secret > kept; chmod 600 kept; sudo cat kept; sudo chown 0 kept; stat -c %U kept"
    ).startswith("secret")


def test_orphans_are_reaped(sandbox: Sandbox) -> None:
    for n in range(20):
        sandbox.run(f"(sh -c 'exec sleep 0.0{n}' &) ; true")
    script = "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l; set -- /proc/[0-9]*; echo $#"

    def reaped() -> bool:
        zombies, processes = map(int, sandbox.run(script).split())
        return zombies == 0 and processes <= 5

    wait_until(reaped)


def test_everybody_can_be_counted_and_stopped(sandbox: Sandbox) -> None:
    sandbox.client.shell("u", "exec sleep 1000", user="user")
    sandbox.client.shell("r", "exec sleep 1000", user="root")
    assert int.from_bytes(sandbox.client.ask(wire.STATS).payload[-4:], "little") == 2
    assert int.from_bytes(sandbox.client.ask(wire.STOP_ALL).payload, "little") == 2
    assert int.from_bytes(sandbox.client.ask(wire.CONTINUE_ALL).payload, "little") == 2
    for process_id in ("u", "r"):
        sandbox.client.ask(wire.SIGNAL, wire.raw(process_id) + (9).to_bytes(4, "little"))
        assert sandbox.client.wait(process_id).status == wire.KILLED


def counted_until(sandbox: Sandbox, enough: Callable[[int], bool]) -> None:
    wait_until(lambda: enough(int.from_bytes(sandbox.client.ask(wire.STATS).payload[-4:], "little")))


def test_everybody_is_killed_at_once_even_those_that_fork(sandbox: Sandbox) -> None:
    endless = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
    limited = ["sh", "-c", 'ulimit -u 200; exec python3 -c "$0"', endless]
    sandbox.client.spawn("u", limited, user="user")
    sandbox.client.shell("r", "exec sleep 1000", user="root")
    counted_until(sandbox, lambda count: count >= 100)
    assert int.from_bytes(sandbox.client.ask(wire.KILL_ALL).payload, "little") >= 100
    for process_id in ("u", "r"):
        assert sandbox.client.wait(process_id).status == wire.KILLED
    counted_until(sandbox, lambda count: count == 0)
    assert sandbox.run("echo usable") == "usable"


def test_a_terminal_belongs_to_its_user(sandbox: Sandbox) -> None:
    out = sandbox.run("stat -c %u $(tty); echo again > $(tty)", flags=wire.WITH_TERMINAL)
    assert out.split() == ["1000", "again"]


def test_the_users_own_output_can_be_opened_again(sandbox: Sandbox) -> None:
    for user in ("user", "root"):
        assert sandbox.run("echo one; echo two > /dev/stdout; echo three > /dev/stderr", user).split() == [
            "one",
            "two",
            "three",
        ]


def test_no_planted_link_leads_to_the_agent(sandbox: Sandbox) -> None:
    client, workspace = sandbox.client, sandbox.workspace
    sandbox.run(
        "ln -s /proc/self/mem mem; ln -s /proc/1/mem one; for n in 3 4 5 6 7 8 9; do ln -s /proc/self/fd/$n $n; done"
    )
    closed = {errno.EACCES, errno.ELOOP, errno.ENOENT, errno.EEXIST}
    for user in ("user", "root"):
        for name in ("mem", "one"):
            for how in (wire.READING, wire.IN_PLACE):
                assert number_of(client.open, str(workspace / name), how, user=user) == errno.EACCES
        for n in range(3, 10):
            assert number_of(client.listing, str(workspace / str(n)), user=user) in closed
            assert number_of(client.listing, str(workspace / str(n)), 2, user=user) in closed | {errno.ENOTDIR}
            assert number_of(client.put, str(workspace / f"{n}/new"), b"", user=user) in closed
            for cwd in (str(workspace / str(n)), f"/proc/1/fd/{n}"):
                assert number_of(client.shell, "p", "true", cwd=cwd, user=user) in closed | {errno.ENOTDIR}
