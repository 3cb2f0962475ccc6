"""Other people's clients and servers as their users install them, each language in one place of its own."""

from __future__ import annotations

import functools
import subprocess

import pytest

from tests.e2b.environments import Environment, Language, prepare

PYTHON = Environment(
    "mcp-python",
    Language.PYTHON,
    ("mcp==1.30.0", "langchain-mcp-adapters==0.3.2", "mcp-server-time==2026.10.10"),
)
JAVASCRIPT = Environment(
    "mcp-javascript",
    Language.JAVASCRIPT,
    (
        "@modelcontextprotocol/sdk@1.32.2",
        "@modelcontextprotocol/inspector@0.17.2",
        "@modelcontextprotocol/server-everything@2026.8.31",
    ),
)
_TRIES = 3


@functools.cache
def _trouble(environment: Environment) -> str | None:
    if environment.missing is not None:
        return environment.missing
    trouble = ""
    for _ in range(_TRIES):  # a registry may answer badly once
        try:
            prepare(environment)
        except (RuntimeError, subprocess.SubprocessError) as problem:
            trouble = str(problem)[-500:]
        else:
            return None
    return trouble


def prepared(environment: Environment) -> Environment:
    if (trouble := _trouble(environment)) is not None:
        pytest.skip(f"{environment.name} cannot be had here: {trouble}")
    return environment
