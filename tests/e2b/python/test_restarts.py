"""The server dies and comes back in the middle of everything; what runs in the sandboxes does not care."""

import contextlib
from types import SimpleNamespace

import pytest
from waiting import wait_until


@pytest.fixture(scope="module")
def survivors(sdk, restart_server):
    """Sandboxes in all kinds of states, through one death of the server."""
    busy = sdk.Sandbox.create(timeout=600, metadata={"kept": "yes"})
    busy.files.write("/home/user/file", "kept")
    resting = sdk.Sandbox.create(timeout=600)
    resting.commands.run("sleep 600", background=True, timeout=0)
    resting.beta_pause()
    ending = sdk.Sandbox.create(timeout=3)
    state = SimpleNamespace(
        busy=busy,
        resting=resting,
        ending=ending,
        link=busy.download_url("/home/user/file"),
        waiting=busy.commands.run("read line; echo got $line", background=True, stdin=True, timeout=0),
        followed=busy.commands.run("sleep 600", background=True, timeout=0),
    )
    restart_server()
    yield state
    for each in (busy, resting, ending):
        each.kill()


def test_a_command_goes_on_and_is_found_again(survivors):
    busy, handle = survivors.busy, survivors.waiting
    with contextlib.suppress(Exception):
        handle.disconnect()
    assert handle.pid in [each.pid for each in busy.commands.list()]
    again = busy.commands.connect(handle.pid)
    busy.commands.send_stdin(handle.pid, "hello\n")
    assert again.wait().stdout == "got hello\n"


def test_a_follower_hears_that_the_line_is_cut(survivors, sdk):
    with pytest.raises(Exception, match=r"") as raised:
        survivors.followed.wait()
    assert not isinstance(raised.value, sdk.error("CommandExitException"))
    assert survivors.busy.is_running()


def test_old_handles_work_with_the_new_server(survivors, sdk):
    busy = survivors.busy
    assert busy.files.read("/home/user/file") == "kept"
    assert busy.download_url("/home/user/file") == survivors.link
    assert sdk.Sandbox.connect(busy.sandbox_id).get_info().metadata == {"kept": "yes"}


def test_a_paused_sandbox_is_found_by_the_new_server(survivors):
    assert survivors.resting.get_info().state.value == "paused"
    survivors.resting.connect()
    assert len(survivors.resting.commands.list()) == 1


def test_time_that_ends_while_the_server_is_gone_is_over_after(survivors):
    wait_until(lambda: not survivors.ending.is_running())
