"""The methods of a path over all routes, for the ``Allow`` header."""

from __future__ import annotations

from collections.abc import Iterable
from re import Pattern

from fastapi import APIRouter
from fastapi.routing import APIRoute


class RouteTable:
    def __init__(self, routers: Iterable[APIRouter]) -> None:
        self._fixed: dict[str, set[str]] = {}
        self._patterns: list[tuple[Pattern[str], set[str]]] = []
        for route in (route for router in routers for route in router.routes if isinstance(route, APIRoute)):
            methods = route.methods or set()
            if "{" in route.path:
                self._patterns.append((route.path_regex, methods))
            else:
                self._fixed.setdefault(route.path, set()).update(methods)

    def methods(self, path: str) -> list[str]:
        """The methods of this path; for a fixed path only its own, even if a pattern also matches."""
        if path in self._fixed:
            return sorted(self._fixed[path])
        return sorted({method for pattern, methods in self._patterns if pattern.match(path) for method in methods})

    def is_fixed(self, path: str) -> bool:
        return path in self._fixed
