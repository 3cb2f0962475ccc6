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
    server = PaddockServer(home, PADDOCK_MCP_TOOLS="default,-files,-mcp_*")
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


async def test_the_browser_is_listed_where_it_is_installed_and_the_operator_says_what_else(browsing: Box) -> None:
    async with browsing.client() as client:
        listed = {tool.name for tool in (await client.list_tools()).tools}
    assert {"browser_navigate", "run_command"} <= listed and not {"read_file", "claude_code"} & listed


async def test_a_model_is_sent_the_picture_and_the_text(site: Box) -> None:
    async with site.client() as client:
        page = await client.call_tool("browser_navigate", {"url": GLANCE[0].arguments["url"]})
    assert [block.type for block in page.content] == ["text", "image"] and page.structured_content is None


@pytest.mark.exhaustive
async def test_every_other_client_can_use_the_browser(site: Box) -> None:
    judge(GLANCE, await travellers.newest(site, "legacy", GLANCE))
    for client in (travellers.sdk_before_2, travellers.langchain, travellers.javascript):
        judge(GLANCE, client(site, GLANCE)["answers"])
