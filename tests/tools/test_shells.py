"""Shells that last: state, questions, interruption, several at once."""

from __future__ import annotations

import asyncio

from tests.support.waiting import PATIENCE_S
from tests.tools.workbench import Workbench


async def test_directory_variables_and_functions_last(work: Workbench) -> None:
    shell = work.folder[-8:]
    await work.put("sub/file", "")
    first = await work.does(
        "shell_run", shell=shell, command=f"cd {work.at('sub')}\nX='a b'\nf() {{ echo \"f: $X\"; }}"
    )
    assert (first["status"], first["exit_code"], first["cwd"], first["output"]) == ("completed", 0, work.at("sub"), "")
    second = await work.call("shell_run", shell=shell, command="f; pwd; ls nowhere; false")
    assert second.data is not None
    assert second.data["output"].startswith(f"f: a b\n{work.at('sub')}\n")
    assert "nowhere" in second.data["output"]
    assert second.data["exit_code"] == 1
    assert second.text.endswith(f"[exit code 1, in {work.at('sub')}]")
    await work.does("shell_close", shell=shell)
    assert "shell_run opens it" in await work.fails("shell_view", shell=shell)
    assert (await work.does("shell_run", shell=shell, command='echo "[$X]"'))["output"] == "[]\n"
    await work.does("shell_close", shell=shell)


async def test_commands_of_every_shape_are_run(work: Workbench) -> None:
    shell = work.folder[-8:]
    cases = {
        "cat <<'EOF'\nheredoc $X \"quotes\"\nEOF": 'heredoc $X "quotes"\n',
        "echo 'ünï 漢'; printf 'no newline'": "ünï 漢\nno newline",
        "for i in 1 2; do\n  echo $i\ndone # comment": "1\n2\n",
        "echo " + "y" * 10_000: "y" * 10_000 + "\n",
    }
    for command, output in cases.items():
        assert (await work.does("shell_run", shell=shell, command=command))["output"] == output
    broken = await work.does("shell_run", shell=shell, command="if then")
    assert broken["exit_code"] != 0
    assert "syntax error" in broken["output"]
    assert (await work.does("shell_run", shell=shell, command="echo alive"))["output"] == "alive\n"
    await work.does("shell_close", shell=shell)


async def test_a_question_is_answered(work: Workbench) -> None:
    shell = work.folder[-8:]
    asked = await work.does("shell_run", shell=shell, command="read -p 'Name? ' n; echo \"Hello $n\"", timeout=3)
    assert (asked["status"], asked["exit_code"]) == ("running", None)
    assert "busy" in await work.fails("shell_run", shell=shell, command="true")
    [listed] = [each for each in (await work.does("shell_list"))["shells"] if each["shell"] == shell]
    assert listed["busy"]
    answered = await work.does("shell_send", shell=shell, text="Ada", wait=PATIENCE_S)
    assert answered["output"].endswith("Hello Ada\n")
    assert (answered["status"], answered["exit_code"]) == ("completed", 0)
    seen = await work.does("shell_view", shell=shell)
    assert seen["output"].endswith("Name? Hello Ada\n")
    await work.does("shell_close", shell=shell)


async def test_a_command_is_interrupted_and_the_shell_goes_on(work: Workbench) -> None:
    shell = work.folder[-8:]
    await work.does("shell_run", shell=shell, command="KEPT=1; sleep 600", timeout=2)
    stopped = await work.does("shell_send", shell=shell, keys=["ctrl-c"], wait=PATIENCE_S)
    assert (stopped["status"], stopped["exit_code"]) == ("completed", 130)
    assert (await work.does("shell_run", shell=shell, command="echo $KEPT"))["output"] == "1\n"
    await work.does("shell_close", shell=shell)


async def test_a_shell_that_ends_is_said_so_and_opened_again(work: Workbench) -> None:
    shell = work.folder[-8:]
    ended = await work.does("shell_run", shell=shell, command="echo bye; exit 3", timeout=PATIENCE_S)
    assert (ended["status"], "bye" in ended["output"]) == ("ended", True)
    assert (await work.does("shell_run", shell=shell, command="echo again"))["output"] == "again\n"
    await work.does("shell_close", shell=shell)


async def test_commands_at_the_same_time_keep_their_outputs_apart(work: Workbench) -> None:
    shell = work.folder[-8:]
    await work.does("shell_open", shell=shell, cwd="/tmp")
    commands = [work.call("shell_run", shell=shell, command=f"echo only {number}; pwd") for number in range(4)]
    for number, outcome in enumerate(await asyncio.gather(*commands)):
        if not outcome.failed:  # whoever came while another was at work is told so
            assert outcome.data is not None
            assert outcome.data["output"] == f"only {number}\n/tmp\n"
    await work.does("shell_close", shell=shell)


async def test_what_env_set_keeps_is_there_and_colours_are_not(work: Workbench) -> None:
    shell = work.folder[-8:]
    await work.does("env_set", name="IN_SHELL", value="kept")
    run = await work.does("shell_run", shell=shell, command=r"printf '\033[31m%s\033[0m\n' $IN_SHELL; tty")
    assert run["output"].startswith("kept\n/dev/")
    await work.does("env_set", name="IN_SHELL", value=None)
    await work.does("shell_close", shell=shell)


async def test_long_output_of_a_shell_is_kept_in_a_file(work: Workbench) -> None:
    shell = work.folder[-8:]
    run = await work.does("shell_run", shell=shell, command="seq 30000")
    assert run["output"].endswith("29999\n30000\n")
    assert len(run["output"]) < 31_000
    assert await work.shell(f"wc -l < {run['output_file']}") == "30000\n"
    await work.does("shell_close", shell=shell)
