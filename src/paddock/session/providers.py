"""Session classes by provider."""

from __future__ import annotations

from typing import ClassVar, Unpack

from paddock.client.asynchronous import SandboxClient
from paddock.client.synchronous import SyncSandboxClient
from paddock.session.asynchronous import SandboxSession
from paddock.session.opening import USER, AtExit, SandboxOptions


class LocalSandbox(SandboxSession):
    provider: ClassVar[str | None] = "local"


class DockerSandbox(SandboxSession):
    provider: ClassVar[str | None] = "docker"


class KubernetesSandbox(SandboxSession):
    provider: ClassVar[str | None] = "kubernetes"


class E2BSandbox(SandboxSession):
    provider: ClassVar[str | None] = "e2b"


class DaytonaSandbox(SandboxSession):
    provider: ClassVar[str | None] = "daytona"


async def create_sandbox(
    *,
    session_id: str | None = None,
    user_id: str = USER,
    client: SandboxClient | SyncSandboxClient | None = None,
    server_url: str | None = None,
    api_key: str | None = None,
    at_exit: AtExit | str | None = None,
    **options: Unpack[SandboxOptions],
) -> SandboxSession:
    """A session in a sandbox of this ``provider``, by default the one named by the server's settings.

    With a ``session_id`` it is opened with the sandbox of that session. Without one, its ``create`` or its first use
    creates a sandbox: ``sandbox_id = await sandbox.create(template="debian", timeout=3600)``.
    """
    kinds: tuple[type[SandboxSession], ...] = (
        LocalSandbox,
        DockerSandbox,
        KubernetesSandbox,
        E2BSandbox,
        DaytonaSandbox,
    )
    kind = {each.provider: each for each in kinds}.get(options.get("provider"), SandboxSession)
    session = kind(
        session_id, user_id, client=client, server_url=server_url, api_key=api_key, at_exit=at_exit, **options
    )
    if session_id is None:
        return session
    try:
        return await session.open()
    except BaseException:
        await session.clients.aclose()
        raise
