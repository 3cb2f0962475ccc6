"""Installs the client's wheel in a clean environment and tries what needs no server: ``try_client.py FOLDER``.

For the systems where no server runs. Nothing but Python is needed, and no shell.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

_SERVERS = {"fastapi", "uvicorn", "uvloop", "sqlalchemy", "asyncpg", "mcp"}

_LIBRARY = """
import importlib.metadata, asyncio
from paddock import SandboxClient, SandboxSession, SyncSandboxClient, __version__
from paddock.client import ServerUnreachable
assert importlib.metadata.version("paddock-client") == __version__
names = {one.metadata["Name"].lower() for one in importlib.metadata.distributions()}
assert not names & set(%r), names
try:
    SyncSandboxClient("http://127.0.0.1:9", retries=0).health()
except ServerUnreachable as error:
    print(error)
async def main():
    try:
        await SandboxClient("http://127.0.0.1:9", retries=0).health()
    except ServerUnreachable as error:
        print(error)
asyncio.run(main())
"""


def main(folder: Path) -> None:
    (wheel,) = folder.resolve().glob("paddock_client-*.whl")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        venv.create(place, with_pip=True)
        programs = Path(place, "Scripts" if sys.platform == "win32" else "bin")
        python = programs / "python"
        _run(python, "-m", "pip", "install", "--quiet", wheel)
        _run(python, "-c", _LIBRARY % sorted(_SERVERS))
        assert "paddock-client[cli]" in _run(programs / "paddock", "list", code=1)
        _run(python, "-m", "pip", "install", "--quiet", f"{wheel}[cli]")
        assert "Sandboxes" in _run(programs / "paddock", "--help")
        assert "127.0.0.1:9" in _run(programs / "paddock", "list", "--server", "http://127.0.0.1:9", code=1)
        assert "paddock-sandbox" in _run(programs / "paddock", "up", code=1)


def _run(*argv: str | Path, code: int = 0) -> str:
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    sys.stderr.write(f"$ {' '.join(str(word) for word in argv)[:120]}\n{said}")
    assert done.returncode == code, f"exit code {done.returncode}"
    return said


if __name__ == "__main__":
    main(Path(sys.argv[1]))
