"""Folders made in advance: each is handed out at most once, and a crash leaves none behind that is half of anything."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from paddock import errors
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.providers.base import IsolationLevel, Mount, Resources, SandboxSpec, Shape
from paddock.providers.fake import FakeProvider, FaultKind, Faults
from tests.conformance.shell import Shell
from tests.providers.test_fake import run_server

SHAPE = Shape("host", 1024)
SPEC = SandboxSpec("tester_0000000a", "key", "owner", "tester", "host")


@pytest.fixture
def faults() -> Faults:
    return Faults()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "fake"


@pytest.fixture
async def provider(home: Path, faults: Faults) -> AsyncIterator[FakeProvider]:
    made = FakeProvider(home, faults=faults)
    await made.start()
    yield made
    faults.clear()
    for found in await made.list():
        await made.delete(found.sandbox_id)


def spec(number: int) -> SandboxSpec:
    return replace(SPEC, sandbox_id=f"tester_{number:08x}")


def folders(home: Path) -> list[str]:
    """Whatever is there that is not a sandbox."""
    return sorted(path.name for path in home.iterdir() if path.name.startswith(".") and path.name != ".warm")


async def test_what_is_warm_is_no_sandbox_until_a_create_takes_it(provider: FakeProvider) -> None:
    await provider.warm(SHAPE)
    await provider.warm(SHAPE)
    assert await provider.warmed() == {SHAPE: 2}
    assert await provider.list() == []
    await provider.create(SPEC)
    assert await provider.warmed() == {SHAPE: 1}
    assert [found.sandbox_id for found in await provider.list()] == [SPEC.sandbox_id]
    ended = await Shell(await provider.attach(SPEC.sandbox_id)).run("echo here")
    assert ended.out == b"here\n"


async def test_another_shape_is_left_alone(provider: FakeProvider) -> None:
    await provider.warm(Shape("host", 77))
    await provider.create(SPEC)
    assert await provider.warmed() == {Shape("host", 77): 1}
    await provider.create(replace(spec(2), resources=Resources(disk_mb=77)))
    assert await provider.warmed() == {}


async def test_a_create_that_is_made_again_takes_no_second_one(provider: FakeProvider) -> None:
    for _ in range(2):
        await provider.warm(SHAPE)
    await provider.create(SPEC)
    await provider.create(SPEC)
    assert await provider.warmed() == {SHAPE: 1}


async def test_cooling_ends_so_many_and_no_more(provider: FakeProvider, home: Path) -> None:
    for _ in range(3):
        await provider.warm(SHAPE)
    await provider.cool(SHAPE, 2)
    assert await provider.warmed() == {SHAPE: 1}
    await provider.cool(SHAPE, 9)
    assert await provider.warmed() == {}
    assert folders(home) == []


def test_of_many_servers_that_take_at_once_each_gets_its_own(home: Path) -> None:
    """Threads with a provider each, as processes would be: only the file system is between them."""

    def serve(number: int) -> str:
        provider = FakeProvider(home)
        asyncio.run(provider.create(spec(number)))
        return str((home / f"tester_{number:08x}" / "root").stat().st_ino)

    first = FakeProvider(home)
    asyncio.run(first.start())
    for _ in range(6):
        asyncio.run(first.warm(SHAPE))
    made_in_advance = {str((path / "root").stat().st_ino) for path in (home / ".warm").iterdir()}
    with ThreadPoolExecutor(12) as threads:
        roots = list(threads.map(serve, range(12)))
    assert len(set(roots)) == 12, "one folder was handed out twice"
    assert made_in_advance <= set(roots), "one was not used"
    assert asyncio.run(first.warmed()) == {}
    assert folders(home) == []


@pytest.mark.parametrize("kind", ["CRASH_BEFORE", "CRASH_AFTER"])
async def test_a_crash_between_taking_and_handing_out_loses_one_folder_and_leaks_none(
    provider: FakeProvider, home: Path, kind: str
) -> None:
    await provider.warm(SHAPE)
    await provider.warm(SHAPE)
    died = run_server(
        """
        provider = FakeProvider(Path(sys.argv[1]), faults=Faults().add("publish", FaultKind[sys.argv[2]]))
        asyncio.run(provider.create(SPEC))
        """,
        home,
        kind,
    )
    assert died.returncode == -signal.SIGKILL
    assert await provider.warmed() == {SHAPE: 1}
    await FakeProvider(home).start()
    assert folders(home) == []
    await provider.create(SPEC)  # the same create, made again after the restart
    assert [found.sandbox_id for found in await provider.list()] == [SPEC.sandbox_id]
    assert await provider.warmed() == ({} if kind == "CRASH_BEFORE" else {SHAPE: 1})


async def test_a_server_that_starts_leaves_alone_what_another_is_making(
    provider: FakeProvider, faults: Faults, home: Path
) -> None:
    await provider.warm(SHAPE)
    faults.add("publish", FaultKind.SLOW, seconds=0.2)
    making = asyncio.create_task(provider.create(SPEC))
    await asyncio.sleep(0.05)
    assert folders(home) != []
    await FakeProvider(home).start()
    await making
    assert (home / SPEC.sandbox_id / "root" / "workspace").is_dir()
    assert folders(home) == []


@pytest.mark.parametrize(("kind", "made"), [(FaultKind.FAIL, 0), (FaultKind.REFUSE, 0), (FaultKind.FAIL_AFTER, 1)])
async def test_faults_strike_at_warming_too(provider: FakeProvider, faults: Faults, kind: FaultKind, made: int) -> None:
    faults.add("warm", kind)
    with pytest.raises(errors.Unavailable):
        await provider.warm(SHAPE)
    assert sum((await provider.warmed()).values()) == made


@pytest.mark.parametrize(
    "wish",
    [
        {"isolation": IsolationLevel.BASIC},
        {"mounts": (Mount("/srv", "/workspace"),)},
        {"egress": EgressPolicy(EgressMode.FULL)},
    ],
    ids=lambda wish: next(iter(wish)),
)
async def test_what_the_fake_cannot_give_is_refused_and_never_weakened(
    provider: FakeProvider, wish: dict[str, object]
) -> None:
    with pytest.raises(errors.Unsupported):
        await provider.create(replace(SPEC, **wish))  # type: ignore[arg-type]
    assert await provider.list() == []


async def test_the_policy_of_a_sandbox_is_kept_through_a_restart(provider: FakeProvider, home: Path) -> None:
    await provider.create(replace(SPEC, egress=EgressPolicy(EgressMode.NONE)))
    await provider.set_egress(SPEC.sandbox_id, EgressPolicy(EgressMode.NONE, ("a.test",), ("b.test",)))
    report = await FakeProvider(home).egress(SPEC.sandbox_id)
    assert (report.policy.allow, report.policy.deny, report.totals.connections) == (("a.test",), ("b.test",), 0)
    with pytest.raises(errors.SandboxNotFound):
        await provider.egress("tester_00000bad")
