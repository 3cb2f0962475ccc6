"""A reader of one page, who types its examples from top to bottom: one home, one terminal, one Python."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from paddock import SyncSandboxClient
from paddock.models import McpDocument
from tests.docs import sdks
from tests.docs.examples import PROMPT, Command, Example, commands
from tests.docs.model import scripted_model
from tests.docs.not_run import reason
from tests.docs.printed import missing
from tests.e2b import environments as e2b
from tests.e2b.server import PaddockServer

_SAMPLE_ID = re.compile(r"\b[a-z]+_1f2e3d4c\b")
_SAMPLE_PORT = re.compile(r"(?<=localhost:)8080\b|(?<=127\.0\.0\.1:)8080\b")
_MARK = "\x1e"
_SECONDS = 120
_REFUSAL = '"success":false'
_AS_NOTEBOOK = """
import ast, asyncio, inspect, sys
with open(sys.argv[1]) as file:
    code = compile(file.read(), sys.argv[1], "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
if inspect.iscoroutine(running := eval(code, {"__name__": "__main__"})):
    asyncio.run(running)
"""
FILES = {"README.md": "# Field\n\n## Two commands\n", "report.csv": "a,b\n", "model.bin": "weights"}
"""What a reader has of his own."""


@dataclass
class Reader:
    server: PaddockServer
    home: Path
    folder: Path
    programs: Path
    used: set[str] = field(default_factory=set)
    """Which reasons for not running something were met."""
    left_out: list[str] = field(default_factory=list)
    """What needs a package that cannot be had on this machine now, and why."""
    _names: dict[str, Any] = field(default_factory=dict)
    _variables: dict[str, str] = field(default_factory=dict)
    _sandbox_id: str = ""

    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "PATH": f"{self.programs}:/usr/local/bin:/usr/bin:/bin",
            "PADDOCK_URL": self.server.url,
            "LANG": "C.UTF-8",
        }

    def follow(self, example: Example) -> None:
        match example.language:
            case "console":
                self._type(example)
            case "python":
                if reason(example.text, self.used) is None:
                    self._run(example) if (sdk := sdks.imported(example.text)) is None else self._run_with(sdk, example)
            case "js":
                if reason(example.text, self.used) is None:
                    self._run_js(example)
            case "json":
                document = json.loads(example.text)
                if "mcpServers" in document:
                    McpDocument.model_validate(document)
            case "":
                shown = [line for line in example.text.splitlines() if line.startswith("$ ")]
                assert not shown, f"{example.place}: what is typed belongs into a block of `console`: {shown}"
            case other:
                why = f"{example.place}: nothing here can run {other!r}; say in tests/docs/not_run.py why not"
                assert reason(example.text, self.used) is not None, why

    # Python

    def _run(self, example: Example) -> None:
        padded = "\n" * (example.line - 1) + self._mine(example.text)
        code = compile(padded, example.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with mock.patch.dict(os.environ, self._variables):  # started in the same terminal
            if inspect.iscoroutine(running := eval(code, self._names)):  # as `python -m asyncio` takes it
                asyncio.run(running)

    def _run_with(self, sdk: sdks.PythonSdk, example: Example) -> None:
        """In that SDK's own environment, as a file; pages other than README may await at the top, as in a notebook."""
        try:
            sdk.prepare()
        except sdks.NotToBeHad as problem:
            self.left_out.append(f"{example.place}: {problem}")
            return
        (self.folder / "example.py").write_text("\n" * (example.line - 1) + self._mine(example.text))
        awaits = example.page != "README.md"
        with scripted_model() as model:
            self._finish(
                [str(sdk.python), "-c", _AS_NOTEBOOK, "example.py"] if awaits else [str(sdk.python), "example.py"],
                example,
                {**sdk.path, **model.environment()},
            )
            agents = "create_agent(" in example.text or "create_deep_agent(" in example.text
            assert not agents or "from the sandbox" in "".join(model.answers), f"{example.place}: the agent did nothing"

    def _run_js(self, example: Example) -> None:
        try:
            modules = sdks.node_modules(e2b.JS_NEWEST)
        except sdks.NotToBeHad as problem:
            self.left_out.append(f"{example.place}: {problem}")
            return
        (self.folder / "node_modules").symlink_to(modules)
        (self.folder / "example.mjs").write_text(self._mine(example.text))
        self._finish(["node", "example.mjs"], example, {"PATH": os.environ["PATH"]})

    def _finish(self, command: list[str], example: Example, more: dict[str, str]) -> None:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**self.environment(), **self._variables, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        assert done.returncode == 0, f"{example.place} ended with {done.returncode}:\n{done.stdout}{done.stderr}"

    # A terminal

    def _type(self, example: Example) -> None:
        typed = []
        for command in commands(example):
            try:
                sdks.install(command.text, self.home, self.programs)
            except sdks.NotToBeHad as problem:
                self.left_out.append(f"{example.page}:{command.line}: {problem}")
                return
            if reason(f"{PROMPT}{command.text}", self.used) is None:
                typed.append(command)
        if not typed:
            return
        script = "\n".join(f"printf '{_MARK}%s\\n' {n}\n{self._mine(each.text)}" for n, each in enumerate(typed))
        state = self.folder / ".variables"
        done = subprocess.run(
            ["bash", "-c", f"set -aeo pipefail\n{script}\nenv -0 > '{state}'\n"],
            cwd=self.folder,
            env={**self.environment(), **self._variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        printed = dict(_printed(done.stdout))
        reached = typed[max(printed, default=0)]
        assert done.returncode == 0, (
            f"{example.page}:{reached.line}: `{reached.text}` ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
        for number, command in enumerate(typed):
            _compare(example, command, printed.get(number, ""))
        self._variables = dict(each.split("=", 1) for each in state.read_text().split("\0") if "=" in each)

    def _mine(self, text: str) -> str:
        """With the reader's own sandbox and the port that the server is at."""
        text = _SAMPLE_PORT.sub(str(self.server.port), text)
        return _SAMPLE_ID.sub(self._sandbox(), text) if _SAMPLE_ID.search(text) else text

    def _sandbox(self) -> str:
        """One that lives: an example before may have ended it."""
        with SyncSandboxClient(self.server.url, api_key=self.server.key) as client:
            if not self._sandbox_id or client.get_status(self._sandbox_id).status != "running":
                self._sandbox_id = client.create_sandbox("alice").sandbox_id
                client.make_directory(self._sandbox_id, "site")
        return self._sandbox_id


def _printed(stdout: str) -> list[tuple[int, str]]:
    pieces = (piece.partition("\n") for piece in stdout.split(_MARK)[1:])
    return [(int(number), text) for number, _, text in pieces]


def _compare(example: Example, command: Command, printed: str) -> None:
    at_a_port = "/p/" in command.text  # what a program in the sandbox answers, if it listens already
    refused = _REFUSAL in printed and not any(_REFUSAL in line for line in command.printed) and not at_a_port
    assert not refused, f"{example.page}:{command.line}: `{command.text}` was refused:\n{printed}"
    for line in command.printed:
        absent = missing(line, printed)
        assert not absent, f"{example.page}:{command.line}: `{command.text}` does not print {absent}:\n{printed}"


def programs(folder: Path) -> Path:
    """``paddock`` and ``python`` as on the PATH of somebody who has installed it."""
    folder.mkdir()
    for name, words in {"paddock": "-m paddock", "python": "", "python3": ""}.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (folder / name).chmod(0o755)
    return folder
