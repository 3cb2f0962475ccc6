"""Finds a session's sandbox by the id in its metadata, or creates it, exactly once for concurrent callers.

Callers with the same options at the same time send the same idempotency key, so the server creates one sandbox. If
their keys differ (other options, or different time slots), two are created, both callers see both, and the older one is
kept.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, TypedDict

from paddock.client.answers import Sandbox
from paddock.client.asynchronous import SandboxClient
from paddock.client.call import Steps, ask
from paddock.client.calls.accounts import me
from paddock.client.calls.sandboxes import connect_sandbox, create_sandbox, delete_sandbox, list_sandboxes
from paddock.client.synchronous import SyncSandboxClient
from paddock.errors import Invalid, SandboxFailed, SandboxGone, SandboxNotFound
from paddock.models import State

SESSION = "paddock.session"
"""Metadata key under which a sandbox has its session's id."""
USER = "agent"
MAX_ID_LENGTH = 500
_GONE = (State.DELETING, State.DELETED, State.FAILED)
_SAME_CREATE_S = 10.0
"""Seconds for which two creates count as the same. Short, because a failed create is answered with its error for as
long."""
_PAGE = 1000
_TRIES = 5


class AtExit(StrEnum):
    """What is done with the sandbox when its session is closed."""

    KEEP = "keep"
    """The sandbox is left as it is; its idle timeout stays in effect."""
    PAUSE = "pause"
    DELETE = "delete"


class OptionsWithoutTimeout(TypedDict, total=False):
    template_id: str | None
    max_lifetime: int | None
    on_timeout: str | None
    env: Mapping[str, str] | None
    metadata: Mapping[str, Any] | None
    resources: Mapping[str, float] | None
    git_url: str | None
    provider: str | None
    egress: str | Mapping[str, Any] | None
    isolation: str | None
    mounts: Sequence[Mapping[str, Any]] | None
    public_ports: bool | None
    auto_resume: bool | None


class SandboxOptions(OptionsWithoutTimeout, total=False):
    """Options of ``create_sandbox``. Used only if the session's sandbox is created, not if it is found."""

    timeout: int | None


class SessionOptions(SandboxOptions, total=False):
    """Arguments of a session in addition to its id and user."""

    client: SandboxClient | SyncSandboxClient | None
    server_url: str | None
    api_key: str | None
    at_exit: AtExit | str | None


def named(session_id: str | None, at_exit: AtExit | str | None) -> tuple[str, AtExit]:
    """The session's id and its ``AtExit``. Without a given id it cannot be found again, so it is deleted by default."""
    if session_id is not None and not 0 < len(session_id) <= MAX_ID_LENGTH:
        raise Invalid(f"A session_id has 1 to {MAX_ID_LENGTH} characters; this one has {len(session_id)}.")
    default = AtExit.DELETE if session_id is None else AtExit.KEEP
    try:
        end = AtExit(at_exit or default)
    except ValueError:
        raise Invalid(f"at_exit is {', '.join(AtExit)}; not {at_exit!r}.") from None
    return session_id or f"once-{secrets.token_hex(8)}", end


def open_session(session_id: str, user_id: str, options: SandboxOptions) -> Steps[Sandbox]:
    """The session's sandbox, running."""
    # An admin's key lists the sandboxes of all accounts; those of other accounts do not belong to this session.
    owner_id = (yield from ask(me())).user_id
    for attempt in range(_TRIES):
        box = yield from _oldest(session_id, user_id, owner_id)
        if box is None:
            made = yield from _create(session_id, user_id, options)
            box = (yield from _oldest(session_id, user_id, owner_id)) or made
            if box.sandbox_id == made.sandbox_id:
                return made
            yield from ask(delete_sandbox(made.sandbox_id))
        try:
            return (yield from ask(connect_sandbox(box.sandbox_id)))
        except (SandboxNotFound, SandboxGone, SandboxFailed):  # deleted meanwhile
            if attempt == _TRIES - 1:
                raise
    raise AssertionError("unreachable")


def _oldest(session_id: str, user_id: str, owner_id: str) -> Steps[Sandbox | None]:
    found: list[Sandbox] = []
    cursor: str | None = None
    while True:
        page = yield from ask(list_sandboxes(user_id, limit=_PAGE, cursor=cursor))
        found += [
            box
            for box in page.sandboxes
            if box.metadata.get(SESSION) == session_id and box.owner_id == owner_id and box.status not in _GONE
        ]
        if (cursor := page.next_cursor) is None:
            return min(found, key=lambda box: (box.created_at, box.sandbox_id), default=None)


def _create(session_id: str, user_id: str, options: SandboxOptions) -> Steps[Sandbox]:
    wanted: dict[str, Any] = {
        **options,
        "metadata": {**(options.get("metadata") or {}), SESSION: session_id},
    }
    moment = int(time.time() / _SAME_CREATE_S)
    told = json.dumps([user_id, wanted, moment], sort_keys=True, default=dict)
    key = f"session-{hashlib.sha256(told.encode()).hexdigest()}"
    while True:
        made = yield from ask(create_sandbox(user_id, **wanted, idempotency_key=key))
        if made.status not in _GONE:
            return made
        # Created with this key a moment ago, and deleted since. Concurrent callers take the same branch.
        key = f"session-{hashlib.sha256(f'{key} after {made.sandbox_id}'.encode()).hexdigest()}"
