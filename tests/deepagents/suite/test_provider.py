"""The provider for ``dcode``, by the interface of its package."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from deepagents_code.integrations.sandbox_provider import SandboxError, SandboxNotFoundError

from paddock.client import SyncSandboxClient
from paddock.deepagents.dcode import PaddockProvider


def test_it_says_what_it_is_without_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_URL", "http://127.0.0.1:1")
    metadata = PaddockProvider().metadata
    assert (metadata.name, metadata.working_dir, metadata.supports_sandbox_id) == ("paddock", "/workspace", True)


def test_a_sandbox_is_made_found_again_and_deleted() -> None:
    provider = PaddockProvider()
    made = provider.get_or_create(env={"GREETING": "hello"})
    made.write("/workspace/kept", "still here")
    found = provider.get_or_create(sandbox_id=made.id)
    assert found.id == made.id
    assert found.execute("cat kept; echo; echo $GREETING").output == "still here\nhello\n"
    provider.delete(sandbox_id=made.id)
    with SyncSandboxClient() as client:
        assert client.get_status(made.id).status == "deleted"
    with pytest.raises(SandboxNotFoundError):
        provider.get_or_create(sandbox_id=made.id)


async def test_the_same_for_coroutines() -> None:
    provider = PaddockProvider()
    backend = await provider.aget_or_create()
    try:
        assert (await backend.aexecute("pwd")).output == "/workspace\n"
    finally:
        await backend.aclose()
        await provider.adelete(sandbox_id=backend.id)


def test_an_unknown_sandbox_is_not_found() -> None:
    with pytest.raises(SandboxNotFoundError):
        PaddockProvider().get_or_create(sandbox_id="nobody_00000000")
    with pytest.raises(SandboxNotFoundError):
        PaddockProvider().delete(sandbox_id="nobody_00000000")


def test_an_option_that_does_not_exist_is_named() -> None:
    with pytest.raises(SandboxError, match="colour"):
        PaddockProvider().get_or_create(colour="blue")


def test_a_template_that_does_not_exist_is_named() -> None:
    with pytest.raises(SandboxError, match="nonesuch"):
        PaddockProvider().get_or_create(snapshot="nonesuch")


def test_what_a_process_made_is_deleted_with_it_however_it_ends() -> None:
    program = (
        "import sys\nfrom paddock.deepagents.dcode import PaddockProvider\n"
        "print(PaddockProvider().get_or_create().id, flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as made:
        assert made.stdout is not None
        sandbox_id = made.stdout.readline().decode().strip()
        with SyncSandboxClient() as client:
            assert client.get_status(sandbox_id).status == "running"
        made.kill()
    deadline = time.monotonic() + 60
    with SyncSandboxClient() as client:
        while client.get_status(sandbox_id).status != "deleted":
            assert time.monotonic() < deadline
            time.sleep(0.1)
