"""``create(git_url=…, image=…)`` of the object API, on sandboxes of this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from paddock import SandboxClient, create_sandbox, errors
from tests.support.repository import FILES, REACHABLE, served_repository
from tests.support.serving import serving


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[SandboxClient]:
    with serving(tmp_path / "home", PADDOCK_EGRESS_REACHABLE=REACHABLE) as server:
        async with SandboxClient(server.url, api_key=server.key) as client:
            yield client


async def test_a_repository_is_there_and_an_image_is_a_template_of_its_name(
    client: SandboxClient, tmp_path: Path
) -> None:
    with served_repository(tmp_path / "repository") as url:
        sandbox = await create_sandbox(client=client)
        await sandbox.create(git_url=url, image="host")
        assert (sandbox.sandbox.provider, sandbox.sandbox.template_id) == ("local", "host")
        assert str(await sandbox.run_command("cat project/greeting")) == FILES["greeting"]
        assert await sandbox.read_file("project/greeting") == FILES["greeting"]
        missing = await create_sandbox(client=client)
        with pytest.raises(errors.PaddockError, match=r"could not clone .*nothing\.git"):
            await missing.create(git_url=url.replace("project.git", "nothing.git"))
    with pytest.raises(errors.TemplateNotFound, match=r"no image 'python:3\.11-slim'\. It has: host"):
        await (await create_sandbox(client=client)).create(image="python:3.11-slim")
