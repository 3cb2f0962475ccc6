"""What only the fake provider promises: survival of a killed server, and a clean end of everything."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock import errors
from paddock.clock import ManualClock
from paddock.machine.base import ProcessStatus
from paddock.providers.base import SandboxSpec
from paddock.providers.fake import FakeProvider
from tests.conformance.shell import Shell
from tests.support.waiting import PATIENCE_S, until

SPEC = SandboxSpec("tester_0000000a", "key", "owner", "tester", "host")


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[FakeProvider]:
    made = FakeProvider(tmp_path / "fake")
    await made.start()
    yield made
    for found in await made.list():
        await made.delete(found.sandbox_id)


@pytest.fixture
async def shell(provider: FakeProvider) -> Shell:
    await provider.create(SPEC)
    return Shell(await provider.attach(SPEC.sandbox_id))


def keepers(home: Path) -> list[int]:
    """The keepers of sandboxes below this folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            below = (process / "cwd").readlink().is_relative_to(home)
            if below and b"keeper.main" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


async def gone(home: Path) -> bool:
    return await until(lambda: not keepers(home))


def run_server(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A server process of its own, that may die in the middle."""
    head = """
        import asyncio, os, signal, sys
        from pathlib import Path
        from paddock.machine.base import ProcessSpec, TerminalSize
        from paddock.providers.base import SandboxSpec
        from paddock.providers.fake import FakeProvider, FaultKind, Faults
        SPEC = SandboxSpec("tester_0000000a", "key", "owner", "tester", "host")
    """
    code = textwrap.dedent(head) + textwrap.dedent(script)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=environment,
    )


async def test_a_command_outlives_a_server_that_was_killed(provider: FakeProvider, tmp_path: Path) -> None:
    killed = run_server(
        """
        async def main():
            provider = FakeProvider(Path(sys.argv[1]))
            await provider.start()
            await provider.create(SPEC)
            machine = await provider.attach(SPEC.sandbox_id)
            script = "echo before; while [ ! -e go ]; do sleep 0.01; done; read x; echo after $x; exit 3"
            await machine.spawn(ProcessSpec("p_1", ["sh", "-c", script], stdin=True))
            await machine.spawn(ProcessSpec("p_2", ["sh", "-c", "read x; echo typed $x"], terminal=TerminalSize()))
            os.kill(os.getpid(), signal.SIGKILL)
        asyncio.run(main())
        """,
        tmp_path / "fake",
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    shell = Shell(await provider.attach(SPEC.sandbox_id))
    await shell.until("p_1", b"before")
    await shell.put("/workspace/go", "")
    await shell.machine.write_stdin("p_1", b"word\n")
    ran = await shell.finish("p_1")
    assert (ran.code, ran.out) == (3, b"before\nafter word\n")
    await shell.machine.write_stdin("p_2", b"key\n")
    assert b"typed key" in (await shell.finish("p_2")).out


async def test_many_first_commands_at_once_start_one_keeper(
    provider: FakeProvider, shell: Shell, tmp_path: Path
) -> None:
    others = [Shell(await FakeProvider(tmp_path / "fake").attach(SPEC.sandbox_id)) for _ in range(4)]
    ran = await asyncio.gather(*(one.run("readlink /proc/self/ns/pid") for one in [shell, *others]))
    assert len({one.text for one in ran}) == 1
    assert len(keepers(tmp_path)) == 1


async def test_deleting_leaves_no_process_and_no_folder(provider: FakeProvider, shell: Shell, tmp_path: Path) -> None:
    await shell.start("sleep 1000 & setsid sleep 1000 & exec sleep 1000")
    await provider.delete(SPEC.sandbox_id)
    assert keepers(tmp_path) == []
    assert list((tmp_path / "fake").iterdir()) == []


async def test_a_delete_cut_short_is_finished_at_the_next_start(
    provider: FakeProvider, shell: Shell, tmp_path: Path
) -> None:
    await shell.start("sleep 1000")
    home = tmp_path / "fake"
    (home / SPEC.sandbox_id).rename(home / f".deleting-{SPEC.sandbox_id}-0000")
    assert await provider.list() == []
    await FakeProvider(home).start()
    assert list(home.iterdir()) == []
    assert keepers(tmp_path) == []


async def test_a_folder_that_resists_is_deleted_all_the_same(provider: FakeProvider, shell: Shell) -> None:
    deep = "import os\nfor i in range(1500):\n    os.mkdir('d')\n    os.chdir('d')"
    await shell.run(f'mkdir -p a/b; touch a/b/c; chmod 000 a/b a; mkdir deep; cd deep; python3 -c "{deep}"')
    await provider.delete(SPEC.sandbox_id)
    assert await provider.inspect(SPEC.sandbox_id) is None


async def test_what_a_dead_keeper_left_is_lost_and_the_sandbox_goes_on(shell: Shell, tmp_path: Path) -> None:
    done = (await shell.run("echo kept; exit 3")).info
    process = await shell.start("echo some; sleep 1000")
    await shell.until(process, b"some")
    [keeper] = keepers(tmp_path)
    os.kill(keeper, signal.SIGKILL)
    info = await shell.machine.wait(process, PATIENCE_S)
    assert (info.status, info.exit_code) == (ProcessStatus.LOST, None)
    assert await shell.read(process) == b"some\n"
    assert await shell.machine.process(done.process_id) == done
    assert (await shell.run("ls -d /proc/[0-9]* | wc -l")).text in ("4", "5", "6")
    with pytest.raises(errors.ProcessEnded):
        await shell.machine.signal(process, signal.SIGTERM)
    with pytest.raises(errors.ProcessEnded):
        await shell.machine.write_stdin(await _ended_with_stdin(shell), b"x")


async def _ended_with_stdin(shell: Shell) -> str:
    process = await shell.start("true", stdin=True)
    await shell.finish(process)
    return process


async def test_a_user_who_kills_everything_only_harms_himself(shell: Shell) -> None:
    process = await shell.start("echo up; sleep 1000")
    await shell.until(process, b"up")
    await shell.start("kill -9 -1")
    assert not (await shell.machine.wait(process, PATIENCE_S)).running
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                assert (await shell.run("echo again")).text == "again"
                break
            except errors.ProviderUnavailable:
                await asyncio.sleep(0.01)


async def test_a_removed_folder_ends_its_keeper(shell: Shell, tmp_path: Path) -> None:
    await shell.start("sleep 1000")
    assert keepers(tmp_path)
    (tmp_path / "fake" / SPEC.sandbox_id / "sandbox.json").unlink()
    assert await gone(tmp_path)


async def test_without_bubblewrap_everything_works_but_commands(tmp_path: Path) -> None:
    provider = FakeProvider(tmp_path / "fake", bubblewrap="/bin/false")
    await provider.start()
    await provider.create(SPEC)
    shell = Shell(await provider.attach(SPEC.sandbox_id))
    await shell.put("/workspace/file", "x")
    with pytest.raises(errors.ProviderUnavailable, match="unprivileged_userns"):
        await shell.start(f"touch {tmp_path}/ran-on-the-host")
    assert not (tmp_path / "ran-on-the-host").exists()
    await provider.pause(SPEC.sandbox_id)
    await provider.resume(SPEC.sandbox_id)
    await provider.delete(SPEC.sandbox_id)
    assert await provider.list() == []


async def test_a_users_variables_reach_no_program_on_the_host(shell: Shell, tmp_path: Path) -> None:
    """LD_PRELOAD would make nsenter, on the host, load a library that the sandbox wrote."""
    ran = await shell.run("echo $LD_PRELOAD", env={"LD_PRELOAD": "/workspace/evil.so", "PATH": "/usr/bin"})
    assert ran.text == "/workspace/evil.so"
    log = (tmp_path / "fake" / SPEC.sandbox_id / "keeper" / "log").read_text()
    assert "evil.so" not in log


async def test_a_record_that_cannot_be_read_is_unknown_not_gone(provider: FakeProvider, tmp_path: Path) -> None:
    await provider.create(SPEC)
    record = tmp_path / "fake" / SPEC.sandbox_id / "sandbox.json"
    good = record.read_text()
    record.write_text("{")
    with pytest.raises(errors.ProviderUnavailable):
        await provider.inspect(SPEC.sandbox_id)
    with pytest.raises(errors.ProviderUnavailable):
        await provider.list()
    record.write_text(good)


async def test_a_folder_that_cannot_be_read_is_unknown_not_empty(tmp_path: Path) -> None:
    with pytest.raises(errors.ProviderUnavailable):
        await FakeProvider(tmp_path / "never started").list()


async def test_times_are_the_injected_clocks(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000.0)
    provider = FakeProvider(tmp_path / "fake", clock)
    await provider.start()
    assert (await provider.create(SPEC)).created_at == 1_000_000.0
    shell = Shell(await provider.attach(SPEC.sandbox_id))
    info = (await shell.run("sleep 0.05")).info
    assert info.started_at == 1_000_000.0
    assert info.ended_at is not None and 0.05 <= info.ended_at - info.started_at < 10
    assert (await shell.machine.stats()).at == 1_000_000.0
    await provider.delete(SPEC.sandbox_id)


async def test_the_spool_is_as_small_as_asked_for(tmp_path: Path) -> None:
    provider = FakeProvider(tmp_path / "fake", spool_limit=1000)
    await provider.start()
    await provider.create(SPEC)
    shell = Shell(await provider.attach(SPEC.sandbox_id))
    ran = await shell.run("seq -f %09.0f 1 1000")
    assert ran.info.stdout_size == 10_000
    assert 1000 <= len(ran.out) <= 2000
    assert ran.out.endswith(b"000001000\n")
    await provider.delete(SPEC.sandbox_id)


async def test_nothing_is_left_open(provider: FakeProvider, shell: Shell) -> None:
    async def everything() -> None:
        await shell.run("echo x")
        await shell.put("/workspace/a/b", "x")
        await shell.get("/workspace/a/b")
        await shell.machine.list_directory("/workspace", 5)
        async with shell.machine.watch("/workspace", recursive=True) as events:
            await shell.put("/workspace/c", "x")
            await anext(events)
        await shell.machine.wait(await shell.start("sleep 1000"), 0.01)
        with pytest.raises(errors.Conflict):
            await shell.machine.dial(9)
        await shell.machine.stats()
        await provider.list()

    await everything()
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        await everything()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
