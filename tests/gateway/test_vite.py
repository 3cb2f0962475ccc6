"""A real Vite dev server in a sandbox, seen in a real browser: an edited file shows in the page without a reload."""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

import pytest

from tests.e2b.environments import Environment, Language
from tests.gateway.bed import Bed, Box
from tests.gateway.browser import CHROMIUM, chromium
from tests.mcp.environments import prepared
from tests.support.waiting import PATIENCE_S

PORT = 5173
VITE = Environment("vite", Language.JAVASCRIPT, ("vite",))
INDEX = '<!doctype html><title>Vite</title><h1 id="said"></h1><script type="module" src="/main.js"></script>'
MAIN = """
import { said } from './said.js'
const show = (text) => { document.querySelector('#said').textContent = text }
show(said)
window.loads = performance.timeOrigin
if (import.meta.hot) import.meta.hot.accept('./said.js', (changed) => show(changed.said))
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With Vite in it, from npm."""
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    folder = tmp_path_factory.mktemp("project") / "project"
    shutil.copytree(prepared(VITE).folder, folder, symlinks=True)
    (folder / "index.html").write_text(INDEX)
    (folder / "main.js").write_text(MAIN)
    (folder / "said.js").write_text("export const said = 'before'\n")
    return folder


@pytest.fixture(scope="module")
def dev_server(local_bed: Bed, project: Path) -> Box:
    """No setting for our sake: Vite itself lets hosts below ``localhost`` in."""
    box = local_bed.create(resources={"memory_mb": 1024, "disk_mb": 2048})
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(project, "project")
    with local_bed.api() as api:
        path = f"/sandboxes/{box.sandbox_id}/files"
        api.put(path, params={"path": "/workspace/project.tar"}, content=packed.getvalue()).raise_for_status()
    box.run("tar -xf project.tar --no-same-owner", timeout=120)
    box.run(f"cd project && node node_modules/vite/bin/vite.js --port {PORT} > ../log 2>&1", background=True)
    # It listens on whichever loopback address "localhost" is first.
    ready = "until grep -q Local: log; do sleep 0.1; done; echo ready"
    assert box.run(ready, timeout=PATIENCE_S) == "ready\n", box.run("cat log")
    return box


async def test_an_edit_shows_in_the_page_without_a_reload(dev_server: Box, tmp_path: Path) -> None:
    with dev_server.bed.api() as api:
        body = {"sandbox_id": dev_server.sandbox_id, "port": PORT}
        url = api.post("/sandboxes/expose-port", json=body).raise_for_status().json()["url"]
    async with chromium(tmp_path / "profile") as page:
        await page.open(url)
        await page.until("document.querySelector('#said')?.textContent === 'before'")
        assert "paddock_link" not in await page.evaluate("location.href")
        loaded = await page.evaluate("window.loads")
        dev_server.run("printf \"export const said = 'after'\\n\" > project/said.js")
        await page.until("document.querySelector('#said').textContent === 'after'")
        assert await page.evaluate("window.loads") == loaded
        assert await page.evaluate("document.cookie") == "", "the page cannot read the gateway's cookie"
        await page.screenshot(tmp_path / "after.png")
    assert (tmp_path / "after.png").stat().st_size > 1000


async def test_people_see_a_page_where_there_is_nothing_yet(dev_server: Box, tmp_path: Path) -> None:
    with dev_server.bed.api() as api:
        body = {"sandbox_id": dev_server.sandbox_id, "port": 4444}
        url = api.post("/sandboxes/expose-port", json=body).raise_for_status().json()["url"]
    async with chromium(tmp_path / "profile") as page:
        await page.open(url)
        await page.until("document.title.startsWith('Nothing listens on port 4444 yet')")
        await page.screenshot(tmp_path / "closed.png")
        dev_server.run("python3 -m http.server 4444 --bind 127.0.0.1", background=True)
        await page.until("document.title.startsWith('Directory listing')")
