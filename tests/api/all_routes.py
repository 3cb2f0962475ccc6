"""Every route of a server, with those of the facades, which the server builds only when they are first asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount

from paddock.api.on_demand import OnDemandApp
from tests.api.conftest import speaking_to


@dataclass(frozen=True)
class FoundRoute:
    method: str
    path: str
    takes_json: bool


async def all_routes(app: FastAPI) -> list[FoundRoute]:
    async with speaking_to(app) as client:
        for route in app.routes:
            if isinstance(route, Mount) and isinstance(route.app, OnDemandApp):
                await client.get(f"{route.path}/nowhere")
                assert route.app.built is not None, f"{route.path} was not built"
    return list(_walk(app.routes))


def _walk(routes: Iterable[BaseRoute], prefix: str = "") -> Iterator[FoundRoute]:
    for route in routes:
        if isinstance(route, Mount):
            mounted = route.app.built if isinstance(route.app, OnDemandApp) else route.app
            assert isinstance(mounted, Starlette), f"what is mounted at {route.path} has no routes to be seen"
            yield from _walk(mounted.routes, prefix + route.path)
        else:
            takes_json = isinstance(route, APIRoute) and route.body_field is not None
            for method in sorted(getattr(route, "methods", None) or ()):
                yield FoundRoute(method, prefix + getattr(route, "path", ""), takes_json)
