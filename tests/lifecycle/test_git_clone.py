"""A repository to start with: cloned once, or the create is undone with git's reason and none of the URL's secrets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paddock.ids import new_process_id
from paddock.lifecycle import git_clone
from paddock.lifecycle.git_clone import CloneFailed
from paddock.machine.base import Machine, ProcessSpec, Stream
from paddock.models import State
from paddock.store import sandboxes
from tests.support.leaks import a_secret
from tests.support.world import World

MAKE_REPOSITORY = """
git init -q /tmp/project && cd /tmp/project && echo hello > greeting && git add . &&
git -c user.name=t -c user.email=t@t commit -qm first
"""


async def shell(machine: Machine, command: str) -> str:
    process = ProcessSpec(new_process_id(), ["/bin/bash", "-c", command])
    await machine.spawn(process)
    ended = await machine.wait(process.process_id)
    output = await machine.read_output(process.process_id, Stream.STDOUT)
    assert ended.exit_code == 0
    return output.data.decode()


async def test_it_is_cloned_into_the_workspace_and_not_twice(small_world: World) -> None:
    sandbox_id = (await small_world.create()).sandbox.sandbox_id
    async with small_world.context.controller.use(small_world.alice, sandbox_id) as use:
        await shell(use.machine, MAKE_REPOSITORY)
        for _ in range(2):  # as when a crash came between the clone and its record
            assert await git_clone.clone(use.machine, "file:///tmp/project") == "/workspace/project"
        assert await shell(use.machine, "cat /workspace/project/greeting") == "hello\n"
    await small_world.context.controller.delete(small_world.alice, sandbox_id)


async def test_a_clone_that_fails_undoes_the_create(small_world: World) -> None:
    with pytest.raises(CloneFailed, match="nowhere") as refused:
        await small_world.create(git_url="https://user:s3cret@127.0.0.1:9/nowhere.git")
    assert "s3cret" not in str(refused.value)
    assert await small_world.machines() == {}
    assert (await small_world.context.controller.list(small_world.alice)).sandboxes == []


async def test_a_password_is_in_no_row_event_or_label(small_world: World) -> None:
    password = a_secret("git password")
    url = f"https://user:{password}@127.0.0.1:9/nowhere.git"
    with pytest.raises(CloneFailed):
        await small_world.create(git_url=url)
    [row] = (await small_world.context.controller.list(small_world.alice, states=[State.DELETED])).sandboxes
    assert row.git_url == "https://***@127.0.0.1:9/nowhere.git"
    old = replace(row, git_url=url)
    assert password not in str(sandboxes.labels_of(old))
    assert password not in f"{await small_world.events(row.sandbox_id)} {row.reason}"
    assert small_world.context.engine._clone_urls == {}


async def test_rows_from_before_lose_their_passwords_when_a_server_starts(small_world: World) -> None:
    sandbox_id = (await small_world.create()).sandbox.sandbox_id
    async with small_world.context.store.write() as connection:
        await sandboxes.patch(connection, sandbox_id, git_url="https://u:s3cret@host/a.git")
    await small_world.restart()
    assert (await small_world.row(sandbox_id)).git_url == "https://***@host/a.git"
    await small_world.context.controller.delete(small_world.alice, sandbox_id)


async def test_a_password_that_a_crash_lost_is_asked_for_again(small_world: World) -> None:
    """What the server before had begun is waited for; what it had not cannot be begun without the password."""
    sandbox_id = (await small_world.create()).sandbox.sandbox_id
    async with small_world.context.controller.use(small_world.alice, sandbox_id) as use:
        with pytest.raises(CloneFailed, match="Create the sandbox again"):
            await git_clone.clone(use.machine, "https://***@127.0.0.1:9/nowhere.git")
        for url in ("https://u:s3cret@127.0.0.1:9/nowhere.git", "https://***@127.0.0.1:9/nowhere.git"):
            with pytest.raises(CloneFailed, match="git could not clone"):
                await git_clone.clone(use.machine, url)
    await small_world.context.controller.delete(small_world.alice, sandbox_id)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://host/team/app.git", "app"),
        ("git@host:team/app.git", "app"),
        ("https://host/a/b/", "b"),
        ("https://host/..", "repository"),
        ("https://host/we%20ird", "we-20ird"),
    ],
)
def test_the_directory_is_named_after_the_repository(url: str, name: str) -> None:
    assert git_clone._name(url) == name
