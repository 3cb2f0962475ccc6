"""Post-import hooks: runs an action right after a module is first imported, if it ever is."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable

_waiting: dict[str, Callable[[Any], None]] = {}


def after(name: str, action: Callable[[Any], None]) -> None:
    _waiting[name] = action


def install() -> None:
    sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        action = _waiting.pop(name, None)  # only once, and not while searching for the real module
        if action is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            _waiting[name] = action
            return None
        spec.loader = _Loader(spec.loader, action)
        return spec


class _Loader(Loader):
    """The real loader followed by the action."""

    def __init__(self, real: Any, action: Callable[[Any], None]) -> None:
        self._real = real
        self._action = action

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._real.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        self._real.exec_module(module)
        self._action(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)
