"""Prints the public methods of the SDK in this environment, as JSON: voice, class, then names."""

import inspect
import json
import sys
from importlib import import_module

MODULES = (
    "code_interpreter",
    "computer_use",
    "daytona",
    "filesystem",
    "git",
    "lsp_server",
    "process",
    "sandbox",
    "secret",
    "snapshot",
    "volume",
    "warm_pool",
)


def inventory(voice: str) -> dict[str, list[str]]:
    modules = [f"daytona._{voice}.{name}" for name in MODULES]
    modules.append("daytona.handle.pty_handle" if voice == "sync" else "daytona.handle.async_pty_handle")
    known: dict[str, list[str]] = {}
    for name in modules:
        for cls in vars(import_module(name)).values():
            if inspect.isclass(cls) and cls.__module__ == name and not cls.__name__.startswith("_"):
                own = [each for each in vars(cls) if not each.startswith("_") and _called(vars(cls)[each])]
                if own:
                    known[cls.__name__.removeprefix("Async")] = sorted(own)
    # Looks at a local file and asks for the way to the object store; part of making an image.
    known["SnapshotService"].remove("process_image_context")
    return known


def _called(member: object) -> bool:
    return inspect.isroutine(member) and not isinstance(member, property)


if __name__ == "__main__":
    json.dump({voice: inventory(voice) for voice in ("sync", "async")}, sys.stdout)
