"""The OpenAPI document, and the parts shared by all routes."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from paddock.api.auth import GuardedRoute
from paddock.models import ErrorAnswer

DESCRIPTION = """\
Sandboxes for AI coding agents: write code, run it, serve it, watch it.

Every route but `/health` and `/ready` needs an API key, as `Authorization: Bearer <key>` or `X-API-Key: <key>`. Every
failure has one shape, `{"success": false, "error": {"code", "message", "status", "details", "request_id"}}`;
`X-Request-Id` is in every answer; an id that you send is kept. `POST` answers 200, also when it creates something.
WebSockets: `/sandboxes/{sandbox_id}/terminal` and `/sandboxes/{sandbox_id}/processes/{process_id}/ws`.
"""

TAGS = [
    {"name": "sandboxes", "description": "Create, list, pause, resume and delete sandboxes."},
    {"name": "commands", "description": "Run a command: foreground, background or streamed."},
    {"name": "code", "description": "Run code in stateful contexts."},
    {"name": "tools", "description": "Tools for agents, the same as over MCP."},
    {"name": "processes", "description": "Long-running processes, their input and output."},
    {"name": "files", "description": "Read, write, list, move, watch."},
    {"name": "services", "description": "Programs that start when their port is first used."},
    {"name": "confinement", "description": "Isolation and egress."},
    {"name": "ports", "description": "Access to ports: links and tickets."},
    {"name": "watching", "description": "Events, usage and metrics."},
    {"name": "accounts", "description": "Keys, users, quotas."},
    {"name": "addons", "description": "Large programs shared by local sandboxes."},
    {"name": "server", "description": "The server itself."},
]

Responses = dict[int | str, dict[str, Any]]

_MEANING = {
    400: "The request is malformed: not JSON, or not UTF-8.",
    401: "Missing or invalid key.",
    403: "Not permitted for this key.",
    404: "Does not exist, or is not visible to this key.",
    405: "Method not supported by this route; see `Allow`.",
    409: "Conflicts with the current state.",
    413: "Too large.",
    416: "The range lies outside the file.",
    422: "Well-formed but invalid; `details.errors` lists the fields.",
    429: "Too many requests, or a quota is used up; try again after `Retry-After`.",
    500: "An internal error; the server's log has its details under the `request_id`.",
    501: "This provider cannot do that.",
    503: "A dependency does not answer; try again.",
    507: "No space on the sandbox's disk or on the host's; the message says which.",
}


_REFERENCE = "#/components/schemas/{model}"
_ERROR_CONTENT = {"application/json": {"schema": {"$ref": _REFERENCE.format(model=ErrorAnswer.__name__)}}}
"""By reference: FastAPI would compile a ``model`` again for each status of each route, a thousand times in all."""


def failures(*statuses: int) -> Responses:
    """The error responses of a route, including those that every route has."""
    every = sorted({400, 401, 403, 405, 413, 422, 429, 500, 503, *statuses})
    return {status: {"description": _MEANING[status], "content": _ERROR_CONTENT} for status in every}


ON_A_SANDBOX = failures(404, 409, 501, 507)


def operation_id(route: APIRoute) -> str:
    """The function's name, whose uniqueness a test ensures."""
    return route.name


def guarded_router(tag: str, prefix: str = "", *, responses: Responses = ON_A_SANDBOX) -> APIRouter:
    """A router whose routes require an API key; by default with the errors of a route on one sandbox."""
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        route_class=GuardedRoute,
        responses=responses,
        generate_unique_id_function=operation_id,
    )


def install(app: FastAPI) -> None:
    """Generate the app's document with security schemes, on first use."""

    def document() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = document  # type: ignore[method-assign]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        description=app.description,
        tags=app.openapi_tags,
        routes=app.routes,
    )
    error = ErrorAnswer.model_json_schema(ref_template=_REFERENCE)
    named = {**error.pop("$defs", {}), ErrorAnswer.__name__: error}
    document["components"]["schemas"] = dict(sorted({**document["components"]["schemas"], **named}.items()))
    document["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["security"] = [] if path in ("/health", "/ready") else [{"bearer": []}, {"key": []}]
            for parameter in operation.get("parameters", ()):
                parameter["schema"] = _without_null(parameter["schema"])
            for status in ("200", "206"):
                # Routes with another response type than JSON; FastAPI would list both.
                content = operation["responses"].get(status, {}).get("content", {})
                if content.get("application/json", {}).get("schema") == {}:
                    del content["application/json"]
    return document


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """For an optional parameter: null cannot be written in a URL."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) != 1:
        return schema
    return {**{name: value for name, value in schema.items() if name not in ("anyOf", "default")}, **choices[0]}
