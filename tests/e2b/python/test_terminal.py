"""Terminals."""

import contextlib
import threading
import time

import pytest
from waiting import wait_until


class Terminal:
    """A terminal whose output is collected while a test types."""

    def __init__(self, sandbox, sdk, **options):
        self.said = b""
        self._sandbox = sandbox
        size = sdk.PtySize(rows=24, cols=80)
        if sdk.is_async:
            self.handle = sandbox.pty.create(size, on_data=self._hear, **options)
        else:
            self.handle = sandbox.pty.create(size, **options)
            threading.Thread(target=self._follow, daemon=True).start()

    @property
    def pid(self):
        return self.handle.pid

    def type(self, text):
        self._sandbox.pty.send_stdin(self.pid, text.encode())

    def wait_for(self, text):
        wait_until(lambda: text.encode() in self.said)

    def _hear(self, part):
        self.said += part

    def _follow(self):
        with contextlib.suppress(Exception):
            self.handle.wait(on_pty=self._hear)


@pytest.fixture
def terminal(sandbox, sdk):
    made = Terminal(sandbox, sdk, envs={"GREETING": "moin"}, cwd="/tmp", timeout=0)
    yield made
    sandbox.pty.kill(made.pid)


def test_a_terminal_answers(terminal):
    terminal.type("echo $GREETING-$((40 + 2)); pwd; echo [$TERM]; tty\n")
    for text in ("moin-42", "/tmp", "[xterm-256color]", "/dev/pts/"):
        terminal.wait_for(text)


def test_a_terminal_has_a_size_that_changes(terminal, sandbox, sdk):
    terminal.type("stty size\n")
    terminal.wait_for("24 80")
    sandbox.pty.resize(terminal.pid, sdk.PtySize(rows=50, cols=132))
    terminal.type("stty size\n")
    terminal.wait_for("50 132")


def test_control_c_interrupts(terminal):
    terminal.type("sleep 600\n")
    terminal.wait_for("sleep 600")
    time.sleep(0.2)
    terminal.type("\x03")
    terminal.type("echo $((1000 + 1))\n")
    terminal.wait_for("1001")


def test_a_terminal_ends_with_its_shell(sandbox, sdk):
    made = Terminal(sandbox, sdk)
    made.type("exit\n")
    wait_until(lambda: made.pid not in [each.pid for each in sandbox.commands.list()])


def test_kill_tells_whether_there_was_a_terminal(sandbox, sdk):
    made = Terminal(sandbox, sdk)
    assert sandbox.pty.kill(made.pid) is True
    assert sandbox.pty.kill(4_000_000) is False


def test_a_terminal_of_the_root_user(sandbox, sdk):
    made = Terminal(sandbox, sdk, user="root")
    made.type("whoami\n")
    made.wait_for("root")
    sandbox.pty.kill(made.pid)


def test_a_terminal_takes_streamed_input(terminal, sandbox, stream):
    stream(sandbox.pty, terminal.pid, ["echo ", "str", "eamed\n"])
    terminal.wait_for("streamed\r\n")


def test_a_terminal_is_found_again(terminal, sandbox, sdk):
    said = []
    if sdk.is_async:
        again = sandbox.pty.connect(terminal.pid, on_data=said.append)
    else:
        again = sandbox.pty.connect(terminal.pid)
    assert again.pid == terminal.pid
    terminal.type("echo $((2000 + 2)); exit\n")
    again.wait(**({} if sdk.is_async else {"on_pty": said.append}))
    assert b"2002" in b"".join(said)


def test_input_for_no_terminal_is_not_found(sandbox, sdk):
    with pytest.raises(sdk.error("NotFoundException")):
        sandbox.pty.send_stdin(4_000_000, b"hello")


def test_a_size_for_no_terminal_is_not_found(sandbox, sdk):
    with pytest.raises(sdk.error("NotFoundException") if sdk.newest else Exception, match="4000000 not found"):
        sandbox.pty.resize(4_000_000, sdk.PtySize(rows=1, cols=1))
