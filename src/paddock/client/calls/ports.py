"""Access to a port of a sandbox without an API key."""

from __future__ import annotations

from collections.abc import Mapping

from paddock.client.answers import Done, Link, Service, Ticket
from paddock.client.call import ApiCall, answer, given, listed
from paddock.client.calls.sandboxes import sandbox_path
from paddock.client.retry import Repeat


def create_link(sandbox_id: str, port: int, *, ttl: int | None = None) -> ApiCall[Link]:
    """A URL that gives access to this port for ``ttl`` seconds (default: one day)."""
    return ApiCall(
        method="POST",
        path=sandbox_path(sandbox_id, "links"),
        json=given(port=port, ttl=ttl),
        read=answer(Link),
    )


def create_ticket(sandbox_id: str, port: int | None = None) -> ApiCall[Ticket]:
    """A single-use ticket, valid for one minute: for a port, or without a port for a WebSocket of this sandbox's
    API."""
    return ApiCall(
        method="POST",
        path=sandbox_path(sandbox_id, "tickets"),
        json=given(port=port),
        read=answer(Ticket),
        repeat=Repeat.UNSENT,
    )


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
