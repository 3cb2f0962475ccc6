"""Whatever of the interpreter is killed, the next request works."""

from __future__ import annotations

import asyncio

import pytest

from paddock.models import CodeStatus
from tests.interpreter.place import Sandbox, one

RECOVERY_SECONDS = 30


async def works(sandbox: Sandbox) -> bool:
    async with asyncio.timeout(RECOVERY_SECONDS):
        return (await sandbox.run("x = 1; x")).text == "1"


@pytest.mark.parametrize(
    "pattern",
    ["[j]upyter-server", pytest.param("[j]upyter server", marks=pytest.mark.exhaustive), "[u]vicorn main:app"],
)
async def test_killed_by_the_names_that_e2bs_have(fresh: Sandbox, pattern: str) -> None:
    await fresh.execute("before = 1")
    await fresh.shell(f"pkill -9 -f '{pattern}'", user="root")
    assert await works(fresh)


async def test_the_server_comes_back_by_itself_for_those_inside(fresh: Sandbox) -> None:
    await fresh.execute("1")
    await fresh.shell("pkill -9 -f '[u]vicorn main:app'", user="root")
    ask = "import urllib.request; print(urllib.request.urlopen('http://0.0.0.0:49999/health', timeout=60).status)"
    assert await fresh.shell(f'python3 -c "{ask}"') == "200\n"


async def test_all_of_it_killed_at_once(fresh: Sandbox) -> None:
    await fresh.execute("1")
    await fresh.shell("pkill -9 -f '[p]addock_interpreter'", user="root")
    assert await works(fresh)
    labels = [process.label for process in await fresh.context.commands.list_processes(fresh.who, fresh.sandbox_id)]
    starts = [label.split(":")[0] for label in labels if label.startswith("service ")]
    assert starts == ["service code-interpreter #1", "service code-interpreter #2"]


async def test_whoever_waits_when_the_fork_server_is_killed_is_told(fresh: Sandbox) -> None:
    await fresh.execute("1")
    code = "import time; open('/tmp/begun', 'w').close(); time.sleep(300)"
    waiting = asyncio.create_task(fresh.run(code, timeout=60))
    begun = "until [ -e /tmp/begun ]; do sleep 0.05; done"
    await fresh.shell(f"{begun}; pkill -9 -f '[j]upyter-server'", user="root")
    async with asyncio.timeout(RECOVERY_SECONDS):
        result = await waiting
    assert result.status is CodeStatus.FAILED
    assert result.error is not None and result.error.name == "ContextRestarting"
    assert await works(fresh)


async def test_a_kernel_whose_fork_server_is_killed_while_it_starts_is_started_again(fresh: Sandbox) -> None:
    await fresh.execute("1")
    startup = "import os, time\nwhile os.path.exists('/tmp/hold'):\n open('/tmp/held', 'w'); time.sleep(0.05)\n"
    folder = "$HOME/.ipython/profile_default/startup"
    await fresh.shell(f'mkdir -p {folder} && printf "%s" "{startup}" > {folder}/hold.py && touch /tmp/hold')
    waiting = asyncio.create_task(fresh.new_context())
    held = "until [ -e /tmp/held ]; do sleep 0.05; done"
    await fresh.shell(f"{held}; rm /tmp/hold; pkill -9 -f '[j]upyter-server'", user="root")
    context = await waiting
    assert one(await fresh.execute("6 * 7", context_id=context), "result")["text"] == "42"


async def test_no_process_of_the_interpreter_outlives_its_supervisor(fresh: Sandbox) -> None:
    await fresh.execute("1")
    await fresh.execute("1", language="bash")
    await fresh.execute("1", language="javascript")
    await fresh.shell("pkill -9 -f 'main__.py [s]upervisor'", user="root")
    gone = "for n in $(seq 100); do pgrep -f '[p]addock_interpreter' > /dev/null || exit 0; sleep 0.05; done; exit 1"
    await fresh.shell(gone)


async def test_a_server_that_is_restarted_finds_the_interpreter_and_what_it_remembers(fresh: Sandbox) -> None:
    await fresh.run("remembered = 5")
    async with fresh.use() as use:
        assert await fresh.context.services.reach(use, 49999)
    assert (await fresh.run("remembered")).text == "5"


async def test_pause_and_resume_keep_what_code_defined(fresh: Sandbox) -> None:
    await fresh.run("remembered = 5")
    await fresh.context.controller.pause(fresh.who, fresh.sandbox_id)
    assert (await fresh.run("remembered")).text == "5"


async def test_twenty_contexts_fit_into_a_sandbox_of_ordinary_size(fresh: Sandbox) -> None:
    contexts = await asyncio.gather(*(fresh.new_context() for _ in range(20)))
    for number, context in enumerate(contexts):
        await fresh.execute(f"mine = {number}", context_id=context)
    said = await asyncio.gather(*(fresh.execute("mine", context_id=context) for context in contexts))
    assert [one(each, "result")["text"] for each in said] == [str(number) for number in range(20)]
