"""The SDK is imported when it is needed, by whichever thread needs it first."""

from __future__ import annotations

import subprocess
import sys

_AT_ONCE = """
import asyncio
from paddock.mcp.endpoint import sdk

async def main():
    await asyncio.gather(*map(sdk, ["paddock.mcp.relay.session", "paddock.mcp.relay.stdio", "paddock.mcp.server"]))

asyncio.run(main())
"""


def test_modules_that_need_it_can_be_imported_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", _AT_ONCE], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
