"""E2B's interpreter protocol, as its clients see it on the wire."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import aclosing

import pytest

from tests.interpreter.place import Sandbox, one, text_of


async def test_health_answers(sandbox: Sandbox) -> None:
    assert (await sandbox.call("GET", "/health")).status == 200


async def test_an_execution_says_its_number_then_its_outputs_then_its_end(sandbox: Sandbox) -> None:
    context = await sandbox.new_context()
    said = [output async for output in sandbox.outputs("print('hello')\n1 + 1", context_id=context)]
    assert [output["type"] for output in said] == ["number_of_executions", "stdout", "result", "end_of_execution"]
    assert said[0] == {"type": "number_of_executions", "execution_count": 1}
    assert said[1]["text"] == "hello\n"
    assert abs(said[1]["timestamp"] / 1e9 - time.time()) < 60
    assert said[2] == {"type": "result", "text": "2", "is_main_result": True}


async def test_the_number_of_executions_goes_up(sandbox: Sandbox, context: str) -> None:
    numbers = []
    for _ in range(3):
        async with aclosing(sandbox.outputs("1", context_id=context)) as outputs:
            numbers.append((await anext(outputs))["execution_count"])
            async for _ in outputs:
                pass
    assert numbers == [1, 2, 3]


async def test_variables_functions_and_imports_stay(sandbox: Sandbox, context: str) -> None:
    await sandbox.execute("import math\nx = 20\ndef double(n): return 2 * n", context_id=context)
    assert one(await sandbox.execute("double(x) + math.floor(2.5)", context_id=context), "result")["text"] == "42"


async def test_the_default_context_is_one_for_all_who_name_none(sandbox: Sandbox) -> None:
    await sandbox.execute("shared_by_default = 7")
    assert one(await sandbox.execute("shared_by_default", language="python"), "result")["text"] == "7"
    assert one(await sandbox.execute("import os; os.getcwd()"), "result")["text"] == "/home/user"


async def test_contexts_do_not_see_each_other(sandbox: Sandbox, context: str) -> None:
    await sandbox.execute("mine = 1", context_id=context)
    other = await sandbox.new_context()
    assert one(await sandbox.execute("mine", context_id=other), "error")["name"] == "NameError"


async def test_an_error_has_name_value_and_traceback(sandbox: Sandbox, context: str) -> None:
    said = await sandbox.execute("print('before')\n1 / 0", context_id=context)
    error = one(said, "error")
    assert error["name"] == "ZeroDivisionError"
    assert error["value"] == "division by zero"
    assert isinstance(error["traceback"], str) and "ZeroDivisionError" in error["traceback"]
    assert text_of(said) == "before\n"
    assert one(await sandbox.execute("'and on'", context_id=context), "result")["text"] == "and on"


async def test_a_syntax_error_is_an_error_like_any_other(sandbox: Sandbox, context: str) -> None:
    assert one(await sandbox.execute("def", context_id=context), "error")["name"] == "SyntaxError"


async def test_standard_error_is_told_from_standard_output(sandbox: Sandbox, context: str) -> None:
    said = await sandbox.execute("import sys\nprint('out')\nprint('err', file=sys.stderr)", context_id=context)
    assert (text_of(said, "stdout"), text_of(said, "stderr")) == ("out\n", "err\n")


async def test_output_comes_while_the_code_runs(sandbox: Sandbox, context: str) -> None:
    code = "import os, time\nprint('first', flush=True)\nwhile not os.path.exists('/tmp/go_on'): time.sleep(0.01)"
    async with aclosing(sandbox.outputs(code, context_id=context)) as outputs:
        async for output in outputs:
            if output["type"] == "stdout":
                await sandbox.shell("touch /tmp/go_on")
    await sandbox.shell("rm /tmp/go_on")


async def test_what_subprocesses_print_belongs_to_the_execution_that_ran_them(sandbox: Sandbox, context: str) -> None:
    for number in range(5):
        code = f"import subprocess\nsubprocess.run('echo out {number}; echo err >&2', shell=True)\n!echo bang {number}"
        said = await sandbox.execute(code, context_id=context)
        assert sorted(text_of(said).splitlines()) == [f"bang {number}", f"out {number}"]
        assert text_of(said, "stderr") == "err\n"


async def test_big_output_is_complete_and_comes_in_small_lines(sandbox: Sandbox, context: str) -> None:
    said = await sandbox.execute("print('x' * 5_000_000)\nprint('end')", context_id=context)
    assert text_of(said) == "x" * 5_000_000 + "\nend\n"
    assert max(len(output["text"]) for output in said) <= 1 << 16


async def test_many_small_outputs_are_all_there(sandbox: Sandbox, context: str) -> None:
    said = await sandbox.execute("for n in range(3000): display(n)", context_id=context)
    assert [output["text"] for output in said] == [str(n) for n in range(3000)]


async def test_a_slow_reader_holds_the_program_up_and_misses_nothing(sandbox: Sandbox, context: str) -> None:
    code = "for n in range(300): print(str(n).zfill(9), 'y' * 100_000)"
    lines = []
    async with aclosing(sandbox.outputs(code, context_id=context)) as outputs:
        async for output in outputs:
            if output["type"] == "stdout":
                if not lines:
                    await asyncio.sleep(1)
                lines.append(output["text"])
    assert [line.split()[0] for line in "".join(lines).splitlines()] == [str(n).zfill(9) for n in range(300)]


async def test_unicode_comes_through_as_ascii(sandbox: Sandbox, context: str) -> None:
    said = await sandbox.execute("print('Grüße, 世界 🌍')\n'ñ'", context_id=context)
    assert text_of(said) == "Grüße, 世界 🌍\n"
    assert one(said, "result")["text"] == "ñ"


@pytest.mark.parametrize(
    ("code", "text"),
    [("'plain'", "plain"), ('"it\'s"', "it's"), ("''", ""), ("'\"'", '"'), ("[1, 'a']", "[1, 'a']"), ("b'x'", "b'x'")],
)
async def test_one_pair_of_quotes_around_a_text_goes(sandbox: Sandbox, code: str, text: str) -> None:
    assert one(await sandbox.execute(code), "result")["text"] == text


async def test_long_sequences_are_not_cut(sandbox: Sandbox) -> None:
    result = one(await sandbox.execute("list(range(5000))"), "result")
    assert json.loads(result["text"]) == list(range(5000))
    assert result["json"] == list(range(5000))


async def test_indented_code_runs(sandbox: Sandbox) -> None:
    assert one(await sandbox.execute("\n    y = 3\n    y\n    "), "result")["text"] == "3"


async def test_await_may_stand_at_the_top(sandbox: Sandbox) -> None:
    code = "import asyncio\nasync def later():\n    await asyncio.sleep(0.01)\n    return 5\nawait later()"
    assert one(await sandbox.execute(code), "result")["text"] == "5"


async def test_input_is_refused_rather_than_waited_for(sandbox: Sandbox) -> None:
    assert one(await sandbox.execute("input('name? ')"), "error")["name"] == "StdinNotImplementedError"


# Environment


async def test_the_sandboxs_variables_are_there(sandbox: Sandbox) -> None:
    assert one(await sandbox.execute("import os; os.environ['FROM_SANDBOX']"), "result")["text"] == "yes"


@pytest.mark.parametrize("language", ["python", "javascript", "bash"])
async def test_variables_of_a_call_are_for_that_call_alone(sandbox: Sandbox, language: str) -> None:
    show = {
        "python": "import os; print(os.environ.get('FOO', 'none'), os.environ['FROM_SANDBOX'])",
        "javascript": "console.log(process.env.FOO ?? 'none', process.env.FROM_SANDBOX)",
        "bash": "echo ${FOO:-none} $FROM_SANDBOX",
    }[language]
    env = {"FOO": 'it\'s "here"', "FROM_SANDBOX": "no"}
    assert text_of(await sandbox.execute(show, language=language, env_vars=env)) == 'it\'s "here" no\n'
    assert text_of(await sandbox.execute(show, language=language)) == "none yes\n"


async def test_variables_of_a_call_go_also_when_the_call_fails(sandbox: Sandbox) -> None:
    await sandbox.execute("1 / 0", env_vars={"LEFT_OVER": "yes"})
    assert text_of(await sandbox.execute("import os; print(os.environ.get('LEFT_OVER'))")) == "None\n"


# Contexts


async def test_default_contexts_are_listed_and_a_new_one_is_last(sandbox: Sandbox) -> None:
    before = (await sandbox.call("GET", "/contexts")).json
    assert [context["language"] for context in before][:2] == ["python", "javascript"]
    assert before[0]["cwd"] == "/home/user"
    made = (await sandbox.call("POST", "/contexts", {})).json
    assert {key: made[key] for key in ("language", "cwd")} == {"language": "python", "cwd": "/home/user"}
    assert (await sandbox.call("GET", "/contexts")).json == [*before, made]


async def test_a_context_has_its_own_directory_which_is_made_if_need_be(sandbox: Sandbox) -> None:
    context = await sandbox.new_context(cwd="/home/user/new/folder")
    said = await sandbox.execute("import os; os.getcwd()", context_id=context)
    assert one(said, "result")["text"] == "/home/user/new/folder"


async def test_a_directory_that_cannot_be_made_is_an_error(sandbox: Sandbox) -> None:
    refused = await sandbox.call("POST", "/contexts", {"cwd": "/proc/nowhere"})
    assert refused.status == 500
    assert "/proc/nowhere" in refused.text


async def test_a_directory_that_may_not_be_entered_is_an_error_at_once(fresh: Sandbox) -> None:
    await fresh.shell("mkdir -m 700 -p /srv/private && chown root: /srv/private", user="root")
    if "denied" not in await fresh.shell("cd /srv/private 2>&1; true"):
        pytest.skip("root and user are one here")
    begun = time.monotonic()
    for language in ("python", "bash", "javascript"):
        refused = await fresh.call("POST", "/contexts", {"cwd": "/srv/private", "language": language})
        assert refused.status == 500
        assert "/srv/private cannot be used" in refused.text and "may not enter" in refused.text
    assert time.monotonic() - begun < 30, "not only when the start has timed out"


async def test_a_kernel_that_dies_while_it_starts_is_an_error_at_once(fresh: Sandbox) -> None:
    startup = "~/.ipython/profile_default/startup"
    await fresh.shell(f"mkdir -p {startup} && echo 'import os; os._exit(3)' > {startup}/00-die.py")
    begun = time.monotonic()
    refused = await fresh.call("POST", "/contexts", {})
    assert (refused.status, refused.text) == (500, "The Python kernel did not start: its kernel ended with exit code 3")
    assert time.monotonic() - begun < 30, "not only when the start has timed out"


async def test_a_removed_context_is_gone(sandbox: Sandbox) -> None:
    context = await sandbox.new_context()
    assert (await sandbox.call("DELETE", f"/contexts/{context}")).status == 200
    assert (await sandbox.call("DELETE", f"/contexts/{context}")).status == 404
    refused = await sandbox.call("POST", "/execute", {"code": "1", "context_id": context})
    assert (refused.status, refused.text) == (404, f"Context {context} not found")


async def test_a_restarted_context_has_forgotten(sandbox: Sandbox, context: str) -> None:
    await sandbox.execute("x = 1", context_id=context)
    assert (await sandbox.call("POST", f"/contexts/{context}/restart")).status == 200
    assert one(await sandbox.execute("x", context_id=context), "error")["name"] == "NameError"
    assert (await sandbox.call("POST", "/contexts/nobody/restart")).status == 404


async def test_a_restart_in_the_middle_is_told_to_whoever_waits(sandbox: Sandbox, context: str) -> None:
    async with aclosing(sandbox.outputs("import time; time.sleep(300)", context_id=context)) as outputs:
        await anext(outputs)
        await sandbox.call("POST", f"/contexts/{context}/restart")
        rest = [output async for output in outputs if output["type"] != "keepalive"]
    assert [output["type"] for output in rest] == ["error", "end_of_execution"]
    assert (rest[0]["name"], rest[0]["value"]) == ("ContextRestarting", "Context was restarted")


async def test_a_language_or_a_context_but_not_both(sandbox: Sandbox, context: str) -> None:
    refused = await sandbox.call("POST", "/execute", {"code": "1", "context_id": context, "language": "python"})
    assert refused.status == 400


async def test_a_language_without_a_kernel_is_a_clear_error(sandbox: Sandbox) -> None:
    for body in ({"language": "cobol"}, {"language": "cobol", "code": "1"}):
        refused = await sandbox.call("POST", "/execute" if "code" in body else "/contexts", body)
        assert refused.status == 500
        assert "cobol" in refused.text
    assert "cobol" not in [context["language"] for context in (await sandbox.call("GET", "/contexts")).json]


@pytest.mark.parametrize(("language", "program"), [("r", "R"), ("java", "jshell")], ids=["r", "java"])
async def test_a_language_whose_addon_is_not_installed_says_which_command_installs_it(
    sandbox: Sandbox, language: str, program: str
) -> None:
    if await sandbox.shell(f"command -v {program} || true"):
        pytest.skip(f"this machine has {program} to show in a sandbox")
    refused = await sandbox.call("POST", "/execute", {"language": language, "code": "1"})
    assert refused.status == 500
    assert f"`paddock addon install {language}`" in refused.text and "sudo apt-get" in refused.text
    assert language not in [context["language"] for context in (await sandbox.call("GET", "/contexts")).json]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"code": 5}', b'{"code": "1", "env_vars": {"A": 1}}'])
async def test_nonsense_is_refused(sandbox: Sandbox, body: bytes) -> None:
    async with sandbox.use() as use:
        connection = await sandbox.context.code._dial(use)
        head = f"POST /execute HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        await connection.write(head + body)
        assert (await connection.read()).startswith(b"HTTP/1.1 400 ")
        await connection.close()


async def test_an_unknown_route_is_not_found(sandbox: Sandbox) -> None:
    assert (await sandbox.call("GET", "/nothing")).status == 404


# One at a time


async def test_one_execution_at_a_time_in_a_context(sandbox: Sandbox, context: str) -> None:
    code = "import time\nbusy = globals().get('busy', 0) + 1\ntime.sleep(0.05)\nprint(busy)\nbusy -= 1"
    said = await asyncio.gather(*(sandbox.execute(code, context_id=context) for _ in range(5)))
    assert [text_of(each) for each in said] == ["1\n"] * 5


async def test_contexts_run_at_the_same_time(sandbox: Sandbox) -> None:
    first, second = await sandbox.new_context(), await sandbox.new_context()
    wait = "import os, time\nopen('/tmp/{0}', 'w')\nwhile not os.path.exists('/tmp/{1}'): time.sleep(0.01)\n'met'"
    said = await asyncio.gather(
        sandbox.execute(wait.format("a", "b"), context_id=first),
        sandbox.execute(wait.format("b", "a"), context_id=second),
    )
    assert [one(each, "result")["text"] for each in said] == ["met", "met"]


@pytest.mark.slow
async def test_a_silent_execution_is_kept_alive(sandbox: Sandbox, context: str) -> None:
    said = [output async for output in sandbox.outputs("import time; time.sleep(6)", context_id=context)]
    assert [output["type"] for output in said] == ["number_of_executions", "keepalive", "end_of_execution"]
