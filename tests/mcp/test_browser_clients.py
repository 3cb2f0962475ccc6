"""The browser's tools over MCP: all of them by the newest SDK, and a few by every other client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.addon import installed
from tests.e2b.server import PaddockServer, delete_all
from tests.mcp import travellers
from tests.mcp.browser_tour import GLANCE, PAGE, SERVER, TOUR
from tests.mcp.calls import judge
from tests.mcp.world import Box, create

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the first test waits for the install


@pytest.fixture(scope="module")
def browsing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """A sandbox of a server that has the add-on."""
    addons = installed()
    home = tmp_path_factory.mktemp("paddock") / "home"
    home.mkdir(mode=0o700)
    (home / "addons").symlink_to(addons)
    server = PaddockServer(home)
    server.start()
    try:
        yield create(server, resources={"memory_mb": 1024})
    finally:
        try:
            delete_all(server)
        finally:
            server.stop()


@pytest.fixture(scope="module")
def site(browsing: Box) -> Box:
    browsing.write("/workspace/page.html", PAGE)
    browsing.write("/workspace/server.py", SERVER)
    task = browsing.call("run_command", command="python3 server.py", background=True)["data"]["task_id"]
    assert "listening" in browsing.call("task_output", task_id=task, stdout_offset=0, wait=60)["text"]
    return browsing


async def test_the_newest_sdk_calls_every_tool_of_the_browser(site: Box) -> None:
    judge(TOUR, await travellers.newest(site, "auto", TOUR))


async def test_every_other_client_can_use_the_browser(site: Box) -> None:
    judge(GLANCE, await travellers.newest(site, "legacy", GLANCE))
    for client in (travellers.sdk_before_2, travellers.langchain, travellers.javascript):
        judge(GLANCE, client(site, GLANCE)["answers"])
