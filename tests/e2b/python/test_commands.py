"""Commands: output, exit, input, time, and coming back to them."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from waiting import wait_until


def test_a_command_answers_with_its_output(sandbox):
    result = sandbox.commands.run("echo out; echo err >&2")
    assert (result.stdout, result.stderr, result.exit_code, result.error or None) == ("out\n", "err\n", 0, None)


def test_output_is_told_while_it_comes(sandbox):
    out, err = [], []
    sandbox.commands.run("echo out; echo err >&2", on_stdout=out.append, on_stderr=err.append)
    assert ("".join(out), "".join(err)) == ("out\n", "err\n")


def test_a_command_that_fails_raises_what_it_said(sandbox, sdk):
    with pytest.raises(sdk.error("CommandExitException")) as raised:
        sandbox.commands.run("echo out; echo err >&2; exit 3")
    assert (raised.value.exit_code, raised.value.stdout, raised.value.stderr) == (3, "out\n", "err\n")
    assert raised.value.error == "exit status 3"


def test_a_command_that_is_not_there_ends_with_127(sandbox, sdk):
    with pytest.raises(sdk.error("CommandExitException")) as raised:
        sandbox.commands.run("there-is-no-such-command")
    assert raised.value.exit_code == 127


def test_text_of_many_languages_survives(sandbox):
    assert sandbox.commands.run("printf 'ü漢🐴'").stdout == "ü漢🐴"


def test_large_output_is_whole(sandbox):
    assert len(sandbox.commands.run("head -c 3000000 /dev/zero | tr '\\0' x").stdout) == 3_000_000


def test_bytes_that_are_no_text_are_replaced(sandbox):
    assert sandbox.commands.run("printf 'a\\377b'").stdout == "a\ufffdb"


def test_a_command_runs_where_it_is_told(sandbox):
    assert sandbox.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"


def test_a_command_runs_at_home_otherwise(sandbox):
    assert sandbox.commands.run("pwd; whoami; echo $HOME $USER $LOGNAME").stdout.split() == [
        "/home/user",
        "user",
        "/home/user",
        "user",
        "user",
    ]


def test_a_folder_that_is_not_there_is_refused(sandbox, sdk):
    with pytest.raises(sdk.error("InvalidArgumentException"), match="cwd '/no/such/folder' does not exist"):
        sandbox.commands.run("pwd", cwd="/no/such/folder")


def test_a_command_runs_as_whom_it_is_told(sandbox):
    assert sandbox.commands.run("whoami", user="root").stdout == "root\n"


def test_a_user_that_is_not_there_is_refused(sandbox, sdk):
    with pytest.raises(sdk.error("AuthenticationException"), match="invalid username: 'nobody-here'"):
        sandbox.commands.run("whoami", user="nobody-here")


def test_a_command_gets_variables(sandbox):
    assert sandbox.commands.run("echo $A-$B", envs={"A": "1", "B": "x y"}).stdout == "1-x y\n"


def test_variables_of_one_command_are_not_anothers(sandbox):
    sandbox.commands.run("true", envs={"ONCE": "1"})
    assert sandbox.commands.run("echo [$ONCE]").stdout == "[]\n"


def test_a_command_that_takes_too_long_is_ended(sandbox):
    with pytest.raises(Exception, match=r"") as raised:
        sandbox.commands.run("sleep 4242", timeout=1)
    assert "Timeout" in type(raised.value).__name__  # of its transport, where an older SDK hears its own clock first
    wait_until(lambda: "4242" not in sandbox.commands.run("ps ax -o args= || true").stdout)


def test_a_command_in_the_background_is_waited_for(sandbox):
    handle = sandbox.commands.run("sleep 0.2; echo done", background=True)
    assert handle.pid > 0
    assert handle.wait().stdout == "done\n"


def test_a_pid_is_that_of_the_inside(sandbox):
    handle = sandbox.commands.run("sleep 60", background=True)
    assert sandbox.commands.run(f"kill -0 {handle.pid} && echo alive").stdout == "alive\n"
    handle.kill()


def test_a_command_in_the_background_that_fails_raises_when_waited_for(sandbox, sdk):
    handle = sandbox.commands.run("exit 5", background=True)
    with pytest.raises(sdk.error("CommandExitException")) as raised:
        handle.wait()
    assert raised.value.exit_code == 5


def test_running_commands_are_listed(sandbox):
    handle = sandbox.commands.run("sleep 61", background=True, envs={"K": "v"}, cwd="/tmp")
    found = next(each for each in sandbox.commands.list() if each.pid == handle.pid)
    assert found.cmd == "/bin/bash" and found.args == ["-l", "-c", "sleep 61"]
    assert found.envs == {"K": "v"} and found.cwd == "/tmp"
    handle.kill()
    wait_until(lambda: handle.pid not in [each.pid for each in sandbox.commands.list()])


def test_a_killed_command_raises_when_waited_for(sandbox, sdk):
    handle = sandbox.commands.run("sleep 60", background=True)
    assert handle.kill() is True
    with pytest.raises(sdk.error("CommandExitException")) as raised:
        handle.wait()
    assert raised.value.exit_code == -1 and raised.value.error == "signal: killed"


def test_kill_by_pid_tells_whether_there_was_one(sandbox):
    handle = sandbox.commands.run("sleep 60", background=True)
    assert sandbox.commands.kill(handle.pid) is True
    with contextlib.suppress(Exception):
        handle.wait()
    wait_until(lambda: not sandbox.commands.kill(handle.pid))  # it is taken off the list
    assert sandbox.commands.kill(4_000_000) is False


def test_a_background_child_that_holds_the_output_holds_the_end(sandbox):
    started = time.monotonic()
    assert sandbox.commands.run("(sleep 1; echo late) & echo early").stdout == "early\nlate\n"
    assert time.monotonic() - started > 0.9


def test_a_kill_ends_the_stream_whatever_children_hold(sandbox, sdk):
    handle = sandbox.commands.run("sleep 3000 & wait", background=True, timeout=0)
    handle.kill()
    with pytest.raises(sdk.error("CommandExitException")):
        handle.wait()


def test_input_is_read(sandbox):
    handle = sandbox.commands.run("read line; echo got $line", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "hello\n")
    assert handle.wait().stdout == "got hello\n"


def test_without_input_it_is_at_its_end(sandbox):
    assert sandbox.commands.run("cat; echo over", timeout=10).stdout == "over\n"


def test_input_can_be_empty_and_special(sandbox):
    handle = sandbox.commands.run("cat -v", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "")
    sandbox.commands.send_stdin(handle.pid, "tab\there ü\n")
    sandbox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "tab\there M-CM-<\n"


def test_closed_input_is_the_end_of_it(sandbox):
    handle = sandbox.commands.run("cat; sleep 1; echo over", background=True, stdin=True)
    sandbox.commands.send_stdin(handle.pid, "one\n")
    sandbox.commands.close_stdin(handle.pid)
    sandbox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout == "one\nover\n"


def test_a_handle_sends_and_closes_input(sandbox):
    handle = sandbox.commands.run("cat", background=True, stdin=True)
    handle.send_stdin("by handle")
    handle.close_stdin()
    assert handle.wait().stdout == "by handle"


def test_input_is_streamed(sandbox, stream):
    handle = sandbox.commands.run("wc -c", background=True, stdin=True)
    stream(sandbox.commands, handle.pid, ["a" * 1000] * 20)
    sandbox.commands.close_stdin(handle.pid)
    assert handle.wait().stdout.strip() == "20000"


def test_input_for_nobody_is_not_found(sandbox, sdk):
    with pytest.raises(sdk.error("NotFoundException")):
        sandbox.commands.send_stdin(4_000_000, "hello")


def test_input_that_was_not_asked_for_is_refused(sandbox, sdk):
    handle = sandbox.commands.run("sleep 60", background=True)
    with pytest.raises(sdk.error("SandboxException")):
        sandbox.commands.send_stdin(handle.pid, "hello")
    handle.kill()


def test_a_command_goes_on_without_its_follower(sandbox):
    handle = sandbox.commands.run("sleep 1; echo done > /tmp/went-on", background=True, timeout=0)
    handle.disconnect()
    wait_until(lambda: sandbox.files.exists("/tmp/went-on"))


def test_a_command_is_found_again(sandbox):
    handle = sandbox.commands.run("read line; echo got $line", background=True, stdin=True, timeout=0)
    handle.disconnect()
    again = sandbox.commands.connect(handle.pid)
    assert again.pid == handle.pid
    sandbox.commands.send_stdin(handle.pid, "hello\n")
    assert again.wait().stdout == "got hello\n"


def test_all_followers_hear_all(sandbox):
    first = sandbox.commands.run("read line; echo got $line", background=True, stdin=True)
    second = sandbox.commands.connect(first.pid)
    sandbox.commands.send_stdin(first.pid, "hello\n")
    assert first.wait().stdout == second.wait().stdout == "got hello\n"


def test_following_nobody_is_not_found(sandbox, sdk):
    with pytest.raises(sdk.error("NotFoundException"), match="process with pid 4000000 not found"):
        sandbox.commands.connect(4_000_000)


def test_a_blocking_follower_reads_as_it_comes(sandbox, sdk):
    if sdk.is_async:
        pytest.skip("only the blocking handle is an iterator")
    handle = sandbox.commands.run("echo one; echo two >&2", background=True)
    parts = list(handle)
    assert "".join(out for out, _, _ in parts if out) == "one\n"
    assert "".join(err for _, err, _ in parts if err) == "two\n"


def test_many_commands_run_at_once(sandbox):
    with ThreadPoolExecutor(20) as pool:
        results = list(pool.map(lambda number: sandbox.commands.run(f"sleep 0.3; echo {number}").stdout, range(20)))
    assert results == [f"{number}\n" for number in range(20)]


def test_output_need_not_be_kept(sandbox):
    parts = []
    result = sandbox.commands.run("echo hello", on_stdout=parts.append, retain_output=False)
    assert result.stdout is None and parts == ["hello\n"]


def test_a_shell_is_a_login_shell(sandbox):
    assert sandbox.commands.run("shopt login_shell").stdout.split() == ["login_shell", "on"]
