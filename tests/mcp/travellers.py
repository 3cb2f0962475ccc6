"""Clients that make a tour of tools: the newest SDK in this process, others as their users install them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.mcp.calls import Call, asked, filled
from tests.mcp.environments import JAVASCRIPT, PYTHON, prepared
from tests.mcp.world import Box

_CLIENTS = Path(__file__).parent / "clients"
_SECONDS = 500


async def newest(box: Box, era: str, calls: Sequence[Call]) -> list[dict[str, Any]]:
    kept: dict[str, Any] = {}
    answers = []
    async with box.client(era, url=box.program_url) as client:
        for call in calls:
            result = await client.call_tool(call.tool, filled(call.arguments, kept))
            data = result.structured_content
            if call.keep is not None:
                kept[f"@{call.keep}"] = data[call.keep]
            answer = {
                "tool": call.tool,
                "failed": bool(result.is_error),
                "text": "".join(block.text for block in result.content if block.type == "text"),
                "data": data,
                "pictures": sum(block.type == "image" for block in result.content),
            }
            answers.append(answer)
    return answers


def sdk_before_2(box: Box, calls: Sequence[Call]) -> Any:
    return _told([prepared(PYTHON).python, _CLIENTS / "old.py", "sdk"], box, calls)


def langchain(box: Box, calls: Sequence[Call]) -> Any:
    return _told([prepared(PYTHON).python, _CLIENTS / "old.py", "langchain"], box, calls)


def javascript(box: Box, calls: Sequence[Call]) -> Any:
    folder = prepared(JAVASCRIPT).folder
    script = folder / f"client-{os.getpid()}.mjs"  # beside its packages, where others may do the same at this moment
    script.write_text((_CLIENTS / "client.mjs").read_text())
    try:
        return _told(["node", script], box, calls)
    finally:
        script.unlink()


def inspector(box: Box, *words: str) -> Any:
    program = [prepared(JAVASCRIPT).program("mcp-inspector"), "--cli", box.program_url, "--transport", "http"]
    return run([*program, "--header", f"Authorization: Bearer {box.mcp_token}", *words])


def run(command: list[str | Path], **options: Any) -> Any:
    """What it tells, as JSON on its standard output."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, **options)
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return json.loads(done.stdout)


def _told(command: list[str | Path], box: Box, calls: Sequence[Call]) -> Any:
    given = {"url": box.program_url, "token": box.mcp_token, "calls": asked(calls)}
    return run(command, input=json.dumps(given))
