"""The TypeScript SDK under node: it is told of changes, and its program ends when it is done."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.daytona.environments import JAVASCRIPT, Unavailable, prepare_javascript
from tests.e2b.server import PaddockServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

_SCRIPTS = Path(__file__).parent / "javascript"
_PATIENCE_S = 150
"""Where the handshake is refused, the SDK's own tries keep the program alive for longer than that."""


def test_a_program_hears_of_changes_and_ends_by_itself(local_server: PaddockServer) -> None:
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("needs node and npm")
    try:
        prepare_javascript(JAVASCRIPT)
    except Unavailable as error:
        pytest.skip(f"Daytona's SDK cannot be installed: {error}")
    script = shutil.copy(_SCRIPTS / "life.mjs", JAVASCRIPT.folder)
    environment = {
        "PATH": os.environ["PATH"],
        "DAYTONA_API_KEY": local_server.key,
        "DAYTONA_API_URL": f"{local_server.url}/daytona/api",
    }
    done = subprocess.run(["node", script], env=environment, capture_output=True, text=True, timeout=_PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    assert said["file"] == "user:640"
    assert said["states"] == ["started", "stopping", "stopped", "destroying", "destroyed"]
    assert "key" in said["refused"]
