"""One server, one sandbox with a site in it, and one Chromium for all tests of a process."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.browser.addon import installed
from tests.gateway.bed import Bed, Box, running

SITE = Path(__file__).with_name("site.py").read_text()
URL = "http://localhost:3000"
WAIT = """python3 - <<'END'
import socket, time
while socket.socket().connect_ex(("127.0.0.1", 3000)): time.sleep(0.05)
END"""


@dataclass(frozen=True, slots=True)
class Answer:
    failed: bool
    text: str
    data: dict[str, Any]
    pictures: list[Image.Image]


@dataclass(frozen=True, slots=True)
class Visitor:
    """Somebody who uses the browser of a sandbox by its tools."""

    box: Box

    def tool(self, name: str, **arguments: Any) -> Answer:
        """Its answer, whatever that is."""
        with self.box.bed.api() as api:
            path = f"/sandboxes/{self.box.sandbox_id}/tools/{name}"
            said = api.post(path, json={"arguments": arguments}, timeout=180).raise_for_status().json()
        pictures = [Image.open(io.BytesIO(base64.b64decode(one["data"]))) for one in said["pictures"]]
        return Answer(said["failed"], said["text"], said["data"] or {}, pictures)

    def do(self, name: str, **arguments: Any) -> Answer:
        """The same where it must succeed."""
        answer = self.tool(name, **arguments)
        assert not answer.failed, answer.text
        return answer

    def value(self, expression: str) -> Any:
        return self.do("browser_evaluate", expression=expression).data["value"]


@pytest.fixture(scope="session")
def browser_bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    addons = installed()
    home = tmp_path_factory.mktemp("browser")
    (home / "addons").symlink_to(addons)
    with running(home, "local") as bed:
        yield bed


@pytest.fixture(scope="session")
def browser_box(browser_bed: Bed) -> Box:
    box = browser_bed.create(resources={"memory_mb": 1024})
    with browser_bed.api() as api:
        body = {"sandbox_id": box.sandbox_id, "path": "/workspace/site.py", "content": SITE}
        api.post("/sandboxes/write-file", json=body).raise_for_status()
    box.run("python3 /workspace/site.py", background=True)
    box.run(WAIT, timeout=60)
    return box


@pytest.fixture
def visitor(browser_box: Box) -> Visitor:
    """At the site's first page, in one tab."""
    visitor = Visitor(browser_box)
    visitor.do("browser_navigate", url=URL, screenshot=False)
    while len(tabs := visitor.do("browser_tabs").data["tabs"]) > 1:
        visitor.do("browser_tabs", action="close", index=tabs[-1]["index"])
    visitor.do("browser_navigate", url=URL, screenshot=False)
    return visitor
