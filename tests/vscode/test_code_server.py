"""The real code-server. Compiling it takes over a minute, so only on request: ``PADDOCK_TEST_VSCODE=1``."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from paddock.addons.shelf import Shelf
from paddock.addons.vscode import VsCode
from tests.gateway.bed import running

ADDONS = Path(__file__).resolve().parents[2] / "build" / "addons-vscode"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not os.environ.get("PADDOCK_TEST_VSCODE"), reason="takes minutes: PADDOCK_TEST_VSCODE=1 runs it"
    ),
]


@pytest.mark.timeout(900)
def test_the_workbench_opens_on_the_workspace(tmp_path: Path) -> None:
    shelf = Shelf(ADDONS)
    if shelf.installed("vscode") is None:
        shelf.install(VsCode(), lambda line: None)
    (tmp_path / "addons").symlink_to(ADDONS)
    with running(tmp_path, "local") as bed:
        box = bed.create(resources={"memory_mb": 1024})
        with box.visitor(9000, Accept="text/html") as browser:
            deadline = time.monotonic() + 120
            while (page := browser.get("/")).status_code == 503 and time.monotonic() < deadline:
                time.sleep(0.5)
            assert page.status_code == 302
            assert "folder=/workspace" in page.headers["location"]
            workbench = browser.get(page.headers["location"].removeprefix("."))
        assert workbench.status_code == 200
        assert "code-server" in workbench.text
