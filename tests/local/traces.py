"""What sandboxes leave on a host, looked up from outside: only of one installation, whatever else the host runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paddock.providers.local.host import group_name
from tests.support.waiting import until

_CGROUPS = Path("/sys/fs/cgroup")
_CLAIMS = Path("/run/paddock/uids")


@dataclass(frozen=True, slots=True)
class Traces:
    loops: frozenset[str]
    """Images on loop devices."""
    mounts: frozenset[str]
    """Mounts of or below the installation, as any process of ours sees them."""
    groups: frozenset[str]
    claims: frozenset[str]
    """Ranges of user ids."""
    processes: frozenset[int]
    """In its control groups, where there are any."""
    folders: frozenset[str]


NOTHING = Traces(frozenset(), frozenset(), frozenset(), frozenset(), frozenset(), frozenset())


def look(root: Path) -> Traces:
    return Traces(_loops(root), _mounts(root), _groups(root), _claims(root), _processes(root), folders(root))


async def until_nothing(root: Path) -> None:
    """Wait until nothing is left; what stays is named."""
    try:
        await until(lambda: look(root) == NOTHING)
    except AssertionError:
        assert look(root) == NOTHING


def group_parents(root: Path) -> list[Path]:
    """What an installation keeps its groups in, in every hierarchy."""
    return _group_parents(group_name(root))


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def threads() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def pids() -> set[str]:
    return {f"pid {pid}" for pid in _pids()}


def network(pid: int) -> str:
    """The network namespace of a process."""
    return str(Path(f"/proc/{pid}/ns/net").readlink())


def networks() -> set[str]:
    """Those that any process is in."""
    found = set()
    for pid in _pids():
        try:
            found.add(network(pid))
        except OSError:
            continue  # it has ended, or is somebody else's
    return found


def _loops(root: Path) -> frozenset[str]:
    found = set()
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            path = backing.read_text().strip()
        except OSError:
            continue
        if path.startswith(str(root)):
            found.add(path)
    return frozenset(found)


def _mounts(root: Path) -> frozenset[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return frozenset(line.split(" ")[4] for line in lines if str(root) in line)


def _groups(root: Path) -> frozenset[str]:
    name = group_name(root)
    found = set()
    for place in _group_parents(name):
        try:
            found |= {f"{place}/{entry.name}" for entry in place.iterdir() if entry.is_dir()}
        except FileNotFoundError:
            continue
    return frozenset(found)


def _group_parents(name: str) -> list[Path]:
    """Ours may be anywhere below the group that this process is in; controllers each have a tree of their own."""
    found = []
    for top in (_CGROUPS, *(path for path in _CGROUPS.iterdir() if path.is_dir())):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            place = top / line.split(":", 2)[2].lstrip("/") / name
            if place.is_dir() and place not in found:
                found.append(place)
    return found


def _claims(root: Path) -> frozenset[str]:
    found = set()
    try:
        for claim in _CLAIMS.iterdir():
            if claim.read_text().startswith(str(root)):
                found.add(claim.name)
    except (FileNotFoundError, PermissionError):
        pass
    return frozenset(found)


def _processes(root: Path) -> frozenset[int]:
    found: set[int] = set()
    for group in _groups(root):
        try:
            found |= {int(pid) for pid in Path(group, "cgroup.procs").read_text().split()}
        except OSError:
            continue  # it is being removed
    return frozenset(found)


def folders(root: Path) -> frozenset[str]:
    places = ("sandboxes", "warm", "drafts", "trash", "stage")
    return frozenset(f"{place}/{path.name}" for place in places for path in (root / place).iterdir())


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
