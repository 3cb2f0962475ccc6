"""Services of a sandbox: programs that start when their port is first used."""

from __future__ import annotations

from collections.abc import Mapping

from paddock.client.answers import Done, Service
from paddock.client.call import ApiCall, answer, given, listed
from paddock.client.calls.sandboxes import sandbox_path


def put_service(
    sandbox_id: str,
    name: str,
    port: int,
    command: str,
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    user: str | None = None,
    ready_path: str | None = None,
    ready_timeout: float | None = None,
) -> ApiCall[Service]:
    """Add or change a service: ``command`` starts with the first connection to ``port``.

    It is ready when the port is open or, with ``ready_path``, when a GET of that path succeeds.
    """
    return ApiCall(
        method="PUT",
        path=sandbox_path(sandbox_id, "services", name),
        json=given(
            port=port,
            command=command,
            env=env,
            cwd=cwd,
            user=user,
            ready_path=ready_path,
            ready_timeout=ready_timeout,
        ),
        read=answer(Service),
    )


def list_services(sandbox_id: str) -> ApiCall[list[Service]]:
    return ApiCall(method="GET", path=sandbox_path(sandbox_id, "services"), read=listed(Service, "services"))


def get_service(sandbox_id: str, name: str) -> ApiCall[Service]:
    return ApiCall(method="GET", path=sandbox_path(sandbox_id, "services", name), read=answer(Service))


def delete_service(sandbox_id: str, name: str) -> ApiCall[Done]:
    """Remove a service, and stop it if it runs."""
    return ApiCall(method="DELETE", path=sandbox_path(sandbox_id, "services", name), read=answer(Done))
