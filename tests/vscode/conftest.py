"""A server, and sandboxes whose template has a code-server of the test's own making."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.gateway.bed import Bed, Box, running

PAGE = {"Accept": "text/html,application/xhtml+xml", "User-Agent": "Mozilla/5.0"}


@pytest.fixture(scope="session")
def vscode_bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with running(tmp_path_factory.mktemp("vscode"), "local") as bed:
        yield bed


@pytest.fixture
def person() -> Callable[[Box], httpx.Client]:
    """With a browser, and a key in it."""

    def at(box: Box) -> httpx.Client:
        return box.visitor(9000, **PAGE)

    return at


@pytest.fixture
def with_code_server(vscode_bed: Bed) -> Iterator[Callable[[str], Box]]:
    """A sandbox with this Python program on its PATH as code-server."""
    made: list[Box] = []

    def make(program: str, **fields: Any) -> Box:
        box = vscode_bed.create(env={"PATH": "/workspace/bin:/usr/local/bin:/usr/bin:/bin"}, **fields)
        made.append(box)
        with vscode_bed.api() as api:
            text = f"#!/usr/bin/env python3\n{program}"
            body = {"sandbox_id": box.sandbox_id, "path": "/workspace/bin/code-server", "content": text}
            api.post("/sandboxes/write-file", json=body).raise_for_status()
        box.run("chmod 755 /workspace/bin/code-server")
        return box

    yield make
    for box in made:
        box.delete()
