"""Prints the public methods of the SDK in this environment, as JSON: class, then names."""

import inspect
import json
import sys
from importlib import import_module
from importlib.util import find_spec

CLASSES = {
    "e2b": ("Sandbox", "SandboxPaginator", "SnapshotPaginator", "CommandHandle", "WatchHandle", "Template", "Volume"),
    "e2b.secret.secret_sync": ("Secret", "SecretPaginator"),
    "e2b.sandbox_sync.commands.command": ("Commands",),
    "e2b.sandbox_sync.commands.pty": ("Pty",),
    "e2b.sandbox_sync.filesystem.filesystem": ("Filesystem",),
    "e2b.sandbox_sync.git": ("Git",),
}
ASYNC_CLASSES = {
    "e2b": tuple(f"Async{name}" for name in (*CLASSES["e2b"], "CommandInputHandle")),
    "e2b.secret.secret_async": ("AsyncSecret", "AsyncSecretPaginator"),
    "e2b.sandbox_async.commands.command": ("Commands",),
    "e2b.sandbox_async.commands.pty": ("Pty",),
    "e2b.sandbox_async.filesystem.filesystem": ("Filesystem",),
    "e2b.sandbox_async.git": ("Git",),
}


def methods(cls: type) -> set[str]:
    """Without properties, which answer from what the object knows."""
    names = {name for name in dir(cls) if not name.startswith("_")}
    return {name for name in names if inspect.isroutine(getattr(cls, name))}


def found(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def inventory(classes: dict[str, tuple[str, ...]], prefix: str) -> dict[str, list[str]]:
    known: dict[str, set[str]] = {}
    interpreter = {"e2b_code_interpreter": (f"{prefix}Sandbox",)}
    for module, names in (classes | interpreter).items():
        if not found(module):
            continue
        package = import_module(module)
        for name in names:
            if hasattr(package, name):
                known.setdefault(name.removeprefix("Async"), set()).update(methods(getattr(package, name)))
    return {name: sorted(members) for name, members in known.items()}


if __name__ == "__main__":
    json.dump({"sync": inventory(CLASSES, ""), "async": inventory(ASYNC_CLASSES, "Async")}, sys.stdout)
