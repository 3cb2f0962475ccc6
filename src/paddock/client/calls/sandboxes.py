"""Sandboxes: creation and deletion, ports, resource usage, events."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from paddock.client.answers import (
    CreatedSandbox,
    Done,
    Egress,
    Event,
    EventPage,
    Health,
    Isolation,
    Metrics,
    PortUrls,
    Sandbox,
    SandboxPage,
    Template,
    Usage,
)
from paddock.client.call import ApiCall, StreamCall, answer, event, given, listed, nothing
from paddock.client.errors import from_event
from paddock.client.sse import EventDecoder

SERVER_COMMAND_TIMEOUT = 120.0
"""The server's default timeout of a command, if its operator has not changed it."""


def create_sandbox(
    user_id: str,
    template_id: str | None = None,
    timeout: int | None = None,
    *,
    max_lifetime: int | None = None,
    on_timeout: str | None = None,
    env: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    resources: Mapping[str, float] | None = None,
    git_url: str | None = None,
    provider: str | None = None,
    egress: str | Mapping[str, Any] | None = None,
    isolation: str | None = None,
    mounts: Sequence[Mapping[str, Any]] | None = None,
    public_ports: bool | None = None,
    auto_resume: bool | None = None,
    command: str | None = None,
    command_timeout: float | None = None,
    mcp_servers: Mapping[str, Mapping[str, Any]] | None = None,
    idempotency_key: str | None = None,
) -> ApiCall[CreatedSandbox]:
    """Create a sandbox.

    ``egress`` is the mode (``none``, ``proxy``, ``full``) or a mapping of ``mode``, ``allow``, ``deny``, ``private``;
    ``isolation`` is the minimum level; ``mounts`` are directories of the host (``source``, ``target``, ``read_only``),
    for admins. With ``public_ports`` its ports need no token; without ``auto_resume`` using a paused sandbox does not
    resume it. ``mcp_servers`` are the user's own, by name, as in an ``.mcp.json``. ``command`` runs when the sandbox is
    ready; the answer's ``command`` has the result, or the running process after ``command_timeout`` seconds. A lost
    answer is requested again with the same idempotency key, so a second sandbox is never created and the command never
    runs twice.
    """
    return ApiCall(
        method="POST",
        path="/sandboxes/create",
        json=given(
            user_id=user_id,
            template_id=template_id,
            timeout=timeout,
            max_lifetime=max_lifetime,
            on_timeout=on_timeout,
            env=env,
            metadata=metadata,
            resources=resources,
            git_url=git_url,
            provider=provider,
            egress=egress,
            isolation=isolation,
            mounts=None if mounts is None else [dict(mount) for mount in mounts],
            public_ports=public_ports,
            auto_resume=auto_resume,
            command=command,
            command_timeout=command_timeout,
            mcp_servers=None if mcp_servers is None else {name: dict(each) for name, each in mcp_servers.items()},
        ),
        headers=idempotency(idempotency_key),
        server_wait=0.0 if command is None else SERVER_COMMAND_TIMEOUT if command_timeout is None else command_timeout,
        read=answer(CreatedSandbox),
    )


def connect_sandbox(sandbox_id: str, timeout: int | None = None) -> ApiCall[Sandbox]:
    """Resume the sandbox if it is paused, and extend its deadline; ``timeout`` replaces the sandbox's timeout."""
    return _act("connect", sandbox_id, timeout=timeout)


def schedule_timeout(sandbox_id: str, timeout: int, action: str | None = None) -> ApiCall[Sandbox]:
    """Set the idle timeout in seconds; ``action`` is ``pause`` or ``delete``."""
    return _act("timeout", sandbox_id, timeout=timeout, action=action)


def pause_sandbox(sandbox_id: str) -> ApiCall[Sandbox]:
    return _act("pause", sandbox_id)


def resume_sandbox(sandbox_id: str) -> ApiCall[Sandbox]:
    return _act("resume", sandbox_id)


def delete_sandbox(sandbox_id: str) -> ApiCall[Done]:
    """Delete the sandbox and everything in it, now."""
    return ApiCall(method="POST", path="/sandboxes/delete", json={"sandbox_id": sandbox_id}, read=answer(Done))


def get_status(sandbox_id: str) -> ApiCall[Sandbox]:
    return ApiCall(method="GET", path="/sandboxes/status", params={"sandbox_id": sandbox_id}, read=answer(Sandbox))


def list_sandboxes(
    user_id: str | None = None,
    status: str | None = None,
    *,
    limit: int | None = None,
    cursor: str | None = None,
    here: bool | None = None,
) -> ApiCall[SandboxPage]:
    """One page; its ``next_cursor`` requests the next one. ``iter_sandboxes`` reads all pages.

    ``here``: if several servers share a database, only the sandboxes of this server.
    """
    return ApiCall(
        method="GET",
        path="/sandboxes",
        params=given(user_id=user_id, status=status, limit=limit, cursor=cursor, here=here),
        read=answer(SandboxPage),
    )


def expose_port(sandbox_id: str, port: int) -> ApiCall[str]:
    """A URL of the port for a browser."""
    return ApiCall(
        method="POST",
        path="/sandboxes/expose-port",
        json={"sandbox_id": sandbox_id, "port": port},
        read=lambda response: answer(PortUrls)(response).url,
    )


def get_port_urls(sandbox_id: str, port: int) -> ApiCall[PortUrls]:
    """``url`` for a browser, and ``program_url`` for programs, which cannot resolve names below localhost."""
    return ApiCall(
        method="POST",
        path="/sandboxes/expose-port",
        json={"sandbox_id": sandbox_id, "port": port},
        read=answer(PortUrls),
    )


def get_isolation(sandbox_id: str) -> ApiCall[Isolation]:
    """Which isolation layers are active, and how to enable the missing ones."""
    return ApiCall(method="GET", path=sandbox_path(sandbox_id, "isolation"), read=answer(Isolation))


def get_egress(sandbox_id: str) -> ApiCall[Egress]:
    """The egress rules, counters, and latest connections."""
    return ApiCall(method="GET", path=sandbox_path(sandbox_id, "egress"), read=answer(Egress))


def set_egress(
    sandbox_id: str,
    *,
    allow: Sequence[str] | None = None,
    deny: Sequence[str] | None = None,
    private: Sequence[str] | None = None,
    mode: str | None = None,
) -> ApiCall[Egress]:
    """Replace the allow list, the deny list, or both. Takes effect at once; the mode cannot be changed.

    ``private``: private networks and domains that this sandbox may reach; for admins.
    """
    lists = {"allow": allow, "deny": deny, "private": private}
    return ApiCall(
        method="PUT",
        path=sandbox_path(sandbox_id, "egress"),
        json=given(mode=mode, **{name: None if rules is None else list(rules) for name, rules in lists.items()}),
        read=answer(Egress),
    )


def events(sandbox_id: str, *, after: int = 0, limit: int | None = None) -> ApiCall[EventPage]:
    """Events after event number ``after``; ``next_after`` of the page continues the list."""
    return ApiCall(
        method="GET",
        path=sandbox_path(sandbox_id, "events"),
        params=given(after=after, limit=limit),
        read=answer(EventPage),
    )


def stream_events(sandbox_id: str, *, after: int | None = None) -> StreamCall[Event]:
    """Events as they happen, until the sandbox is deleted.

    After a lost connection the stream is resumed without a gap.
    """
    return StreamCall(
        call=ApiCall(
            method="GET",
            path=sandbox_path(sandbox_id, "events", "stream"),
            params=given(after=after),
            headers={} if after is None else {"Last-Event-ID": str(after)},
            read=nothing,
        ),
        decoder=lambda: _Events(sandbox_id, after),
    )


def get_sandbox_usage(sandbox_id: str) -> ApiCall[Usage]:
    return ApiCall(method="GET", path=sandbox_path(sandbox_id, "usage"), read=answer(Usage))


def get_usage(user_id: str | None = None, *, since: str | None = None, until: str | None = None) -> ApiCall[Usage]:
    """Running seconds, commands and bytes, by user and day (``2030-01-31``)."""
    return ApiCall(
        method="GET", path="/usage", params=given(user_id=user_id, since=since, until=until), read=answer(Usage)
    )


def metrics(sandbox_id: str) -> ApiCall[Metrics]:
    """Current resource usage of the sandbox."""
    return ApiCall(method="GET", path=sandbox_path(sandbox_id, "metrics"), read=answer(Metrics))


def health() -> ApiCall[Health]:
    """The server's health: ``ok``, or ``degraded`` while its database does not answer."""
    return ApiCall(method="GET", path="/health", read=answer(Health), also=frozenset({503}))


def sandbox_path(sandbox_id: str, *parts: str) -> str:
    return "/".join(("/sandboxes", *(quote(part, safe="") for part in (sandbox_id, *parts))))


def idempotency(key: str | None) -> dict[str, str]:
    return {"Idempotency-Key": key or secrets.token_hex(16)}


def _act(verb: str, sandbox_id: str, **fields: Any) -> ApiCall[Sandbox]:
    return ApiCall(
        method="POST",
        path=f"/sandboxes/{verb}",
        json=given(sandbox_id=sandbox_id, **fields),
        read=answer(Sandbox),
    )


class _Events:
    """Follows the events of a sandbox until its deletion, over several connections if necessary."""

    def __init__(self, sandbox_id: str, after: int | None) -> None:
        self._sandbox_id = sandbox_id
        self._after = after
        self._decoder = EventDecoder()
        self.complete = False

    def feed(self, chunk: bytes) -> Iterable[Event]:
        for item in self._decoder.feed(chunk):
            if item.event == "error":
                raise from_event(item.data)
            happened = event(Event, item.data)
            self._after = happened.seq
            self.complete = happened.type == "sandbox.deleted"
            yield happened

    def resume(self) -> StreamCall[Event]:
        return stream_events(self._sandbox_id, after=self._after)


def list_templates() -> ApiCall[list[Template]]:
    """The templates of all providers of the server; for ``docker`` these are images."""
    return ApiCall(method="GET", path="/templates", read=listed(Template, "templates"))
