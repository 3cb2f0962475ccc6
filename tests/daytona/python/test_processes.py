"""Commands, code, sessions and terminals."""

from __future__ import annotations

from typing import Any

import daytona
import pytest
from daytona import CodeRunParams, SessionExecuteRequest
from daytona.common.pty import PtySize


def test_a_command(sandbox: Any) -> None:
    done = sandbox.process.exec("echo $A; pwd; echo no >&2; exit 3", cwd="/tmp", env={"A": "b"})
    assert (done.exit_code, done.result) == (3, "b\n/tmp\nno\n")
    with pytest.raises(daytona.DaytonaTimeoutError):
        sandbox.process.exec("sleep 600", timeout=1)


def test_code_of_each_language(sandbox: Any) -> None:
    done = sandbox.process.code_run("import sys; print(sys.argv[1:], 6 * 7)", CodeRunParams(argv=["x"]))
    assert (done.exit_code, done.result) == (0, "['x'] 42\n")
    assert sandbox.process.code_run("1 / 0").exit_code == 1


def test_a_session(sandbox: Any) -> None:
    process = sandbox.process
    process.create_session("main")
    with pytest.raises(daytona.DaytonaConflictError):
        process.create_session("main")
    done = process.execute_session_command("main", SessionExecuteRequest(command="cd /tmp; echo o; echo e >&2"))
    assert (done.exit_code, done.stdout, done.stderr) == (0, "o\n", "e\n")
    assert process.execute_session_command("main", SessionExecuteRequest(command="pwd")).stdout == "/tmp\n"
    assert [command.exit_code for command in process.get_session("main").commands] == [0, 0]
    assert "main" in [session.session_id for session in process.list_sessions()]
    process.delete_session("main")
    with pytest.raises(daytona.DaytonaNotFoundError):
        process.get_session("main")


def test_a_command_of_a_session_that_is_followed_and_fed(sandbox: Any) -> None:
    process = sandbox.process
    process.create_session("fed")
    asked = SessionExecuteRequest(command="read line; echo got $line; echo e >&2", run_async=True)
    command = process.execute_session_command("fed", asked).cmd_id
    assert process.get_session_command("fed", command).exit_code is None
    process.send_session_command_input("fed", command, "this")
    heard: dict[str, str] = {"out": "", "err": ""}

    def on(name: str) -> Any:
        return lambda text: heard.update({name: heard[name] + text})

    process.get_session_command_logs_async("fed", command, on("out"), on("err"))
    assert (heard["out"], heard["err"]) == ("this\ngot this\n", "e\n")
    assert process.get_session_command_logs("fed", command).stdout == "this\ngot this\n"
    assert process.get_session_command("fed", command).exit_code == 0
    process.delete_session("fed")


def test_a_session_that_is_ended_by_its_command(sandbox: Any) -> None:
    process = sandbox.process
    process.create_session("ended")
    assert process.execute_session_command("ended", SessionExecuteRequest(command="exit 3")).exit_code == 3
    with pytest.raises(daytona.DaytonaGoneError):
        process.execute_session_command("ended", SessionExecuteRequest(command="true"))
    process.delete_session("ended")


def test_the_entrypoint_has_said_nothing(sandbox: Any) -> None:
    assert sandbox.process.get_entrypoint_session().commands == []
    assert sandbox.process.get_entrypoint_logs().output == ""
    sandbox.process.get_entrypoint_logs_async(lambda text: None, lambda text: None)


def test_a_terminal(sandbox: Any, voice: Any) -> None:
    heard = bytearray()
    more = {"on_data": heard.extend} if voice.is_async else {}
    size = PtySize(cols=100, rows=30)
    handle = sandbox.process.create_pty_session("t1", envs={"WHO": "me"}, pty_size=size, **more)
    handle.wait_for_connection()
    assert handle.is_connected()
    assert [each.id for each in sandbox.process.list_pty_sessions()] == ["t1"]
    assert handle.resize(PtySize(cols=90, rows=20)).cols == 90
    assert sandbox.process.resize_pty_session("t1", PtySize(cols=91, rows=21)).rows == 21
    assert sandbox.process.get_pty_session_info("t1").cols == 91
    handle.send_input("stty size; echo I am $WHO; exit 5\n")
    ended = handle.wait() if voice.is_async else handle.wait(on_data=heard.extend, timeout=120)
    assert ended.exit_code == 5
    assert b"21 91" in heard
    assert b"I am me" in heard
    handle.disconnect()


def test_a_terminal_is_left_found_again_and_killed(sandbox: Any, voice: Any) -> None:
    more = {"on_data": lambda data: None} if voice.is_async else {}
    sandbox.process.create_pty_session("t2", **more).disconnect()
    again = sandbox.process.connect_pty_session("t2", **more)
    again.kill()
    assert (again.wait() if voice.is_async else again.wait(timeout=120)).exit_code == 137
    again.disconnect()
    with pytest.raises(daytona.DaytonaNotFoundError):
        sandbox.process.get_pty_session_info("t2")
    sandbox.process.create_pty_session("t3", **more).disconnect()
    sandbox.process.kill_pty_session("t3")
    with pytest.raises(daytona.DaytonaError):
        sandbox.process.connect_pty_session("t3", **more)


def test_the_code_interpreter(sandbox: Any) -> None:
    interpreter = sandbox.code_interpreter
    interpreter.run_code("x = 20")
    said: list[str] = []
    done = interpreter.run_code("print(x + 1)", on_stdout=lambda message: said.append(message.output))
    assert (done.stdout, "".join(said)) == ("21\n", "21\n")
    failed = interpreter.run_code("raise ValueError('no')")
    assert (failed.error.name, failed.error.value) == ("ValueError", "no")
    context = interpreter.create_context(cwd="/tmp")
    assert interpreter.run_code("import os; print(os.getcwd())", context=context).stdout == "/tmp\n"
    assert [each.id for each in interpreter.list_contexts()] == [context.id]
    with pytest.raises(daytona.DaytonaTimeoutError):
        interpreter.run_code("import time; time.sleep(600)", context=context, timeout=1)
    interpreter.delete_context(context)
    assert interpreter.list_contexts() == []
