"""Processes: what they get, how they end, and that one id is one process."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path

import pytest

from tests.agent import client as wire
from tests.agent.client import Client, Refused, raw
from tests.agent.conftest import Running
from tests.support.waiting import wait_until


@pytest.mark.parametrize("code", [0, 1, 126, 137, 255])
def test_the_exit_code_is_the_programs_own(client: Client, code: int) -> None:
    ended, _, _ = client.run("p", f"exit {code}")
    assert (ended.status, ended.exit_code) == (wire.COMPLETED, code)
    assert 0 < ended.started_us <= ended.ended_us <= time.time() * 1e6 + 1e6


def test_streams_are_kept_apart(client: Client) -> None:
    _, out, err = client.run("p", "echo out; echo err >&2; echo two > /dev/stdout")
    assert (out, err) == (b"out\ntwo\n", b"err\n")


def test_a_short_command_is_one_round_trip(client: Client) -> None:
    request = client.send(wire.SPAWN, client.spawn_payload("p", ["/bin/echo", "hi"], flags=wire.WITH_FOLLOW))
    assert client.answer(request).type == wire.PROCESS
    pieces, ended = client.followed(request)
    assert pieces == [(wire.STDOUT, 0, b"hi\n")]
    assert (ended.status, ended.exit_code, ended.stdout_size) == (wire.COMPLETED, 0, 3)


def test_a_process_has_the_environment_it_was_given_and_what_every_program_expects(client: Client) -> None:
    _, out, _ = client.run("p", "echo $MINE; env", env=["MINE=a b", "HOME=/elsewhere"])
    lines = out.decode().splitlines()
    assert lines[0] == "a b"
    variables = dict(line.split("=", 1) for line in lines[1:])
    assert variables["HOME"] == "/elsewhere"
    assert (variables["USER"], variables["LOGNAME"]) == ("user", "user")
    assert "/usr/bin" in variables["PATH"].split(":")
    assert variables["SHELL"].startswith("/")
    assert "TERM" not in variables
    assert set(variables) <= {"MINE", "HOME", "USER", "LOGNAME", "PATH", "SHELL", "PWD", "_", "OLDPWD", "SHLVL"}


def test_a_tilde_at_the_beginning_of_an_entry_of_path_is_the_home(client: Client) -> None:
    _, out, _ = client.run("q", "echo $HOME")
    home = out.decode().strip()
    given = ["HOME=/elsewhere", "PATH=~/.local/bin:/a~/b:~:/usr/bin:/bin:~/x"]
    _, out, _ = client.run("p", "echo $PATH", env=given)
    path = out.decode().strip()
    assert path == f"{home}/.local/bin:/a~/b:~:/usr/bin:/bin:{home}/x"


def test_a_process_has_no_descriptors_but_its_own(client: Client) -> None:
    _, out, _ = client.run("p", "ls /proc/self/fd")
    # ls itself has the directory open as the fourth.
    assert out.split() == [b"0", b"1", b"2", b"3"]


def test_a_process_is_a_session_of_its_own_with_usual_signals(client: Client) -> None:
    _, out, _ = client.run(
        "p", "cat /proc/self/status /proc/self/stat; grep core /proc/self/limits; umask; cat /proc/self/oom_score_adj"
    )
    status, rest = out.decode().split("nonvoluntary_ctxt_switches", 1)
    fields = dict(line.split(":", 1) for line in status.splitlines())
    assert {fields[name].strip() for name in ("SigBlk", "SigIgn")} == {"0" * 16}
    assert fields["NoNewPrivs"].strip() == "1"
    *_, numbers, core, mask, score = rest.strip().splitlines()
    session, pid = numbers.split()[5], client.process("p").pid
    assert int(session) == pid
    assert (core.split()[4:6], mask) == (["1", "1"], "0022")
    assert int(score) >= 500


def test_the_working_directory_is_the_one_asked_for(client: Client, tmp_path: Path) -> None:
    (tmp_path / "a dir").mkdir()
    _, out, _ = client.run("p", "pwd", cwd=str(tmp_path / "a dir"))
    assert out.decode().strip() == str(tmp_path / "a dir")


def test_a_working_directory_that_cannot_be_entered_starts_nothing(client: Client, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for cwd, number in (
        ("/no/such/place", errno.ENOENT),
        (str(tmp_path / "file"), errno.ENOTDIR),
        ("here", errno.EINVAL),
    ):
        with pytest.raises(Refused) as refused:
            client.shell("p", f"touch {tmp_path}/ran", cwd=cwd)
        assert refused.value.errno == number
    assert client.processes() == []
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_missing_program_ends_with_127_and_says_so(client: Client) -> None:
    client.spawn("p", ["no-such-program", "x"])
    assert client.wait("p").exit_code == 127
    assert client.everything("p", wire.STDERR) == b"paddock: no-such-program: not found\n"
    client.spawn("q", ["/no/such/program"])
    assert client.wait("q").exit_code == 127


def test_a_program_that_may_not_be_executed_ends_with_126(client: Client, tmp_path: Path) -> None:
    for name, mode, text in (("closed", 0o644, "#!/bin/sh\n"), ("nonsense", 0o755, "no program\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
        client.spawn(name, [str(tmp_path / name)])
        assert client.wait(name).exit_code == 126
        assert name.encode() in client.everything(name, wire.STDERR)


def test_the_path_of_the_given_environment_is_searched(client: Client, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("#!/bin/sh\necho found")
    (tmp_path / "mine").chmod(0o755)
    client.spawn("p", ["mine"], env=[f"PATH=/nowhere:{tmp_path}:/usr/bin:/bin"])
    client.wait("p")
    assert client.everything("p") == b"found\n"


def test_arguments_arrive_as_they_are(client: Client) -> None:
    arguments = [b"a b", b"", b"$HOME", b"*", b"'\"", b"-n", "ü\n".encode(), b"\xff\xfe"]
    client.spawn("p", [b"printf", b"[%s]", *arguments])
    client.wait("p")
    assert client.everything("p") == b"".join(b"[%s]" % argument for argument in arguments)


def test_a_command_that_is_too_long_is_refused(client: Client) -> None:
    with pytest.raises(Refused) as refused:
        client.spawn("p", ["echo", "x" * (1 << 19)])
    assert refused.value.errno == errno.E2BIG
    assert client.processes() == []


@pytest.mark.parametrize(
    "options",
    [
        {"argv": []},
        {"process_id": ""},
        {"process_id": "x" * 129},
        {"user": "nobody-here"},
        {"env": ["NOTHING"]},
        {"env": ["=x"]},
    ],
    ids=lambda options: next(iter(options)),
)
def test_a_senseless_order_is_refused(client: Client, options: dict[str, object]) -> None:
    order = {"process_id": "p", "argv": ["true"], **options}
    with pytest.raises(Refused) as refused:
        client.spawn(**order)  # type: ignore[arg-type]
    assert refused.value.errno == errno.EINVAL


def test_the_same_id_is_the_same_process(client: Client, agent: Running, tmp_path: Path) -> None:
    script = f"echo run >> {tmp_path}/runs; echo up; exec sleep 1000"
    other = agent.connect()
    payload = client.spawn_payload("p", ["/bin/sh", "-c", script])
    requests = [(one, one.send(wire.SPAWN, payload)) for one in (client, other) * 5]
    pids = {wire.one(wire.Process, one.answer(request)).pid for one, request in requests}
    assert len(pids) == 1
    client.until("p", b"up")
    os.killpg(pids.pop(), signal.SIGKILL)
    client.wait("p")
    again = client.send(wire.SPAWN, client.spawn_payload("p", ["/bin/echo"], flags=wire.WITH_FOLLOW))
    assert client.answer(again).type == wire.PROCESS
    assert client.followed(again)[1].status == wire.KILLED
    assert (tmp_path / "runs").read_text() == "run\n"
    assert len(client.processes()) == 1


def test_requests_need_not_wait_for_the_start(client: Client) -> None:
    client.send(wire.SPAWN, client.spawn_payload("p", ["/bin/sh", "-c", "read x; echo got $x"], flags=wire.WITH_STDIN))
    wrote, waiting = client.send(wire.STDIN, raw("p") + raw("it\n")), client.send(wire.WAIT, raw("p"))
    assert client.answer(wrote).type == wire.OK
    assert client.answer(waiting).type == wire.ENDED
    assert client.everything("p") == b"got it\n"


def test_whoever_waits_for_a_start_that_fails_hears_why(client: Client) -> None:
    requests = [client.send(wire.SPAWN, client.spawn_payload("p", ["true"], cwd="/none")) for _ in range(2)]
    requests.append(client.send(wire.WAIT, raw("p")))
    numbers = set()
    for request in requests:
        with pytest.raises(Refused) as refused:
            client.answer(request)
        numbers.add(refused.value.errno)
    assert numbers <= {errno.ENOENT, errno.ESRCH}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_an_end_by_a_signal_is_told_as_a_shell_would(client: Client, number: int) -> None:
    client.shell("p", "echo up; exec sleep 1000")
    client.until("p", b"up")
    client.ask(wire.SIGNAL, raw("p") + number.to_bytes(4, "little"))
    ended = client.wait("p")
    assert (ended.status, ended.exit_code) == (wire.KILLED, 128 + number)


def test_a_signal_reaches_the_whole_group(client: Client) -> None:
    client.shell("p", "sleep 1000 & echo $!; wait")
    child = int(client.until("p", b"\n"))
    client.ask(wire.SIGNAL, raw("p") + signal.SIGKILL.to_bytes(4, "little"))
    client.wait("p")
    _gone(child)


def _gone(pid: int) -> None:
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text())


def test_signals_and_sizes_for_the_wrong_process_are_told_apart(client: Client) -> None:
    client.run("ended", "true")
    client.shell("runs", "exec sleep 1000")
    term = signal.SIGTERM.to_bytes(4, "little")
    for kind, payload, number in (
        (wire.SIGNAL, raw("none") + term, errno.ESRCH),
        (wire.SIGNAL, raw("ended") + term, errno.EPIPE),
        (wire.SIGNAL, raw("runs") + (4711).to_bytes(4, "little"), errno.EINVAL),
        (wire.SIGNAL, raw("runs") + b"\xff\xff\xff\xff", errno.EINVAL),
        (wire.RESIZE, raw("runs") + b"\1\0\1\0", errno.ENOTTY),
        (wire.RESIZE, raw("ended") + b"\1\0\1\0", errno.EPIPE),
        (wire.STDIN, raw("runs") + raw("x"), errno.EBADF),
        (wire.STDIN, raw("ended") + raw("x"), errno.EPIPE),
        (wire.WAIT, raw("none"), errno.ESRCH),
        (wire.PROCESS_GET, raw(""), errno.ESRCH),
        (wire.READ_OUTPUT, raw("runs") + b"\3" + bytes(12), errno.EINVAL),
    ):
        with pytest.raises(Refused) as refused:
            client.ask(kind, payload)
        assert refused.value.errno == number
    assert client.ask(wire.CLOSE_STDIN, raw("ended")).type == wire.OK


def test_the_hard_timeout_kills_the_group_and_is_told(client: Client) -> None:
    client.shell("p", "trap '' TERM; sleep 1000 & echo $!; wait", timeout_ms=200)
    child = int(client.until("p", b"\n"))
    ended = client.wait("p")
    assert (ended.status, ended.exit_code) == (wire.TIMED_OUT, 137)
    assert ended.ended_us - ended.started_us >= 190_000
    _gone(child)


def test_the_shortest_timeout_strikes_and_a_long_one_does_not(client: Client) -> None:
    client.shell("p", "exec sleep 1000", timeout_ms=1)
    assert client.wait("p").status == wire.TIMED_OUT
    ended, _, _ = client.run("q", "exit 3", timeout_ms=60_000)
    assert (ended.status, ended.exit_code) == (wire.COMPLETED, 3)
    ended, _, _ = client.run("r", "exit 4", timeout_ms=2**64 - 1)
    assert ended.exit_code == 4


def test_time_in_which_everything_was_frozen_does_not_count(client: Client, agent: Running) -> None:
    process = client.shell("p", "exec sleep 1000", timeout_ms=1200)
    for pid in (agent.pid, process.pid):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(2.5)
    for pid in (process.pid, agent.pid):
        os.kill(pid, signal.SIGCONT)
    assert client.process("p").status == wire.RUNNING
    ended = client.wait("p")
    assert ended.status == wire.TIMED_OUT
    # Of a freeze at most the second of one look is taken for time that passed.
    assert ended.ended_us - ended.started_us > 2_600_000


def test_processes_are_listed_oldest_first_and_labels_are_bounded(client: Client) -> None:
    for n in range(5):
        client.run(f"p{n}", "true", label=f"label {n}")
    client.run("long", "true", label="ü" * 1000)
    listed = client.processes()
    assert [process.label for process in listed[:5]] == [f"label {n}" for n in range(5)]
    assert listed[5].label == "ü" * 512


def test_no_more_than_512_run_at_once(client: Client) -> None:
    requests = [client.send(wire.SPAWN, client.spawn_payload(f"p{n}", ["/bin/sleep", "1000"])) for n in range(520)]
    refusals = 0
    for request in requests:
        try:
            client.answer(request)
        except Refused as refused:
            assert refused.errno == errno.EAGAIN
            refusals += 1
    assert refusals == 8
    assert len(client.processes()) == 512
