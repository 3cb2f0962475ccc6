"""README's own example: `uv` comes with pip from the package index, and `uvx` runs an MCP server of it."""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx
import pytest

from paddock.client import SyncSandboxClient
from tests.cli.conftest import Paddock
from tests.support.serving import serving
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_README = Path(__file__).parents[2].joinpath("README.md").read_text()
_INDEX = os.environ.get("PIP_INDEX_URL") or "https://pypi.org/simple"
_HREF = re.compile(r'href="([^"]+)"')
_SECONDS = 20.0


@pytest.fixture(scope="module")
def index_hosts() -> str:
    """Where packages are listed and kept, as `PADDOCK_EGRESS_REACHABLE` takes them: an index may be at an address that
    is nobody's in public. Skips where there is none."""
    if not Path("/usr/bin/pip3").exists():
        pytest.skip("the host itself has no pip")
    page = f"{_INDEX.rstrip('/')}/uv/"
    try:
        # As pip does, and with the roots of this machine
        found = httpx.get(page, timeout=_SECONDS, follow_redirects=True, verify=ssl.create_default_context())
        found.raise_for_status()
    except httpx.HTTPError as problem:
        pytest.skip(f"no package index answers here: {problem!r}")
    urls = {page, *(urljoin(page, link) for link in _HREF.findall(found.text))}
    return ",".join(sorted({str(urlsplit(url).hostname) for url in urls}))


def _as_readme_says(command: str) -> list[str]:
    """The words of a line of README, without its comment."""
    assert f"\n$ {command}" in _README, "README says it otherwise"
    return command.split()


def test_uvx_runs_a_server_as_readme_says(tmp_path: Path, index_hosts: str) -> None:
    roots = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile or ""
    own_roots = {"SSL_CERT_FILE": roots} if roots.startswith(("/etc/", "/usr/")) else {}
    index = {} if "PIP_INDEX_URL" not in os.environ else {"PIP_INDEX_URL": _INDEX, "UV_DEFAULT_INDEX": _INDEX}
    with (
        serving(tmp_path / "home", PADDOCK_EGRESS_REACHABLE=index_hosts) as server,
        SyncSandboxClient(server.url, api_key=server.key) as client,
    ):
        # uv brings roots of its own, which do not know those of a network that looks into TLS
        box = client.create_sandbox("newcomer", "host", env={**own_roots, **index}).sandbox_id
        paddock = Paddock(tmp_path, server.url, server.key)
        assert _as_readme_says("paddock exec $ID -- 'pip install uv'")
        paddock("exec", box, "--timeout", "300", "--", "pip install uv")
        words = _as_readme_says("paddock mcp add $ID time -- uvx mcp-server-time")
        paddock(*(box if word == "$ID" else word for word in words[1:]))
        wait_until(lambda: client.get_mcp_server(box, "time").status == "ready" or None)
        said = client.call_tool(box, "mcp_time_get_current_time", {"timezone": "UTC"})
        assert not said.failed and "UTC" in said.text, said.text
