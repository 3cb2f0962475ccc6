"""Which public methods an SDK has, read from itself: ``Class.method``, in Python's spelling for both languages."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.e2b.environments import Environment, Language, prepare

INTERPRETER = {
    f"Sandbox.{name}"
    for name in (
        "run_code",
        "create_code_context",
        "list_code_contexts",
        "remove_code_context",
        "restart_code_context",
    )
}
_CLASSES = {
    "Sandbox": "Sandbox",
    "SandboxApi": "Sandbox",
    "SandboxPaginator": "SandboxPaginator",
    "SnapshotPaginator": "SnapshotPaginator",
    "SecretPaginator": "SecretPaginator",
    "Commands": "Commands",
    "CommandHandle": "CommandHandle",
    "Filesystem": "Filesystem",
    "WatchHandle": "WatchHandle",
    "Pty": "Pty",
    "Git": "Git",
    "TemplateBase": "Template",
    "Volume": "Volume",
    "Secret": "Secret",
}
_TEMPLATES = {
    "alias_exists",
    "assign_tags",
    "build",
    "build_in_background",
    "exists",
    "get_build_status",
    "get_tags",
    "remove_tags",
}
_NO_REQUEST = {"Secret.fill", "Secret.iam_token"}


def methods(environment: Environment, voice: str) -> set[str]:
    """Those that lead to a request; building the description of a template or a secret does not."""
    prepare(environment)
    python = environment.language is Language.PYTHON
    found = _python(environment, voice) if python else set(_javascript(environment))
    return {name for name in found if name not in _NO_REQUEST and _talks(name)}


def _talks(name: str) -> bool:
    cls, _, method = name.partition(".")
    return cls != "Template" or method in _TEMPLATES


def _python(environment: Environment, voice: str) -> set[str]:
    script = Path(__file__).parent / "python" / "inventory.py"
    done = subprocess.run([environment.python, script], capture_output=True, text=True, timeout=60, check=True)
    known: dict[str, list[str]] = json.loads(done.stdout)[voice]
    return {f"{cls}.{name}" for cls, names in known.items() for name in names}


def _javascript(environment: Environment) -> Iterator[str]:
    """From the declarations for TypeScript, which also tell what is private."""
    for package in ("e2b", "@e2b/code-interpreter"):
        path = environment.folder / "node_modules" / package / "dist" / "index.d.ts"
        if path.exists():
            yield from _declared(path.read_text())


def _declared(text: str) -> Iterator[str]:
    for match in re.finditer(r"^declare (?:abstract )?class (\w+)\b.*?^}", text, re.MULTILINE | re.DOTALL):
        cls = _CLASSES.get(match[1])
        # Comments hold examples, which look like methods.
        body = re.sub(r"/\*.*?\*/", "", match[0], flags=re.DOTALL)
        for method in re.finditer(r"^(?: {2}| {4})(?:static )?(?:async )?(\w+)(?:<[^(\n]*>)?\(", body, re.MULTILINE):
            if cls and method[1] != "constructor":
                yield f"{cls}.{_snake(method[1])}"


def _snake(name: str) -> str:
    return re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)
