"""What a call of a tool costs the server grows no faster than what a tenant sends, or has lying in the sandbox.

Measured is the thread of the event loop, with what otherwise a worker would do done there as well.
"""

from __future__ import annotations

import io
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from paddock.browser import client as browser
from paddock.machine.base import Connection
from paddock.tools import catalogue
from paddock.tools.context import ToolContext
from paddock.tools.tool import ToolOutcome
from paddock.workers import Workers
from tests.support.growth import assert_linear_async
from tests.tools.test_agents import install
from tests.tools.workbench import Workbench

pytestmark = pytest.mark.slow

SIZE = 50_000
Arguments = dict[str, Any]
Prepare = Callable[[Workbench, int], Awaitable[Arguments]]


def given(make: Callable[[int], Arguments]) -> Prepare:
    async def prepared(work: Workbench, size: int) -> Arguments:
        return make(size)

    return prepared


def file(content: Callable[[int], str], **arguments: Any) -> Prepare:
    """A file of that content, whose path the tool is given."""

    async def prepared(work: Workbench, size: int) -> Arguments:
        return {"path": await work.put("file", content(size)), **arguments}

    return prepared


async def _searched(work: Workbench, size: int) -> Arguments:
    await work.put("tree/long", "ab " * size)
    await work.put("tree/many", "ab\n" * (size // 4))
    return {"path": work.at("tree")}


async def grep(work: Workbench, size: int) -> Arguments:
    return {**await _searched(work, size), "pattern": "ab"}


async def search(work: Workbench, size: int) -> Arguments:
    return {**await _searched(work, size), "query": "ab"}


async def glob(work: Workbench, size: int) -> Arguments:
    """As many names as a size of characters has room for, each as long as a name may be."""
    count = size // 250
    await work.shell(
        f"mkdir -p {work.at('names')} && cd {work.at('names')} && seq -f '{'a' * 240}%.0f' {count} | xargs touch"
    )
    return {"path": work.at("names"), "pattern": "*a*a*a*a*a*a b"}


async def edit(work: Workbench, size: int) -> Arguments:
    return {"path": await work.put("file", "a\n" * size), "old_string": " a\n" * (size // 8) + "b", "new_string": "c"}


async def edits(work: Workbench, size: int) -> Arguments:
    path = await work.put("file", "a" * size)
    return {"path": path, "edits": [{"old_string": "a", "new_string": "b", "replace_all": True}] * 5}


async def patch(work: Workbench, size: int) -> Arguments:
    path = await work.put("file", "same\n" * (size // 10))
    hunks = "@@\n same\n same\n-same\n+other\n" * (size // 60)
    return {"patch": f"*** Begin Patch\n*** Update File: {path}\n{hunks}*** End Patch"}


async def listed(work: Workbench, size: int) -> Arguments:
    folder = work.at("entries")
    await work.shell(f"mkdir -p {folder} && cd {folder} && seq {size // 50} | xargs touch")
    return {"path": folder, "limit": 5000}


async def task(work: Workbench, size: int) -> Arguments:
    started = await work.does("run_command", command=f"head -c {size} /dev/zero | tr '\\0' x")
    return {"task_id": started["task_id"], "stdout_offset": 0}


async def open_task(work: Workbench, size: int) -> Arguments:
    started = await work.does("run_command", command="head -n 1 >/dev/null", background=True, keep_input_open=True)
    return {"task_id": started["task_id"], "text": "x" * size, "wait": 0}


async def shell(work: Workbench, size: int) -> Arguments:
    return {"command": f"head -c {size} /dev/zero | tr '\\0' x", "shell": "growth"}


async def shell_looked_at(work: Workbench, size: int) -> Arguments:
    await work.does("shell_run", **await shell(work, size))
    return {"shell": "growth"}


async def shell_typed(work: Workbench, size: int) -> Arguments:
    await work.does("shell_open", shell="growth")
    return {"shell": "growth", "text": ("#" + "x" * 60 + "\n") * (size // 1000), "wait": 1}


async def repository(work: Workbench, size: int) -> str:
    folder = work.at(f"repository{size}")
    await work.shell(
        f"rm -rf {folder} && mkdir {folder} && cd {folder} && git init -q && git config user.name a && "
        f"git config user.email a@b && head -c {size} /dev/zero | tr '\\0' x > word && git add . && "
        f"git commit -qm $(head -c {size // 10} word) && tr x y < word > other && mv other word"
    )
    return folder


def in_repository(**arguments: Any) -> Prepare:
    async def prepared(work: Workbench, size: int) -> Arguments:
        return {"path": await repository(work, size), **arguments}

    return prepared


async def remote_that_talks(work: Workbench, size: int) -> Arguments:
    """One long word of a hook, which git passes on."""
    folder = await repository(work, size)
    await work.shell(
        f"cd {folder} && git init -q --bare there && "
        f"printf '#!/bin/sh\\nhead -c {size} /dev/zero | tr \"\\\\0\" x >&2\\n' > there/hooks/pre-receive && "
        "chmod +x there/hooks/pre-receive && (git remote add origin there || true)"
    )
    return {"path": folder}


async def clone(work: Workbench, size: int) -> Arguments:
    folder = await repository(work, size)
    return {"url": folder, "path": f"{folder}-clone-{await work.shell('date +%N')}".strip()}


async def fetched(work: Workbench, size: int) -> Arguments:
    path = await work.put("page", "x" * size)
    await work.shell(f"cd {work.folder} && (python3 -m http.server 8765 >/dev/null 2>&1 & ) ; sleep 1", user="user")
    return {"url": "http://localhost:8765/page", "headers": {"x": "y" * (size // 20)}, "timeout": 60, "save_to": path}


async def variables(work: Workbench, size: int) -> Arguments:
    await work.does("env_set", name="LONG", value="x" * (size // 4))
    return {}


async def todos(work: Workbench, size: int) -> Arguments:
    await work.shell("mkdir -p ~/.paddock")
    await work.does("write_file", path="~/.paddock/todo.json", content="[" + "{}," * size + "{}]")
    return {}


async def commands(work: Workbench, size: int) -> Arguments:
    for _ in range(3):
        await work.does("run_command", command="#" + "x" * (size // 2))
    return {}


async def processes(work: Workbench, size: int) -> Arguments:
    await work.shell(f"(sleep 20 {'0' * (size // 2)}1 >/dev/null 2>&1 &)")
    return {}


def agent(name: str, says: Callable[[str], str]) -> Prepare:
    async def prepared(work: Workbench, size: int) -> Arguments:
        words = f"$(head -c {size} /dev/zero | tr '\\0' x)"
        await install(work, name, f"#!/bin/sh\ncat >/dev/null\nprintf '%s\\n' \"{says(words)}\"\n")
        await work.does("env_set", name="OPENAI_API_KEY", value="key")
        return {"prompt": "x" * size}

    return prepared


CLAUDE = r"""{\"type\":\"result\",\"subtype\":\"success\",\"result\":\"%s\"}"""
CODEX = r"""{\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"%s\"}}"""

CASES: dict[str, Prepare] = {
    "read_file": file(lambda n: "x" * n),
    "write_file": given(lambda n: {"path": "/workspace/written", "content": "x" * n}),
    "edit_file": edit,
    "multi_edit": edits,
    "list_directory": listed,
    "delete_file": file(lambda n: "x" * n),
    "move_file": given(lambda n: {"source": "/" + "x/" * min(n, 2000), "destination": "/" + "y/" * min(n, 2000)}),
    "apply_patch": patch,
    "glob_files": glob,
    "grep_files": grep,
    "search_files": search,
    "run_command": given(lambda n: {"command": f"head -c {n} /dev/zero | tr '\\0' x"}),
    "task_output": task,
    "task_input": open_task,
    "task_stop": given(lambda n: {"task_id": "x" * n}),
    "task_list": commands,
    "shell_open": given(lambda n: {"shell": "growth", "cwd": "x" * min(n, 4000)}),
    "shell_run": shell,
    "shell_send": shell_typed,
    "shell_view": shell_looked_at,
    "shell_list": given(lambda n: {}),
    "shell_close": given(lambda n: {"shell": "growth"}),
    "run_python": given(lambda n: {"code": f"for i in range({n // 20}): print('x')\n'y' * {n}"}),
    "pip_install": given(lambda n: {"packages": ["-" + "x" * (n // 100)] * 100}),
    "git_clone": clone,
    "git_status": in_repository(),
    "git_diff": in_repository(),
    "git_add": in_repository(),
    "git_commit": in_repository(message="x", all=True),
    "git_push": remote_that_talks,
    "git_pull": in_repository(),
    "git_branch": in_repository(),
    "git_log": in_repository(),
    "http_request": fetched,
    "env_get": variables,
    "env_set": given(lambda n: {"name": "LONG", "value": "x" * (n // 4)}),
    "process_list": processes,
    "port_list": processes,
    "expose_port": given(lambda n: {"port": 8000}),
    "todo_read": todos,
    "todo_write": given(lambda n: {"todos": [{"content": "x" * (n // 200)}] * 200}),
    "claude_code": agent("claude", lambda words: CLAUDE % words),
    "codex": agent("codex", lambda words: CODEX % words),
}
"""For the tools of the browser, what its server in the sandbox answers is what grows: see below."""

BROWSER = {
    "browser_navigate": {"url": "http://localhost"},
    "browser_click": {"ref": "e1"},
    "browser_type": {"text": "x", "ref": "e1"},
    "browser_press": {"key": "Enter"},
    "browser_select": {"values": ["a"], "ref": "e1"},
    "browser_hover": {"ref": "e1"},
    "browser_drag": {"source": {"ref": "e1"}, "target": {"ref": "e2"}},
    "browser_evaluate": {"expression": "1"},
    "browser_tabs": {},
    "browser_wait": {"text": "x"},
    "browser_live_view": {},
}


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run(self: Workers, function: Any, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    monkeypatch.setattr(Workers, "run", run)


def test_every_tool_has_a_case() -> None:
    of_browser = {name for name in catalogue.TOOLS if name.startswith("browser_")}
    assert CASES.keys() | of_browser == catalogue.TOOLS.keys()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", CASES)
async def test_a_tool_costs_no_more_than_its_input(name: str, work: Workbench, inline: None) -> None:
    async def prepare(size: int) -> Arguments:
        return await CASES[name](work, size)

    async def call(arguments: Arguments) -> ToolOutcome:
        return await work.call(name, **arguments)

    await work.put("x", "")
    await call(await prepare(1000))  # what is loaded and started once is no part of it
    await assert_linear_async(prepare, call, SIZE)


class _Said(Connection):
    """The browser's server, in as many chunks as its answer can be cut into."""

    def __init__(self, answer: bytes) -> None:
        body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in _cut(answer, 7)) + b"0\r\n\r\n"
        self._said = io.BytesIO(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body)

    async def read(self, limit: int = 65536) -> bytes:
        return self._said.read(limit)

    async def write(self, data: bytes) -> None:
        """It does not care."""

    async def end_write(self) -> None:
        """Nor here."""

    async def close(self) -> None:
        """Nor here."""


def _cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def _browser_answer(size: int) -> bytes:
    entry = {"type": "log", "text": "x", "at": "", "method": "GET", "url": "http://x"}
    many = [entry] * (size // 500)
    fields = {"url": "x" * size, "title": "x", "snapshot": "x\n" * size, "value": "x" * size, "entries": many}
    tabs = [{"index": 1, "url": "x", "title": "x", "current": True}] * (size // 500)
    lists = {"tabs": tabs, "selected": ["x"] * (size // 100), "notes": ["x"] * (size // 100)}
    return json.dumps({"result": {**fields, **lists, "picture": "QUJD" * (size // 4)}}).encode()


@pytest.mark.parametrize("name", sorted(name for name in catalogue.TOOLS if name.startswith("browser_")))
async def test_a_tool_of_the_browser_costs_no_more_than_the_answer(name: str, work: Workbench) -> None:
    async with work.context.controller.use(work.who, work.sandbox_id) as use:

        async def prepare(size: int) -> ToolContext:
            answer = _browser_answer(size)
            made = work.context.tools.ctx(use)

            async def reach(port: int) -> Connection:
                return _Said(answer)

            return ToolContext(
                machine=made.machine,
                reach=reach,
                port_url=made.port_url,
                program_url=made.program_url,
                workers=made.workers,
            )

        async def call(ctx: ToolContext) -> ToolOutcome:
            return await catalogue.TOOLS[name].call(ctx, BROWSER.get(name, {}))

        await assert_linear_async(prepare, call, SIZE)


def test_the_limits_of_an_answer_of_the_browser_hold() -> None:
    with pytest.raises(ValueError, match="too many chunks"):
        browser._unchunked(b"1\r\na\r\n" * 200_000)
