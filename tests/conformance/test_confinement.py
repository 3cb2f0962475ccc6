"""No path leads out of the sandbox: not by symlink, not by ``..``, not by a race."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from paddock import errors
from tests.conformance.conftest import Installation
from tests.conformance.shell import Shell
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the host that anyone there may read."""
    path = tmp_path / "secret"
    path.write_text("the host's secret")
    path.chmod(0o644)
    return path


async def test_a_symlink_to_a_file_of_the_host_leads_nowhere(shell: Shell, secret: Path) -> None:
    await shell.run(f"ln -s {secret} link; ln -s {secret.parent} dir")
    with pytest.raises(errors.PathNotFound):
        await shell.get("/workspace/link")
    with pytest.raises(errors.PathNotFound):
        await shell.get("/workspace/dir/secret")
    with pytest.raises(errors.PathNotFound):
        await shell.machine.list_directory("/workspace/dir")
    assert b"secret" not in (await shell.run(f"cat {secret}")).out


async def test_an_absolute_symlink_is_resolved_inside(shell: Shell) -> None:
    await shell.run("echo 'inside:x:1::/:' > /tmp/marker; ln -s /tmp/marker link")
    assert await shell.get("/workspace/link") == b"inside:x:1::/:\n"
    await shell.run("ln -s /etc/passwd passwd")
    assert await shell.get("/workspace/passwd") == (await shell.run("cat /etc/passwd")).out


async def test_dots_in_a_symlink_stop_at_the_root(shell: Shell, secret: Path) -> None:
    up = "/".join([".."] * 30)
    await shell.run(f"ln -s {up}{secret} out; ln -s {up} root; ln -s {up}/workspace/file back; echo here > file")
    with pytest.raises(errors.PathNotFound):
        await shell.get("/workspace/out")
    assert await shell.get("/workspace/back") == b"here\n"
    assert "/workspace/root/workspace" in [
        entry.path for entry in await shell.machine.list_directory("/workspace/root")
    ]


@pytest.mark.parametrize("atomic", [True, False])
async def test_writing_through_a_symlink_stays_inside(shell: Shell, tmp_path: Path, atomic: bool) -> None:
    target = tmp_path / "planted"
    await shell.run(f"ln -s {target} link; mkdir -p real; ln -s ../workspace/real/file ok; ln -s real dir")
    with pytest.raises(errors.PathNotFound):
        await shell.put("/workspace/link", "x", atomic=atomic)
    assert not target.exists()
    await shell.put("/workspace/ok", "through", atomic=atomic)
    await shell.put("/workspace/dir/other", "too", atomic=atomic)
    assert (await shell.run("cat real/file real/other; readlink ok")).text == "throughtoo../workspace/real/file"


async def test_symlinks_in_circles_are_an_error(shell: Shell) -> None:
    await shell.run("ln -s b a; ln -s a b")
    with pytest.raises(errors.PathConflict):
        await shell.get("/workspace/a")
    with pytest.raises(errors.PathConflict):
        await shell.put("/workspace/a", "x")


async def test_magic_links_of_proc_lead_nowhere(shell: Shell, secret: Path) -> None:
    for link in (f"/proc/self/root{secret}", f"/proc/1/root{secret}", "/proc/self/fd/0"):
        await shell.run(f"ln -sfn {link} link")
        with pytest.raises(errors.PaddockError) as refused:
            await shell.get("/workspace/link")
        assert refused.value.status < 500


async def test_moving_and_removing_do_not_follow_out(shell: Shell, secret: Path) -> None:
    await shell.run(f"ln -s {secret.parent} dir; mkdir tree; ln -s {secret.parent} tree/dir; echo x > file")
    for attempt in (
        shell.machine.remove("/workspace/dir/secret"),
        shell.machine.move("/workspace/dir/secret", "/workspace/stolen"),
        shell.machine.move("/workspace/file", "/workspace/dir/planted"),
    ):
        with pytest.raises(errors.PathNotFound):
            await attempt
    await shell.machine.remove("/workspace/tree", recursive=True)
    await shell.machine.remove("/workspace/dir", recursive=True)
    assert secret.read_text() == "the host's secret"


async def test_a_race_between_directory_and_symlink_never_shows_the_host(shell: Shell, secret: Path) -> None:
    script = (
        f"mkdir real; echo inside > real/secret; ln -s {secret.parent} evil; cp -r real dir; echo up; "
        "while :; do mv -T dir old && mv -T evil dir && mv -T dir evil && mv -T old dir; done"
    )
    process = await shell.start(script)
    await shell.until(process, b"up")
    seen = set()
    async with asyncio.timeout(PATIENCE_S):
        for n in range(1500):
            try:
                seen.add(await shell.get("/workspace/dir/secret"))
            except errors.PaddockError as error:
                assert error.status < 500
            if n % 10 == 0:
                try:
                    await shell.put("/workspace/dir/planted", "x", atomic=False)
                except errors.PaddockError as error:
                    assert error.status < 500
    assert seen <= {b"inside\n"}
    assert not (secret.parent / "planted").exists()


async def test_commands_see_nothing_of_the_hosts_files_processes_or_network(shell: Shell, secret: Path) -> None:
    ran = await shell.run(
        f"ls -A /root /home /workspace {secret} 2>/dev/null; ls -d /proc/[0-9]* | wc -l; "
        "cat /proc/net/dev | tail -n +3 | cut -d: -f1; hostname"
    )
    assert "secret" not in ran.text
    lines = ran.text.splitlines()
    assert lines[-1] == "sandbox"
    assert lines[-2].strip() == "lo"
    assert int(lines[-3]) < 12


async def test_the_kernels_knobs_are_out_of_reach(shell: Shell) -> None:
    knobs = (
        "/proc/sys/kernel/core_pattern /proc/sys/kernel/hostname /proc/sysrq-trigger /sys/kernel /dev/mem /usr/bin/env"
    )
    assert (await shell.run(f"for knob in {knobs}; do test -w $knob && echo $knob; done")).text == ""
    # What stands under /dev/null is a device to whoever looks again.
    writable = "find /proc -not -path '/proc/[0-9]*' -writable -type f -exec test -f {} ';' -print 2>/dev/null"
    assert (await shell.run(writable)).text == ""
    assert (await shell.run("mount -t tmpfs none /tmp")).code != 0


async def test_two_sandboxes_share_nothing(shell: Shell, installation: Installation) -> None:
    other_spec = await installation.spec()
    await installation.provider.create(other_spec)
    other = Shell(await installation.provider.attach(other_spec.sandbox_id))
    await shell.put("/workspace/mine", "x")
    await shell.put("/tmp/mine", "x")
    sleeper = await shell.start("exec sleep 4711")
    assert (await shell.machine.process(sleeper)).running
    ran = await other.run("ls -A /workspace /tmp /home/user; cat /proc/*/cmdline | tr '\\0' ' '")
    assert "mine" not in ran.text
    assert "4711" not in ran.text
