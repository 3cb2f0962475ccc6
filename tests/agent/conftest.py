"""The agent itself, built from its sources, running without a sandbox: what it promises does not need one."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.agent.client import Client, names_in

SOURCES = Path(__file__).parents[2] / "agent"


def build(name: str) -> Path:
    """By the Makefile, one builder at a time; nothing is done when nothing changed."""
    if not shutil.which("make") or not shutil.which(os.environ.get("CC", "cc")):
        pytest.skip("no make or no C compiler here")
    own = os.access(SOURCES, os.W_OK)
    folder = SOURCES / "build" if own else Path(tempfile.gettempdir(), f"paddock-agent-build-{os.getuid()}")
    folder.mkdir(mode=0o700 if not own else 0o755, exist_ok=True)
    assert folder.stat().st_uid in (os.getuid(), 0)
    command = ["make", "-s", "-C", str(SOURCES), f"BUILD={folder}", str(folder / name)]
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / name


@pytest.fixture(scope="session")
def plain_binary() -> Path:
    return build("paddock-agent")


@pytest.fixture(params=["normal", pytest.param("sanitized", marks=[pytest.mark.slow, pytest.mark.exhaustive])])
def binary(request: pytest.FixtureRequest, plain_binary: Path) -> Path:
    """Every test of the protocol also runs under the sanitizers."""
    return plain_binary if request.param == "normal" else build("paddock-agent-sanitized")


class Running:
    """An agent and its state directory; it can be killed and started again."""

    def __init__(self, binary: Path, folder: Path, *options: str, descriptors: Sequence[int] = ()) -> None:
        self.binary = binary
        self.folder = folder
        self.options = options
        self.given = descriptors
        self.state = folder / "state"
        self.state.mkdir(exist_ok=True)
        self.path = str(folder / "agent.sock")
        self.process: subprocess.Popen[bytes] | None = None
        self._closing = ExitStack()

    def start(self) -> None:
        """Connections can be made at once: the socket listens before the agent begins."""
        Path(self.path).unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener, (self.folder / "stderr").open("ab") as errors:
            listener.bind(self.path)
            listener.listen(64)
            state = os.open(self.state, os.O_RDONLY | os.O_DIRECTORY)
            serve = ["serve", "--listen", str(listener.fileno()), "--state", str(state), "--mode", "plain"]
            command = [str(self.binary), *serve, *self.options]
            try:
                self.process = subprocess.Popen(
                    command, pass_fds=[listener.fileno(), state, *self.given], stderr=errors
                )
            finally:
                os.close(state)

    @property
    def pid(self) -> int:
        assert self.process
        return self.process.pid

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def connect(self, **options: Any) -> Client:
        client = Client(self.path, **options)
        self._closing.callback(client.close)
        return client

    def kill(self) -> None:
        assert self.process
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """What it started goes too; and whatever a sanitizer has said comes out here."""
        was_alive = self.alive()
        self._closing.close()
        if was_alive:
            for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
                with suppress(ProcessLookupError):
                    os.killpg(int(child), signal.SIGKILL)
            if "sanitized" in self.binary.name:
                assert self.process
                self.process.terminate()  # it then looks for memory that was lost
                self.process.wait(20)
            else:
                self.kill()
        said = (self.folder / "stderr").read_text(errors="replace")
        assert "Sanitizer" not in said and "runtime error" not in said, said
        assert was_alive or not self.process, f"the agent has ended by itself: {said}"

    def descriptors(self) -> int:
        return len(names_in(f"/proc/{self.pid}/fd"))


Starter = Callable[..., Running]


@pytest.fixture
def start(binary: Path) -> Iterator[Starter]:
    """Starts agents, with extra options."""
    # A socket's path is at most 107 bytes, and pytest's are longer.
    folder = Path("/tmp") / f"paddock-agent-{uuid.uuid4().hex[:12]}"
    folder.mkdir(mode=0o700)
    running: list[Running] = []

    def begin(*options: str, descriptors: Sequence[int] = ()) -> Running:
        own = folder / str(len(running))
        own.mkdir()
        running.append(Running(binary, own, *options, descriptors=descriptors))
        running[-1].start()
        return running[-1]

    try:
        yield begin
        for agent in running:
            agent.stop()
    finally:
        for agent in running:
            if agent.alive():
                agent.kill()
        subprocess.run(["rm", "-rf", folder], check=True)


@pytest.fixture
def agent(start: Starter) -> Running:
    return start()


@pytest.fixture
def client(agent: Running) -> Client:
    return agent.connect()
