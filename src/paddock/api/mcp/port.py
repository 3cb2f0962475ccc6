"""Authentication for MCP requests, and the sandbox that they are for.

From outside: an API key of the sandbox's owner or of an admin, or the sandbox's MCP token. From inside: the token in
the sandbox's environment, which gives access to the tools of this sandbox only and is not accepted outside.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import Scope

from paddock import errors, ids
from paddock.api.auth import RateLimiter
from paddock.api.byte_accounting import holding_of
from paddock.gateway.address import Destination
from paddock.gateway.asgi_extensions import prove
from paddock.mcp.app import AdmittedClient, McpApp, bearer
from paddock.mcp.endpoint import Endpoint
from paddock.models import State
from paddock.runtime.tools import SandboxToolHost
from paddock.server.context import ServerContext
from paddock.store.records import SandboxRow

INSIDE = "inside"
"""State key of a request from inside: the sandbox's id."""

_MISSING = "Give the sandbox's MCP token or an API key, as `Authorization: Bearer <token>`."
_GONE = frozenset({State.DELETING, State.DELETED, State.FAILED})


class McpPort:
    """An ASGI app, closed together with the server."""

    def __init__(self, context: ServerContext, limiter: RateLimiter) -> None:
        self._context = context
        self._limiter = limiter
        self._endpoint = Endpoint(context.settings.max_file_body)
        self.app = McpApp(self._endpoint, self._admit)

    async def close(self) -> None:
        await self._endpoint.close()

    async def _admit(self, scope: Scope, headers: Headers) -> AdmittedClient:
        token = bearer(headers)
        if token is None:
            raise errors.Unauthorized(_MISSING)
        state = scope.get("state", {})
        if (sandbox_id := state.get(INSIDE)) is not None:
            sandbox = await self._from_inside(sandbox_id, token)
        else:
            sandbox = await self._from_outside(state["destination"], token)
        prove(scope, await self._context.accounts.owner(sandbox.owner_id))
        holding_of(scope, self._context.in_flight).belongs_to(sandbox.owner_id)
        if sandbox.state in _GONE:
            raise errors.SandboxNotFound.by_id(sandbox.sandbox_id)
        host = SandboxToolHost(sandbox, self._context.controller, self._context.tools)
        return AdmittedClient(host, {"sandbox_id": sandbox.sandbox_id, "sandbox_status": sandbox.state.value})

    async def _from_outside(self, destination: Destination, token: str) -> SandboxRow:
        """A caller without permission does not learn whether the sandbox exists."""
        if ids.is_api_key(token):
            who = await self._context.accounts.authenticate(token)
            self._limiter.take(who)
            sandbox = await self._named(destination)
            if sandbox is None or not (who.is_admin or who.user_id == sandbox.owner_id):
                raise errors.SandboxNotFound.by_id(destination.key)
            return sandbox
        sandbox = await self._named(destination)
        if sandbox is None or not self._context.tokens.check_mcp(sandbox.key, token):
            raise errors.Unauthorized(f"This token does not open this sandbox's tools. {_MISSING}")
        self._limiter.take(await self._context.accounts.stand_for(sandbox.owner_id))
        return sandbox

    async def _from_inside(self, sandbox_id: str, token: str) -> SandboxRow:
        sandbox = await self._context.row_cache.get(sandbox_id)
        if sandbox is not None:  # rate limits apply before the token is checked, so that wrong ones count as well
            self._limiter.take(await self._context.accounts.stand_for(sandbox.owner_id))
        if sandbox is None or not self._context.tokens.check_mcp_inside(sandbox.key, token):
            raise errors.Unauthorized("Give the token from PADDOCK_MCP_TOKEN, as `Authorization: Bearer <token>`.")
        return sandbox

    async def _named(self, destination: Destination) -> SandboxRow | None:
        if destination.by_id:
            return await self._context.row_cache.get(destination.key)
        return await self._context.row_cache.by_key(destination.key) if ids.is_sandbox_key(destination.key) else None
