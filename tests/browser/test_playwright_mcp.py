"""Playwright's own MCP server, relayed: a user's stdio server from npm that drives the browser of the sandbox."""

from __future__ import annotations

import pytest

from tests.browser.conftest import URL, WAIT
from tests.e2b.environments import Environment, Language
from tests.gateway.bed import Bed
from tests.mcp.environments import prepared
from tests.support.waiting import PATIENCE_S, wait_until

PLAYWRIGHT = Environment("mcp-playwright", Language.JAVASCRIPT, ("@playwright/mcp@0.0.83",))

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_its_tools_are_the_sandboxes_and_see_its_pages(browser_bed: Bed) -> None:
    folder = prepared(PLAYWRIGHT).folder
    mount = {"source": str(folder), "target": str(folder), "read_only": True}
    box = browser_bed.create(resources={"memory_mb": 1024}, mounts=[mount])
    box.run("mkdir -p site && echo '<h1>In the paddock</h1>' > site/index.html")
    box.run("python3 -m http.server 3000 --directory site", background=True)
    box.run(WAIT, timeout=60)
    chromium = box.run("command -v chromium /opt/paddock/browser/bin/chromium | head -n 1").strip()
    words = ["--headless", "--isolated", "--no-sandbox", "--executable-path", chromium]
    server = {"command": "node", "args": [str(folder / "node_modules/@playwright/mcp/cli.js"), *words]}
    with browser_bed.api() as api:
        place = f"/sandboxes/{box.sandbox_id}"
        api.put(f"{place}/mcp-servers/web", json=server).raise_for_status()
        wait_until(lambda: api.get(f"{place}/mcp-servers/web").json()["status"] == "ready")
        assert "mcp_web_browser_navigate" in {tool["name"] for tool in api.get(f"{place}/tools").json()["tools"]}
        for name, arguments in (("navigate", {"url": URL}), ("snapshot", {})):
            path = f"{place}/tools/mcp_web_browser_{name}"
            said = api.post(path, json={"arguments": arguments}, timeout=PATIENCE_S).raise_for_status().json()
            assert not said["failed"], said["text"]
    assert "In the paddock" in said["text"]
