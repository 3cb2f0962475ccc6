"""Code that is to stop, and kernels that do: what comes after works, whatever came before."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from tests.interpreter.place import Sandbox, one, text_of
from tests.support.waiting import PATIENCE_S

ENDLESS = {
    "python": "import time; time.sleep(300)",
    "python-loop": "while True: pass",
    "python-await": "import asyncio; await asyncio.sleep(300)",
    "javascript": "await new Promise((resolve) => setTimeout(resolve, 300_000))",
    "javascript-loop": "for (;;) {}",
    "bash": "sleep 300; echo not-reached",
    "bash-loop": "while true; do :; done",
}
REMEMBER = {
    "python": ("kept = 41", "print(kept + 1)"),
    "javascript": ("const kept = 41", "console.log(kept + 1)"),
    "bash": ("kept=42", "echo $kept"),
}


async def hang_up_after(sandbox: Sandbox, code: str, seconds: float, **fields: str) -> None:
    """As a client does whose own time is over."""

    async def read() -> None:
        async with aclosing(sandbox.outputs(code, **fields)) as outputs:
            async for _ in outputs:
                pass

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            await read()


@pytest.mark.parametrize("kind", list(ENDLESS))
async def test_whoever_hangs_up_interrupts_the_code_and_loses_nothing(sandbox: Sandbox, kind: str) -> None:
    language = kind.partition("-")[0]
    remember, recall = REMEMBER[language]
    context = await sandbox.new_context(language)
    await sandbox.execute(remember, context_id=context)
    await hang_up_after(sandbox, ENDLESS[kind], 0.5, context_id=context)
    async with asyncio.timeout(PATIENCE_S):
        assert text_of(await sandbox.execute(recall, context_id=context)) == "42\n"
    await sandbox.call("DELETE", f"/contexts/{context}")


async def test_a_client_of_three_seconds_on_a_sleep_of_three_hundred(sandbox: Sandbox) -> None:
    await hang_up_after(sandbox, "import time; time.sleep(300)", 3)
    async with asyncio.timeout(PATIENCE_S):
        assert one(await sandbox.execute("'works again'"), "result")["text"] == "works again"


async def test_hanging_up_while_waiting_for_a_turn_leaves_the_running_one_alone(sandbox: Sandbox, context: str) -> None:
    code = "import os, time\nwhile not os.path.exists('/tmp/enough'): time.sleep(0.01)\n'undisturbed'"
    running = asyncio.create_task(sandbox.execute(code, context_id=context))
    await asyncio.sleep(0.1)
    await hang_up_after(sandbox, "print('never')", 0.3, context_id=context)
    await sandbox.shell("touch /tmp/enough")
    assert one(await running, "result")["text"] == "undisturbed"
    await sandbox.shell("rm /tmp/enough")


async def test_code_that_catches_the_interrupt_is_interrupted_again(sandbox: Sandbox, context: str) -> None:
    stubborn = (
        "import time\n"
        "for n in range(3):\n"
        "    try:\n        time.sleep(300)\n    except KeyboardInterrupt:\n        pass\n"
    )
    await hang_up_after(sandbox, stubborn, 0.5, context_id=context)
    async with asyncio.timeout(PATIENCE_S):
        assert one(await sandbox.execute("n", context_id=context), "result")["text"] == "2"


async def test_an_interrupt_that_comes_too_late_hurts_nobody(sandbox: Sandbox, context: str) -> None:
    for _ in range(20):
        async with aclosing(sandbox.outputs("'quick'", context_id=context)) as outputs:
            await anext(outputs)  # and gone, while it ends by itself
    assert one(await sandbox.execute("'fine'", context_id=context), "result")["text"] == "fine"


@pytest.mark.parametrize(
    ("language", "code"),
    [("python", "import os; os._exit(3)"), ("javascript", "process.exit(3)"), ("bash", "exit 3")],
)
async def test_a_kernel_that_ends_is_told_and_replaced(sandbox: Sandbox, language: str, code: str) -> None:
    context = await sandbox.new_context(language)
    async with asyncio.timeout(PATIENCE_S):
        error = one(await sandbox.execute(code, context_id=context), "error")
    assert error["name"] == "ContextRestarting"
    assert "exit code 3" in error["value"]
    hello = {"python": "print('hello')", "javascript": "console.log('hello')", "bash": "echo hello"}[language]
    assert text_of(await sandbox.execute(hello, context_id=context)) == "hello\n"


async def test_a_kernel_that_is_killed_in_the_middle_is_told(sandbox: Sandbox, context: str) -> None:
    code = "import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(300)"
    said = []
    async with aclosing(sandbox.outputs(code, context_id=context)) as outputs:
        async for output in outputs:
            said.append(output)
            if output["type"] == "stdout":
                await sandbox.shell(f"kill -9 {output['text']}", user="root")
    assert [output["type"] for output in said[-3:]] == ["stdout", "error", "end_of_execution"]
    assert (said[-2]["name"], "SIGKILL" in said[-2]["value"]) == ("ContextRestarting", True)


async def test_code_that_ends_its_kernel_at_once_does_not_run_again(sandbox: Sandbox, context: str) -> None:
    code = "import os\nwith open('/tmp/runs', 'a') as file: file.write('x')\nos._exit(3)"
    await sandbox.execute(code, context_id=context)
    assert await sandbox.shell("cat /tmp/runs; rm /tmp/runs") == "x"


async def test_a_kernel_that_was_killed_between_two_executions_is_replaced(sandbox: Sandbox, context: str) -> None:
    pid = one(await sandbox.execute("import os; os.getpid()", context_id=context), "result")["text"]
    await sandbox.shell(f"kill -9 {pid}", user="root")
    async with asyncio.timeout(PATIENCE_S):
        assert one(await sandbox.execute("'new'", context_id=context), "result")["text"] == "new"


async def test_what_goes_on_in_the_background_is_not_held_up(sandbox: Sandbox, context: str) -> None:
    chatty = (
        "import threading, time\n"
        "done = threading.Event()\n"
        "def talk():\n"
        "    for n in range(100):\n        print('z' * 50_000, flush=True)\n"
        "    done.set()\n"
        "threading.Thread(target=talk).start()"
    )
    await sandbox.execute(chatty, context_id=context)
    said = [output async for output in sandbox.outputs("done.wait(20)", context_id=context)]
    assert one(said, "result")["text"] == "True"


async def test_background_jobs_of_bash_are_not_held_up(sandbox: Sandbox) -> None:
    context = await sandbox.new_context("bash")
    await sandbox.execute("(head -c 300000 /dev/zero | tr '\\0' 'a'; touch /tmp/through) &", context_id=context)
    wait = "while [ ! -e /tmp/through ]; do sleep 0.02; done; echo through"
    async with asyncio.timeout(PATIENCE_S):
        assert text_of(await sandbox.execute(wait, language="bash")) == "through\n"
