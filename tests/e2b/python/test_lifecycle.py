"""Pause and resume, the end of a sandbox's time, and what happens to those who are connected."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from waiting import wait_until


def pause(sandbox):
    """The name that all versions have."""
    sandbox.beta_pause()


def test_a_paused_sandbox_does_not_run(create):
    made = create()
    pause(made)
    assert made.is_running() is False
    assert made.get_info().state.value == "paused"


def test_pause_has_a_plain_name(create, sdk):
    made = create()
    made.pause()
    assert sdk.Sandbox.get_info(made.sandbox_id).state.value == "paused"


def test_pause_tells_whether_it_did(create, sdk):
    made = create()
    if (first := made.pause()) is None and not sdk.newest:
        pytest.skip("this version does not tell")
    assert first is True
    assert made.pause() is False
    assert made.get_info().state.value == "paused"


def test_pausing_nobody_is_not_found(sdk):
    with pytest.raises(sdk.error("SandboxNotFoundException", "NotFoundException")):
        sdk.Sandbox.beta_pause("inosuchsandbox0000000")


def test_connect_resumes_with_files_and_processes(create, sdk):
    made = create()
    made.files.write("/home/user/note", "kept")
    count = "while true; do echo x >> /tmp/count; sleep 0.05; done"
    process = made.commands.run(count, background=True, timeout=0)
    wait_until(lambda: made.files.exists("/tmp/count"))
    boot = made.files.read("/proc/sys/kernel/random/boot_id")
    pause(made)
    found = sdk.Sandbox.connect(made.sandbox_id, timeout=120)
    assert found.is_running()
    assert found.files.read("/home/user/note") == "kept"
    assert found.files.read("/proc/sys/kernel/random/boot_id") == boot
    assert process.pid in [each.pid for each in found.commands.list()]
    before = found.files.read("/tmp/count")
    wait_until(lambda: len(found.files.read("/tmp/count")) > len(before))


def test_the_old_handle_works_after_a_resume(create):
    made = create()
    pause(made)
    made.connect()
    assert made.commands.run("echo again").stdout == "again\n"


def test_a_resumed_sandbox_has_new_time(create, sdk):
    made = create(timeout=60)
    pause(made)
    sdk.Sandbox.connect(made.sandbox_id, timeout=600)
    assert made.get_info().end_at - datetime.now(UTC) > timedelta(seconds=500)


def test_a_paused_sandbox_can_be_killed(create, sdk):
    made = create()
    pause(made)
    assert made.kill() is True
    with pytest.raises(sdk.error("SandboxNotFoundException", "NotFoundException")):
        sdk.Sandbox.connect(made.sandbox_id)


def test_a_command_in_a_paused_sandbox_says_so(create, sdk):
    made = create()
    pause(made)
    with pytest.raises(sdk.error("TimeoutException"), match="not found"):
        made.commands.run("true")


def test_a_pause_without_memory_boots_anew(create, sdk):
    assert sdk.SnapshotMode
    made = create()
    made.files.write("/home/user/note", "kept")
    boot = made.files.read("/proc/sys/kernel/random/boot_id")
    made.commands.run("sleep 600", background=True, timeout=0)
    made.pause(mode="filesystem")
    made.connect()
    assert made.files.read("/home/user/note") == "kept"
    assert made.files.read("/proc/sys/kernel/random/boot_id") != boot
    assert made.commands.list() == []


def test_a_resume_may_ask_for_a_boot(create, sdk):
    made = create()
    boot = made.files.read("/proc/sys/kernel/random/boot_id")
    made.pause()
    found = sdk.Sandbox.connect(made.sandbox_id, on_resume="reboot")
    assert found.files.read("/proc/sys/kernel/random/boot_id") != boot


def test_a_sandbox_may_pause_at_the_end_of_its_time(create):
    made = create(timeout=600, lifecycle={"on_timeout": "pause"})
    assert made.get_info().lifecycle["on_timeout"] == "pause"
    made.set_timeout(0)
    wait_until(lambda: made.get_info().state.value == "paused")
    made.connect()
    made.set_timeout(0)
    wait_until(lambda: made.get_info().state.value == "paused")


def test_a_request_wakes_a_sandbox_that_says_so(create):
    made = create(timeout=600, lifecycle={"on_timeout": "pause", "auto_resume": True})
    made.files.write("/home/user/note", "kept")
    made.set_timeout(0)
    wait_until(lambda: made.get_info().state.value == "paused")
    assert made.files.read("/home/user/note") == "kept"
    assert made.get_info().state.value == "running"
    assert made.get_info().end_at - datetime.now(UTC) > timedelta(seconds=60)


def test_a_request_does_not_wake_one_that_does_not(create):
    made = create(timeout=600, lifecycle={"on_timeout": "pause", "auto_resume": False})
    made.set_timeout(0)
    wait_until(lambda: made.get_info().state.value == "paused")
    assert made.is_running() is False
    assert made.get_info().state.value == "paused"


def test_a_timeout_may_pause_without_memory(create, sdk):
    assert sdk.SnapshotMode
    made = create(timeout=600, lifecycle={"on_timeout": {"action": "pause", "mode": "filesystem"}})
    boot = made.files.read("/proc/sys/kernel/random/boot_id")
    made.set_timeout(0)
    wait_until(lambda: made.get_info().state.value == "paused")
    made.connect()
    assert made.files.read("/proc/sys/kernel/random/boot_id") != boot


def test_who_follows_a_command_hears_of_the_kill(create, sdk):
    made = create()
    handle = made.commands.run("sleep 600", background=True, timeout=0)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(handle.wait)
        made.kill()
        with pytest.raises((sdk.error("SandboxException"), Exception), match=r"."):
            waiting.result(20)


def test_who_follows_a_command_of_a_killed_sandbox_is_told_why(create, sdk):
    wanted = sdk.SandboxNotRunningException
    made = create()
    handle = made.commands.run("sleep 600", background=True, timeout=0)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(handle.wait)
        made.kill()
        with pytest.raises(wanted):
            waiting.result(20)


def test_metrics_come_within_half_a_minute(create, sdk):
    made = create()
    found = wait_until(lambda: made.get_metrics())
    sample = found[-1]
    assert sample.cpu_count >= 1 and sample.cpu_used_pct >= 0
    # Of the sandbox: a host has other sizes, and more in use.
    assert (sample.mem_total, sample.disk_total) == (512 << 20, 1024 << 20)
    assert 0 < sample.mem_used < sample.mem_total
    assert 0 <= sample.disk_used < sample.disk_total
    by_id = sdk.Sandbox.get_metrics(made.sandbox_id)
    assert len(by_id) >= len(found)


def test_metrics_of_a_time_before_the_sandbox_are_none(sandbox):
    start = sandbox.get_info().started_at
    assert sandbox.get_metrics(start=start - timedelta(hours=2), end=start - timedelta(hours=1)) == []


def test_metrics_of_nobody_are_not_found(sdk):
    with pytest.raises(sdk.error("SandboxException"), match=r"404|not found"):
        sdk.Sandbox.get_metrics("inosuchsandbox0000000")
