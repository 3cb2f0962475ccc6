"""What this machine supports for sandboxes, and how to fix what it does not."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from paddock import disk_space, errors
from paddock.providers.base import IsolationReport
from paddock.providers.common.launch import Launcher
from paddock.providers.common.programs import Programs
from paddock.providers.common.record import SandboxRecord
from paddock.providers.docker import probe
from paddock.providers.local.gvisor.runsc import RunscSettings, find
from paddock.providers.local.host import HostCapabilities, look
from paddock.store import sqlite

_NETWORKED = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "afs", "fuse"}
_LITTLE = 5 << 30


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    good: bool
    detail: str
    """What was found, or what to do."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    runs: bool
    """Whether sandboxes can run here at all."""
    checks: tuple[Check, ...]
    report: IsolationReport | None
    """The isolation layers of a sandbox of the local provider; None if it cannot run."""

    def problem(self, name: str) -> str | None:
        """What the check of this name found wrong; None if it passed."""
        found = next((check for check in self.checks if check.name == name), None)
        if found is None:
            return "not looked for"
        return None if found.good else found.detail


def examine(
    home: Path,
    docker: probe.EngineOptions | None = None,
    runsc: RunscSettings | None = None,
    *,
    reserve_mb: int = 0,
    database: Path | None = None,
) -> Diagnosis:
    """Check the machine; blocking, takes well under a second. ``home`` is where sandboxes are stored, ``reserve_mb``
    the space to keep free there (0: by its size), ``database`` the SQLite file."""
    checks = [_system(), _python(), _rights()]
    programs = Programs.find()
    missing = programs.problem() if platform.system() == "Linux" else "The local provider needs Linux."
    checks.append(Check("native programs", missing is None, missing or f"built for {platform.machine()}"))
    host = _tried(programs, home) if missing is None else None
    if host is not None:
        checks.append(_sandboxes(host))
        checks.append(_full_egress(host))
        checks.append(_own_kernel(host, runsc or RunscSettings()))
    engine = probe.check(docker or probe.EngineOptions(""))
    checks += [_file_system(home), _free_space(home, reserve_mb)]
    if database is not None:
        checks += _database(database, home, reserve_mb)
    checks.append(_docker(engine))
    local = host is not None and not host.problems
    runs = local or (missing is None and engine.problem is None)
    return Diagnosis(runs, tuple(checks), host.report() if host is not None and local else None)


def _tried(programs: Programs, home: Path) -> HostCapabilities:
    """Runs in the home itself if it exists, because the file system matters."""
    usable = home.is_dir() and os.access(home, os.W_OK)
    launcher = Launcher(programs.launcher, b"")
    try:
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=home if usable else None) as folder:
            host = look(Path(folder), programs, launcher)
            host.cgroups.leave()
            return host
    finally:
        launcher.close()


def _system() -> Check:
    return Check("kernel", platform.system() == "Linux", f"{platform.system()} {platform.release()}")


def _python() -> Check:
    return Check("python", sys.version_info >= (3, 11), platform.python_version())


def _rights() -> Check:
    if os.geteuid() == 0:
        return Check("runs as", True, "root: every sandbox gets user ids and a disk of its own")
    return Check("runs as", True, "an ordinary user: sandboxes share its user id; as root they would have their own")


def _sandboxes(host: HostCapabilities) -> Check:
    if host.problems:
        return Check("sandboxes", False, " ".join(host.problems))
    return Check("sandboxes", True, "namespaces, mounts and the system call filter work here")


def _full_egress(host: HostCapabilities) -> Check:
    if host.nft is not None:
        return Check("full egress", True, host.nft)
    return Check("full egress", False, "needs the program nft (Debian: apt install nftables); proxy and none work")


def _own_kernel(host: HostCapabilities, wanted: RunscSettings) -> Check:
    """The isolation level ``hardened``, which is optional."""
    try:
        return Check("own kernel", True, f"{find(wanted, host)}: sandboxes may ask for the isolation level hardened")
    except errors.ProviderRefused as refusal:
        return Check("own kernel", False, f"{refusal.message} Only the isolation level hardened needs it.")


def _file_system(home: Path) -> Check:
    place, kind = _existing(home), _kind_of(home)
    if kind in _NETWORKED:
        return Check("home", False, f"{place} is on {kind}; keep PADDOCK_HOME on a local file system")
    if kind == "tmpfs":
        return Check(
            "home", False, f"{place} is in memory (tmpfs) and gone after a restart; choose another PADDOCK_HOME"
        )
    return Check("home", True, f"{home} on {kind}")


def _free_space(home: Path, reserve_mb: int) -> Check:
    """Free space, reserve, and space promised to sandboxes' disks, which may exceed the free space because few use
    all."""
    place = _existing(home)
    found = disk_space.room(place)
    text = f"{found.free / 1e9:.1f} GB free"
    promised, count = _promised_mb(home)
    if count:
        text += f", {promised / 1e3:.1f} GB promised to {count} sandboxes"
    if (short := disk_space.shortage(place, reserve_mb)) is not None:
        return Check("disk space", False, f"{text}. {short} No sandbox is made below that")
    enough = found.free >= _LITTLE
    return Check("disk space", enough, text if enough else f"only {text}; sandboxes need room")


def _database(database: Path, home: Path, reserve_mb: int) -> list[Check]:
    """The SQLite database if it is outside the home, and its write-ahead log if it exists."""
    checks = [] if database.parent == home.absolute() else [_database_place(database, reserve_mb)]
    return [*checks, _database_log(database)] if database.exists() else checks


def _database_place(database: Path, reserve_mb: int) -> Check:
    place, kind = _existing(database.parent), _kind_of(database.parent)
    if kind in _NETWORKED:
        return Check("database", False, f"{place} is on {kind}; keep DATABASE_URL on a local file system")
    if kind == "tmpfs":
        return Check("database", False, f"{place} is in memory (tmpfs) and gone after a restart; change DATABASE_URL")
    if (short := disk_space.shortage(place, reserve_mb)) is not None:
        return Check("database", False, f"{short} No sandbox is made below that")
    return Check("database", True, f"{database} on {kind}")


def _database_log(database: Path) -> Check:
    """The write-ahead log beside the database. A running server keeps it small."""
    size, most = sqlite.wal_bytes(database), sqlite.MAX_WAL_BYTES
    text = f"the write-ahead log has {size / 1e6:.0f} MB"
    if size > most:
        text += (
            f", more than {most / 1e6:.0f} MB: something keeps it from being emptied, a program that reads the "
            "database for long, or a disk that is too slow. Restart the server, or end that program"
        )
    return Check("database log", size <= most, text)


def _promised_mb(home: Path) -> tuple[int, int]:
    """Sum of the disk limits of all local sandboxes, and their number."""
    limits = []
    for folder in (home / "local/sandboxes").glob("*"):
        with contextlib.suppress(errors.ProviderUnavailable, OSError):
            if (record := SandboxRecord.load(folder)) is not None:
                limits.append(record.spec.resources.disk_mb)
    return sum(limits), len(limits)


def _docker(answer: probe.EngineProbe) -> Check:
    """The provider ``docker`` needs an engine; the local one does not."""
    if answer.problem is not None:
        return Check("docker engine", False, f"{answer.problem} Only the provider docker needs one.")
    return Check("docker engine", True, f"{answer.engine}: SANDBOX_PROVIDER=docker works here")


def _existing(path: Path) -> Path:
    """The nearest existing parent directory."""
    path = path.absolute()
    while not path.is_dir():
        path = path.parent
    return path


def _kind_of(path: Path) -> str:
    """The file system type of this path, or of its nearest existing parent."""
    return _mounted_at(_existing(path), Path("/proc/self/mountinfo").read_text())


def _mounted_at(path: Path, mounts: str) -> str:
    """The longest mount point that contains the path; the latest of equal ones."""
    best, kind = "", "unknown"
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        point = left.split(" ")[4].replace("\\040", " ")
        if path.resolve().is_relative_to(point) and len(point) >= len(best):
            best, kind = point, right.split(" ")[0]
    return kind
