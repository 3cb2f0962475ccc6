"""Whether the engine sees our files is tried, not guessed from its socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from paddock import errors
from paddock.providers.docker.address import Address
from paddock.providers.docker.agent_volume import engine_sees
from paddock.providers.docker.engine import DockerEngine, EngineNotFound
from tests.docker.fake_engine import FakeEngine, Said

_REFUSED = 'invalid mount config for type "bind": bind source path does not exist: /home/x'


class _Looking(FakeEngine):
    """Finds the file that it is asked for only where it shares the directory."""

    def __init__(self, folder: Path, *, shares: bool, create: Said = (201, {"Id": "x"})) -> None:
        super().__init__(folder, {"POST /containers/create": create})
        self._shares = shares

    def answer(self, request: str) -> Said | None:
        if request.startswith("HEAD ") and self._shares:
            return 200, None
        return (204, None) if request.startswith("DELETE ") else None


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    made = tmp_path / "births"
    made.mkdir()
    yield made
    assert list(made.iterdir()) == []


async def _asked(fake: FakeEngine, folder: Path) -> bool:
    engine = DockerEngine(Address.parse(fake.host))
    try:
        return await engine_sees(engine, "installation", folder, "python:3.12")
    finally:
        await engine.close()


@pytest.mark.parametrize("shares", [True, False])
async def test_the_engine_looks_for_a_file_of_ours(tmp_path: Path, folder: Path, shares: bool) -> None:
    with _Looking(tmp_path, shares=shares) as fake:
        assert await _asked(fake, folder) is shares
        [body] = [body for body in fake.bodies if body]
        [mount] = body["HostConfig"]["Mounts"]
        assert Path(mount["Source"]).parent == folder
        assert [line.split()[0] for line in fake.asked] == ["POST", "HEAD", "DELETE"]
        assert not any("/start" in line for line in fake.asked)


async def test_an_engine_without_the_directory_does_not_see_it(tmp_path: Path, folder: Path) -> None:
    with _Looking(tmp_path, shares=True, create=(400, {"message": _REFUSED})) as fake:
        assert not await _asked(fake, folder)


@pytest.mark.parametrize(
    ("create", "error"),
    [((404, {"message": "No such image"}), EngineNotFound), ((500, {"message": "boom"}), errors.ProviderUnavailable)],
)
async def test_other_trouble_tells_nothing(
    tmp_path: Path, folder: Path, create: Any, error: type[errors.PaddockError]
) -> None:
    with _Looking(tmp_path, shares=True, create=create) as fake, pytest.raises(error):
        await _asked(fake, folder)
