"""Where the examples run that use other people's packages: the environments that the suite installs for their SDKs.

A page installs them with pip or npm into the reader's own; here that line stands for what is kept under ``build/``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from tests.daytona import environments as daytona
from tests.deepagents import environments as deepagents
from tests.docs.examples import ROOT
from tests.e2b import environments as e2b
from tests.mcp import environments as mcp

_INSTALLED = re.compile(r"~/(?P<folder>[\w-]+)/bin/pip install (?P<package>[\w-]+)")
_NPX = "npx -y @e2b/cli"
_IMPORTED = re.compile(r"^(?:from|import) (\w+)", re.MULTILINE)


class NotToBeHad(Exception):
    """It cannot be installed on this machine, or not now."""


@dataclass(frozen=True, slots=True)
class PythonSdk:
    python: Path
    _prepare: Callable[[], object]
    path: Mapping[str, str] = field(default_factory=dict)
    """``PYTHONPATH``, for those that use Paddock as it is here."""

    def prepare(self) -> None:
        _prepared(self._prepare)


_OURS = {"PYTHONPATH": os.fspath(ROOT / "src")}
_E2B = PythonSdk(e2b.PYTHON_NEWEST.python, partial(e2b.prepare, e2b.PYTHON_NEWEST))
_DAYTONA = PythonSdk(daytona.SDK.python, partial(daytona.prepare, daytona.SDK))
_LANGCHAIN = PythonSdk(
    deepagents.NEWER.python, partial(deepagents.prepare, deepagents.NEWER), {"PYTHONPATH": deepagents.NEWER.path}
)
_MCP = PythonSdk(mcp.PYTHON.python, partial(mcp.prepared, mcp.PYTHON), _OURS)

_BY_PACKAGE = {"e2b-code-interpreter": _E2B, "daytona": _DAYTONA}
_BY_MODULE = {
    "e2b": _E2B,
    "e2b_code_interpreter": _E2B,
    "daytona": _DAYTONA,
    "langchain": _LANGCHAIN,
    "deepagents": _LANGCHAIN,
    "langchain_mcp_adapters": _MCP,
}


def imported(code: str) -> PythonSdk | None:
    """What this example needs beside Paddock."""
    return next((_BY_MODULE[name] for name in _IMPORTED.findall(code) if name in _BY_MODULE), None)


def install(command: str, home: Path, programs: Path) -> None:
    """The virtual environment that the command makes in the reader's home, or the program that ``npx`` brings."""
    if _NPX in command:
        e2b_cli = node_modules(e2b.CLI) / ".bin" / "e2b"
        (programs / "npx").write_text(f'#!/bin/sh\nshift 2\nPATH={os.environ["PATH"]} exec {e2b_cli} "$@"\n')
        (programs / "npx").chmod(0o755)
    if (found := _INSTALLED.search(command)) is None:
        return
    sdk = _BY_PACKAGE[found["package"]]
    sdk.prepare()
    made = home / found["folder"] / "bin"
    made.mkdir(parents=True, exist_ok=True)
    (made / "python").write_text(f'#!/bin/sh\nexec {sdk.python} "$@"\n')
    (made / "python").chmod(0o755)


def node_modules(environment: e2b.Environment) -> Path:
    if environment.missing is not None:
        raise NotToBeHad(environment.missing)
    _prepared(partial(e2b.prepare, environment))
    return environment.folder / "node_modules"


def _prepared(prepare: Callable[[], object]) -> None:
    try:
        prepare()
    except (daytona.Unavailable, pytest.skip.Exception) as problem:
        raise NotToBeHad(str(problem)) from problem
