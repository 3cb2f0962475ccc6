"""A repository to start with: cloned once, or the create is undone with git's reason and none of the URL's secrets."""

from __future__ import annotations

import pytest

from paddock.ids import new_process_id
from paddock.lifecycle import checkout
from paddock.lifecycle.checkout import CloneFailed
from paddock.machine.base import Machine, ProcessSpec, Stream
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
    async with small_world.house.controller.use(small_world.alice, sandbox_id) as use:
        await shell(use.machine, MAKE_REPOSITORY)
        for _ in range(2):  # as when a crash came between the clone and its record
            assert await checkout.clone(use.machine, "file:///tmp/project") == "/workspace/project"
        assert await shell(use.machine, "cat /workspace/project/greeting") == "hello\n"
    await small_world.house.controller.delete(small_world.alice, sandbox_id)


async def test_a_clone_that_fails_undoes_the_create(small_world: World) -> None:
    with pytest.raises(CloneFailed, match="nowhere") as refused:
        await small_world.create(git_url="https://user:s3cret@127.0.0.1:9/nowhere.git")
    assert "s3cret" not in str(refused.value)
    assert await small_world.machines() == {}
    assert (await small_world.house.controller.list(small_world.alice)).sandboxes == []


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
    assert checkout._name(url) == name
