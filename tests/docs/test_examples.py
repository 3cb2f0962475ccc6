"""Every example of README and docs does what it says, typed by a reader against a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.examples import examples, pages
from tests.docs.not_run import NOT_RUN, reason
from tests.docs.reader import FILES, Reader, programs
from tests.e2b.server import PaddockServer, delete_all

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # the first one waits for a server to start

PAGES = [page for page in pages() if examples(page)]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reader")


@pytest.fixture(scope="session")
def server(home: Path) -> Iterator[PaddockServer]:
    """With its state where it is by itself: below the reader's home."""
    server = PaddockServer(home / ".local" / "share" / "paddock", PADDOCK_POOL_SIZE="1")
    server.start()
    try:
        yield server
    finally:
        try:
            delete_all(server)
        finally:
            server.stop()


@pytest.fixture
def reader(server: PaddockServer, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reader:
    folder = tmp_path / "here"
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_text(content)
    made = Reader(server, home, folder, programs(tmp_path / "bin"))
    (folder / ".venv").mkdir()
    (folder / ".venv" / "bin").symlink_to(made.programs)
    for name in ("PADDOCK_HOME", "PADDOCK_API_KEY", "SANDBOX_HOST", "SANDBOX_PORT", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)
    return made


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_do_what_they_say(page: str, reader: Reader) -> None:
    for example in examples(page):
        reader.follow(example)
    if reader.left_out:
        pytest.skip("; ".join(reader.left_out))


def test_every_reason_for_not_running_something_is_still_needed() -> None:
    used: set[str] = set()
    for page in PAGES:
        for example in examples(page):
            reason(example.text, used)
    assert used == set(NOT_RUN), f"nothing is left of {sorted(set(NOT_RUN) - used)}"
