"""The real code-server, in a real browser, through the gateway: what a person does in it happens in the sandbox.

Compiling it takes over a minute, so only on request: ``PADDOCK_TEST_VSCODE=1``. The picture that is taken at the end
is kept under ``build/``, to be looked at.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.addons.addon_store import AddonStore
from paddock.addons.vscode import VsCode
from tests.browser.addon import installed
from tests.gateway.bed import Bed, Box, running
from tests.gateway.browser import CHROMIUM, Page, chromium

BUILD = Path(__file__).resolve().parents[2] / "build"
ADDONS = BUILD / "addons-vscode"
SECONDS = 180

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not os.environ.get("PADDOCK_TEST_VSCODE"), reason="takes minutes: PADDOCK_TEST_VSCODE=1 runs it"
    ),
]

TREE = "document.querySelector('.explorer-folders-view')?.innerText.includes('hello.py')"
FILE = "[...document.querySelectorAll('.explorer-folders-view .monaco-list-row')].find(r => /hello/.test(r.innerText))"
EDITOR = "document.querySelector('.monaco-editor .view-lines')?.innerText.replaceAll('\\u00a0', ' ').includes(%r)"


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    addon_store = AddonStore(ADDONS)
    if addon_store.installed("vscode") is None:
        addon_store.install(VsCode(), lambda line: None)
    (tmp_path / "addons").symlink_to(ADDONS)
    with running(tmp_path, "local") as made:
        yield made


async def test_a_person_sees_the_files_edits_one_and_uses_a_terminal(bed: Bed, tmp_path: Path) -> None:
    program = CHROMIUM or str(installed() / "browser/current/bin/chromium")
    with bed.api() as api:
        asked = {"user_id": "alice", "resources": {"memory_mb": 1536}}
        made = api.post("/sandboxes/create", json=asked).raise_for_status().json()
    box = Box(bed, made["sandbox_id"], made["key"])
    box.run("echo 'print(\"hello from the editor\")' > /workspace/hello.py")
    async with chromium(tmp_path / "profile", program) as page:
        await page.resize(1280, 800)
        await page.open(made["vscode_url"])
        try:
            await _work(page, box)
        finally:
            await page.screenshot(BUILD / "vscode.png")
    box.delete()


async def _work(page: Page, box: Box) -> None:
    await page.until(TREE)
    await page.click(FILE)
    await page.until(EDITOR % "hello from the editor")
    await page.click("document.querySelector('.monaco-editor .view-lines')")
    await page.press("Home", ctrl=True)
    await page.write("# written in the browser\n")
    await page.press("s", ctrl=True)
    await _holds(box, "/workspace/hello.py", '# written in the browser\nprint("hello from the editor")')
    await page.press("`", ctrl=True)
    await page.until("document.querySelector('.terminal .xterm-screen') !== null")
    await page.until("document.activeElement?.classList.contains('xterm-helper-textarea')")
    await page.write('echo "$(whoami) in $(pwd)" > from-the-terminal.txt')
    await page.press("Enter")
    await _holds(box, "/workspace/from-the-terminal.txt", "user in /workspace")


async def _holds(box: Box, path: str, content: str) -> None:
    async with asyncio.timeout(SECONDS):
        while content not in (found := box.run(f"cat {path} 2>/dev/null")):
            await asyncio.sleep(0.2)
    assert content in found
