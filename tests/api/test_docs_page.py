"""``/docs`` works on a machine without the internet."""

from __future__ import annotations

import hashlib
import re

import httpx

from paddock.api.docs_page import VENDORED
from tests.api.conftest import assert_error


async def test_the_page_asks_nobody_else_for_anything(stranger: httpx.AsyncClient) -> None:
    page = await stranger.get("/docs")
    assert page.status_code == 200
    assert "validatorUrl: null" in page.text, "Swagger UI would send the document to a validator elsewhere"
    for address in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert address.startswith(("/docs/", "data:"))
        if address.startswith("/"):
            assert (await stranger.get(address)).status_code == 200


async def test_nothing_else_of_the_folder_is_served(stranger: httpx.AsyncClient) -> None:
    for name in ("VENDORED.md", "..%2f..%2fapp.py"):
        answer = await stranger.get(f"/docs/{name}")
        assert_error(answer, answer.status_code)
        assert answer.status_code in (404, 422)


def test_what_is_vendored_is_what_was_recorded() -> None:
    recorded = re.findall(r"\| `(\S+)` \| `([0-9a-f]{64})` \|", (VENDORED / "VENDORED.md").read_text())
    assert len(recorded) == 2
    for name, digest in recorded:
        assert hashlib.sha256((VENDORED / name).read_bytes()).hexdigest() == digest
