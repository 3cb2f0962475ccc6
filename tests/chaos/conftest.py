"""The scenes, one for each kind of database and provider, and the table of all that is printed at the end."""

from __future__ import annotations

import functools
import os
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paddock.accounts.first_key import first_key
from paddock.providers.base import Provider
from paddock.providers.docker import DockerProvider
from paddock.providers.local import LocalProvider
from paddock.settings import Settings
from paddock.store.database import Store
from tests.chaos.clock import SharedClock
from tests.chaos.faults import Faults, read_only_postgres, read_only_sqlite
from tests.chaos.herd import Herd
from tests.chaos.output import SPOOL_BYTES
from tests.chaos.scene import Scene
from tests.chaos.shares import kills_of
from tests.chaos.slot import Slot
from tests.chaos.table import table
from tests.docker import engine
from tests.docker.place import Place
from tests.local import traces
from tests.support.small_disk import SmallDisk, small_disk

_DISK_MB = {"local": 4096, "docker": 256}
_INODES = 20_000
"""As few as may be, because all of them are used up again and again."""
_REPORT = "chaos"
_SERVER_TTL_S = 1
_PROVIDERS: dict[str, Callable[[Path], Provider]] = {
    "local": lambda home: LocalProvider(home / "local"),
    "docker": lambda home: DockerProvider(home / "docker", address=engine.address(), images=[engine.DEBIAN]),
}


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    """Of this test's scene; all that run this test share what there is."""
    name = request.node.originalname
    scenes = {item.callspec.params["chaos"] for item in request.session.items if item.originalname == name}
    return kills_of(request.node.callspec.params["chaos"], scenes)


@pytest.fixture(
    params=[
        "local",
        "postgres-two-servers",
        pytest.param("postgres-two-nodes", marks=pytest.mark.exhaustive),
        "docker",
    ]
)
async def chaos(
    request: pytest.FixtureRequest, tmp_path: Path, record_property: Callable[[str, object], None]
) -> AsyncIterator[Scene]:
    kind = "docker" if request.param == "docker" else "local"
    own_nodes = request.param.endswith("two-nodes")
    environment = {
        "SANDBOX_PROVIDER": kind,
        "PADDOCK_SERVER_TTL": str(_SERVER_TTL_S),
        "PADDOCK_SCHEDULER_INTERVAL": "0.1",
        "PADDOCK_RECONCILE_INTERVAL": "1",
        "PADDOCK_BUSY_WAIT": "5",
        "PADDOCK_DEFAULT_DISK_MB": "64",
        "PADDOCK_OUTPUT_SPOOL": str(SPOOL_BYTES),
        "PADDOCK_POOL_MAX": "2",
    }
    if kind == "docker":
        environment |= {"DOCKER_HOST": f"unix://{engine.address().socket}", "PADDOCK_DOCKER_IMAGES": engine.DEBIAN}
    postgres = None
    if "postgres" in request.param:
        postgres = await request.getfixturevalue("postgres").new_database()
        environment["DATABASE_URL"] = postgres
    seed = int(os.environ.get("CHAOS_SEED", random.randrange(1 << 32)))
    print(f"CHAOS_SEED={seed}")
    with _home(tmp_path, kind) as (home, disk):
        homes = [home / name for name in ("one", "two")] if own_nodes else [home]
        environment["PADDOCK_HOME"] = str(homes[0])
        settings = Settings(**environment, _env_file=None)  # type: ignore[arg-type]
        key = (await first_key(settings)).key
        clock, rng = SharedClock(tmp_path / "clock"), random.Random(seed)
        keeps_time = own_nodes or not postgres
        # Servers that share a node need clocks that agree: half of the time they have them, and all is judged.
        sets_clock = keeps_time or rng.random() < 0.5
        slots = [
            Slot(
                environment | {"PADDOCK_HOME": str(homes[number % len(homes)])},
                number,
                tmp_path,
                clock if keeps_time else None,
                published=own_nodes,
            )
            for number in range(2 if postgres else 1)
        ]
        store = Store(settings.database_url)
        read_only = None
        if postgres:
            read_only = functools.partial(read_only_postgres, postgres)
        elif disk:
            read_only = functools.partial(read_only_sqlite, home / "paddock.db")
        machines = kind
        herd = Herd([slot.url for slot in slots], key, rng)
        scene = Scene(
            name=request.param,
            slots=slots,
            store=store,
            providers=[_PROVIDERS[kind](each) for each in homes],
            herd=herd,
            clock=clock,
            faults=Faults(
                slots,
                rng,
                clock,
                disk,
                read_only,
                lambda: herd.successes,
                sets_clock,
                keeps_time,
                herd.at_rest,
                _SERVER_TTL_S,
                machines,
            ),
            seed=seed,
        )
        try:
            yield scene
        finally:
            if scene.places:
                record_property(_REPORT, (scene.name, scene.report()))
            for slot in slots:
                if slot.alive:
                    await slot.dead(within=0)
            await store.close()
            for provider, each in zip(scene.providers, homes, strict=True):
                await _nothing_stays(provider, each)


@contextmanager
def _home(folder: Path, kind: str) -> Iterator[tuple[Path, SmallDisk | None]]:
    """Of the servers: on a file system of its own where one can be mounted."""
    if os.geteuid() != 0:
        yield folder, None
        return
    with small_disk(folder, _DISK_MB[kind], inodes=_INODES) as disk:
        home = disk.path / "home"
        home.mkdir(mode=0o700)
        yield home, disk


async def _nothing_stays(provider: Provider, home: Path) -> None:
    """What so many deaths have left half made is cleared away by the next server, and the rest by deleting it."""
    for draft in (home / provider.name / "drafts").iterdir():
        os.utime(draft, (0, 0))  # until then it could be a living server's
    await provider.start()
    for found in await provider.list():
        await provider.delete(found.sandbox_id)
    for shape, count in (await provider.warmed()).items():
        await provider.cool(shape, count)
    await provider.list()  # the second look, at which what is nobody's goes
    await provider.close()
    if isinstance(provider, LocalProvider):
        await traces.until_nothing(home / "local")
    else:
        assert Place(home, engine.address()).leftovers() == []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Where servers died, and what else happened, whatever is captured."""
    reports = [report for group in terminalreporter.stats.values() for report in group]
    told = [pair for report in reports for pair in getattr(report, "user_properties", ())]
    found = dict(value for name, value in told if name == _REPORT)
    if found:
        terminalreporter.section("chaos")
        for line in table(found):
            terminalreporter.write_line(line)
