"""Commands and tasks: soft timeouts, background, input, ends, and outputs that are too long."""

from __future__ import annotations

import pytest

from paddock import errors
from tests.support.waiting import PATIENCE_S
from tests.tools.workbench import Workbench


async def test_a_command_answers_with_output_and_exit_code(work: Workbench) -> None:
    outcome = await work.call("run_command", command="echo out; echo err >&2; exit 3")
    assert not outcome.failed
    assert outcome.text == "out\n[stderr]\nerr\n[exit code 3]"
    assert outcome.data is not None
    assert (outcome.data["status"], outcome.data["stdout"], outcome.data["stderr"]) == ("completed", "out\n", "err\n")


async def test_it_runs_as_the_user_in_the_workspace_with_its_own_variables(work: Workbench) -> None:
    await work.put("sub/file", "")
    data = await work.does("run_command", command="id -un; pwd; echo $A $FROM_SANDBOX", env={"A": "x y"})
    assert data["stdout"] == "user\n/workspace\nx y yes\n"
    data = await work.does("run_command", command="pwd", cwd=work.at("sub"))
    assert data["stdout"] == work.at("sub") + "\n"


async def test_a_directory_that_is_not_there_is_said_so(work: Workbench) -> None:
    assert "nowhere" in await work.fails("run_command", command="pwd", cwd="nowhere")


async def test_a_command_without_input_reads_an_empty_one(work: Workbench) -> None:
    assert (await work.does("run_command", command="cat; echo done"))["stdout"] == "done\n"


async def test_a_slow_command_becomes_a_task_that_goes_on(work: Workbench) -> None:
    fifo = work.at("gate")
    command = f"mkdir -p {work.folder}; mkfifo {fifo}; echo waiting; cat {fifo}; exit 4"
    outcome = await work.call("run_command", command=command, timeout=1)
    assert outcome.data is not None
    assert outcome.data["status"] == "running"
    assert "task_output" in outcome.text
    task = outcome.data["task_id"]
    seen = await work.does("task_output", task_id=task, stdout_offset=0, wait=PATIENCE_S)
    assert seen["stdout"] == "waiting\n"
    await work.shell(f"echo go > {fifo}")
    ended = await work.does(
        "task_output", task_id=task, stdout_offset=seen["stdout_offset"], wait=PATIENCE_S, until="end"
    )
    assert (ended["status"], ended["exit_code"], ended["stdout"]) == ("completed", 4, "go\n")


async def test_whoever_waits_hears_how_it_goes(work: Workbench) -> None:
    go = await work.put("not-yet", "")

    async def hear(message: str) -> None:
        if message.endswith("begun"):
            await work.does("delete_file", path=go)

    command = f"echo begun; while [ -e {go} ]; do sleep 0.1; done"
    outcome = await work.call("run_command", heard=hear, command=command, timeout=PATIENCE_S)
    assert outcome.data is not None
    assert outcome.data["status"] == "completed"


async def test_a_background_task_is_written_to_and_read(work: Workbench) -> None:
    started = await work.does("run_command", command="read a; echo got $a; cat", background=True, keep_input_open=True)
    task = started["task_id"]
    answer = await work.does("task_input", task_id=task, text="ünïcode", wait=PATIENCE_S)
    assert answer["stdout"] == "got ünïcode\n"
    await work.does("task_input", task_id=task, text="rest", press_enter=False, close=True, wait=0)
    ended = await work.does("task_output", task_id=task, stdout_offset=0, wait=PATIENCE_S, until="end")
    assert (ended["stdout"], ended["exit_code"]) == ("got ünïcode\nrest", 0)
    assert "keep_input_open" in await work.fails("task_input", task_id=task, text="more")


async def test_a_task_is_stopped_by_force_if_it_must(work: Workbench) -> None:
    gentle = await work.does("run_command", command="sleep 600", background=True)
    stopped = await work.does("task_stop", task_id=gentle["task_id"], grace=60)
    assert (stopped["status"], stopped["forced"]) == ("killed", False)
    again = await work.does("task_stop", task_id=gentle["task_id"])
    assert again["status"] == "killed"
    deaf = await work.does("run_command", command="trap '' TERM; echo deaf; sleep 600", background=True)
    await work.does("task_output", task_id=deaf["task_id"], stdout_offset=0, wait=PATIENCE_S)
    stopped = await work.does("task_stop", task_id=deaf["task_id"], grace=0.1)
    assert (stopped["status"], stopped["forced"]) == ("killed", True)


async def test_a_hard_timeout_ends_it(work: Workbench) -> None:
    data = await work.does("run_command", command="sleep 600", hard_timeout=0.5, timeout=PATIENCE_S)
    assert data["status"] == "timed_out"


async def test_tasks_are_listed_without_what_tools_run_for_themselves(work: Workbench) -> None:
    task = (await work.does("run_command", command="echo find-me-in-the-list"))["task_id"]
    await work.does("process_list")
    listed = (await work.does("task_list"))["tasks"]
    [mine] = [each for each in listed if each["task_id"] == task]
    assert (mine["command"], mine["exit_code"]) == ("echo find-me-in-the-list", 0)
    assert not [each for each in listed if "paddock tool" in each["command"]]


async def test_a_task_that_is_not_there_is_said_so(work: Workbench) -> None:
    for tool, more in (("task_output", {}), ("task_input", {"text": "x"}), ("task_stop", {})):
        assert "task_list" in await work.fails(tool, task_id="p_0000000000000000", **more)


async def test_too_much_output_keeps_both_ends_and_the_whole_in_a_file(work: Workbench) -> None:
    outcome = await work.call("run_command", command="seq 100000; seq 50000 >&2")
    assert outcome.data is not None
    assert len(outcome.text) < 32_000
    data = outcome.data
    assert data["truncated"]
    assert data["stdout"].startswith("1\n2\n")
    assert data["stdout"].endswith("99999\n100000\n")
    assert data["stderr"].endswith("50000\n")
    assert await work.shell(f"wc -l < {data['stdout_file']}; wc -l < {data['stderr_file']}") == "100000\n50000\n"


async def test_bytes_that_are_no_text_are_shown_as_such(work: Workbench) -> None:
    assert (await work.does("run_command", command=r"printf 'a\377b'"))["stdout"] == "a\ufffdb"


async def test_arguments_that_do_not_fit_are_refused_by_name(work: Workbench) -> None:
    with pytest.raises(errors.Invalid, match="command"):
        await work.call("run_command")
    with pytest.raises(errors.Invalid, match="nonsense"):
        await work.call("run_command", command="true", nonsense=1)
    with pytest.raises(errors.ToolNotFound, match="nonsense"):
        await work.call("nonsense")


async def test_a_call_wakes_a_paused_sandbox_and_is_counted(fresh: Workbench) -> None:
    await fresh.context.controller.pause(fresh.who, fresh.sandbox_id)
    assert (await fresh.does("run_command", command="echo awake"))["stdout"] == "awake\n"
    await fresh.context.journal.flush()
    seen, _ = await fresh.context.usage.of_sandbox(fresh.who, fresh.sandbox_id)
    assert seen.commands >= 1


async def test_a_background_command_that_ends_at_once_is_not_said_to_run(work: Workbench) -> None:
    outcome = await work.call("run_command", command="echo in use >&2; exit 3", background=True)
    assert outcome.data is not None and outcome.data["status"] == "completed"
    assert "[exit code 3]" in outcome.text and "in use" in outcome.text
