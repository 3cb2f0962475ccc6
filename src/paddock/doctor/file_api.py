"""Attacks on users of the file API: a sandbox prepares paths so that the server reads or writes the wrong file."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from paddock import errors
from paddock.doctor.attempts import USERS, AttemptOutcome, Verdict
from paddock.doctor.canaries import harm_to_host
from paddock.doctor.suite import PROBE, Suite, TestSandbox
from paddock.machine.base import Machine

_ANSWER_SECONDS = 10.0
_RACE_SECONDS = 1
_ENOUGH = 1 << 20
_TEXT = b"written through the file API"


@dataclass(frozen=True, slots=True)
class Trial:
    """One attack: a sandbox with a directory, its file API, and the user whose permissions are used."""

    box: TestSandbox
    machine: Machine
    folder: str
    user: str
    host_file: str
    secret: bytes

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}"

    async def link(self, target: str, name: str) -> str:
        await self.box.must("/bin/ln", "-sfn", target, self.path(name), user="user")
        return self.path(name)

    async def read(self, path: str) -> bytes:
        """Content returned by the API, up to 1 MB; empty if it refuses."""
        data = b""
        with contextlib.suppress(errors.PaddockError):
            async for chunk in self.machine.read_file(path, limit=_ENOUGH, user=self.user):
                data += chunk
                if len(data) >= _ENOUGH:
                    break
        return data

    async def write(self, path: str, atomic: bool) -> bool:
        try:
            await self.machine.write_file(path, _once(_TEXT), atomic=atomic, user=self.user)
        except errors.PaddockError:
            return False
        return True

    async def names(self, path: str, depth: int = 3) -> list[str]:
        try:
            return [entry.path for entry in await self.machine.list_directory(path, depth, user=self.user)]
        except errors.PaddockError:
            return []

    def breach(self, data: bytes) -> str | None:
        return "the API read a file of the host" if self.secret in data else None


Attack = Callable[[Trial], Awaitable[str | None]]
"""Returns what went wrong, or None."""


async def _absolute_link(trial: Trial) -> str | None:
    return trial.breach(await trial.read(await trial.link(trial.host_file, "link")))


async def _parents(trial: Trial) -> str | None:
    up = "/.." * 12
    link = await trial.link(f"{up[1:]}{trial.host_file}", "link")
    for path in (link, f"{up}{trial.host_file}", f"{trial.folder}{up}{trial.host_file}"):
        if problem := trial.breach(await trial.read(path)):
            return problem
    return None


async def _magic_links(trial: Trial) -> str | None:
    for root in ("/proc/1/root", "/proc/self/root", "/proc/thread-self/root", "/proc/1/cwd", "/proc/self/cwd"):
        link = await trial.link(f"{root}{trial.host_file}", "link")
        for path in (link, f"{root}{trial.host_file}", f"{root}/../../..{trial.host_file}"):
            if problem := trial.breach(await trial.read(path)):
                return problem
    return None


async def _agent_inside(trial: Trial) -> str | None:
    """ "self" in /proc is the agent, because the agent opens the file."""
    for name in ("mem", "maps", "environ", "auxv", "exe"):
        link = await trial.link(f"/proc/self/{name}", "link")
        for path in (link, f"/proc/self/{name}", f"/proc/1/{name}", f"/proc/thread-self/{name}"):
            if await trial.read(path):
                return f"the API reads the agent's own {name}"
            if await trial.write(path, atomic=False):
                return f"the API writes the agent's own {name}"
    return None


async def _agent_descriptors(trial: Trial) -> str | None:
    for number in range(32):
        for place in ("/proc/self/fd", "/proc/1/fd"):
            if await trial.read(f"{place}/{number}") or await trial.names(f"{place}/{number}"):
                return f"the API opens descriptor {number} of the agent"
    return None


async def _waiting(trial: Trial) -> str | None:
    """A pipe without a writer, and devices with endless data."""
    await trial.box.must("/usr/bin/mkfifo", trial.path("pipe"), user="user")
    links = [await trial.link(device, f"link-{device[5:]}") for device in ("/dev/zero", "/dev/random", "/dev/tty")]
    for path in (trial.path("pipe"), *links, "/dev/zero", "/dev/ptmx"):
        for answer in (trial.read(path), trial.write(path, atomic=False)):
            try:
                got = await asyncio.wait_for(answer, _ANSWER_SECONDS)
            except TimeoutError:
                return f"the API hangs on {path}"
            if got:
                return f"the API opens {path}, which is not a file"
    return None


async def _writing(trial: Trial) -> str | None:
    """``harm_to_host`` checks the host afterwards."""
    up = "/.." * 12
    link = await trial.link(trial.host_file, "link")
    magic = await trial.link(f"/proc/1/root{trial.host_file}", "magic")
    host_folder = trial.host_file.rpartition("/")[0]
    for path in (link, magic, f"{up}{trial.host_file}", f"/proc/self/root{trial.host_file}", f"{host_folder}/new"):
        for atomic in (True, False):
            await trial.write(path, atomic)
    # Inside the sandbox the same paths may have been created legitimately; remove them for the next attempts.
    await trial.box.must("/bin/rm", "-rf", host_folder)
    return None


async def _removing(trial: Trial) -> str | None:
    host_folder = trial.host_file.rpartition("/")[0]
    tree = trial.path("tree")
    await trial.box.must("/bin/mkdir", "-p", f"{tree}/inner", user="user")
    await trial.link(host_folder, "tree/link")
    await trial.link("/etc", "tree/system")
    await trial.machine.remove(tree, recursive=True, user=trial.user)
    for path in (f"/proc/1/root{host_folder}", f"{'/..' * 12}{host_folder}"):
        with contextlib.suppress(errors.PaddockError):
            await trial.machine.remove(path, recursive=True, user=trial.user)
    if not await trial.read("/etc/passwd"):
        return "a removal followed a link out of its tree"
    return None


async def _moving(trial: Trial) -> str | None:
    link = await trial.link(trial.host_file, "link")
    with contextlib.suppress(errors.PaddockError):
        await trial.machine.move(f"/proc/1/root{trial.host_file}", trial.path("taken"), user=trial.user)
    with contextlib.suppress(errors.PaddockError):
        await trial.machine.move(link, trial.path("taken"), user=trial.user)
    return trial.breach(await trial.read(trial.path("taken")))


async def _listing(trial: Trial) -> str | None:
    host_folder, _, name = trial.host_file.rpartition("/")
    await trial.link(host_folder, "link")
    for path in (trial.folder, trial.path("link"), f"/proc/1/root{host_folder}", f"{'/..' * 12}{host_folder}"):
        if any(found.endswith(f"/{name}") for found in await trial.names(path)):
            return "the API lists a directory of the host"
    return None


async def _race(
    trial: Trial, act: Callable[[str], Awaitable[str | None]], prepare: Callable[[], Awaitable[None]]
) -> str | None:
    """Run ``act`` on a path that another process keeps replacing: a file by a symlink, a directory by a symlink."""
    await prepare()
    swapping = await trial.box.start(PROBE, "run", "swap", str(_RACE_SECONDS), trial.path("a"), trial.path("b"))
    until = time.monotonic() + _RACE_SECONDS
    try:
        while time.monotonic() < until:
            with contextlib.suppress(errors.PaddockError):
                if problem := await act(trial.path("a")):
                    return problem
        return None
    finally:
        await trial.machine.wait(swapping, timeout=_ANSWER_SECONDS)


async def _race_reading(trial: Trial) -> str | None:
    async def prepare() -> None:
        await trial.machine.write_file(trial.path("a"), _once(b"harmless"))
        await trial.link(f"/proc/1/root{trial.host_file}", "b")

    async def act(path: str) -> str | None:
        return trial.breach(await trial.read(path))

    return await _race(trial, act, prepare)


async def _race_writing(trial: Trial) -> str | None:
    host_folder = trial.host_file.rpartition("/")[0]

    async def prepare() -> None:
        await trial.machine.make_directory(trial.path("a"))
        await trial.link(host_folder, "b")

    async def act(path: str) -> str | None:
        await trial.write(f"{path}/new", atomic=True)
        await trial.write(f"{path}/new", atomic=False)
        return None

    return await _race(trial, act, prepare)


async def _race_listing(trial: Trial) -> str | None:
    await trial.box.must("/bin/mkdir", "-p", trial.path("a/inner"), trial.path("kept"), user="user")
    await trial.machine.write_file(trial.path("kept/treasure"), _once(b"x"))

    async def prepare() -> None:
        await trial.link(trial.path("kept"), "b")

    async def act(path: str) -> str | None:
        found = await trial.names(trial.folder, depth=4)
        wrong = [name for name in found if name.endswith("/treasure") and "/kept/" not in name]
        return "a listing followed a link that took a directory's place" if wrong else None

    return await _race(trial, act, prepare)


async def _race_removing(trial: Trial) -> str | None:
    """The symlink leads to a directory of root; a recursive removal as root must not follow it."""
    kept = f"/opt/kept-{secrets.token_hex(4)}"
    await trial.box.must("/bin/sh", "-c", f"mkdir -p {kept} && touch {kept}/treasure")

    async def prepare() -> None:
        await trial.link(kept, "b")

    async def act(path: str) -> str | None:
        await trial.box.must("/bin/mkdir", "-p", f"{trial.folder}/a/inner/deep", user="user")
        await trial.machine.remove(f"{path}/inner", recursive=True, user=trial.user)
        return None

    problem = await _race(trial, act, prepare)
    info, _ = await trial.box.run("/bin/ls", f"{kept}/treasure", user="root")
    return "a removal followed a link that took a directory's place" if info.exit_code != 0 else problem


FILE_ATTACKS: dict[str, tuple[str, Attack]] = {
    "file-api-absolute-link": ("a link leads the server to a file of the host", _absolute_link),
    "file-api-parents": ("a path or a link climbs out of the sandbox", _parents),
    "file-api-magic-links": ("links of /proc lead the server out of the sandbox", _magic_links),
    "file-api-agent-inside": ("the file API reads or changes the agent itself", _agent_inside),
    "file-api-agent-descriptors": ("the file API opens what the agent has open", _agent_descriptors),
    "file-api-waiting": ("a pipe or a device hangs the server, or floods it", _waiting),
    "file-api-writing": ("a link makes the server change a file of the host", _writing),
    "file-api-removing": ("a link makes the server remove files of the host", _removing),
    "file-api-moving": ("a link makes the server fetch a file of the host", _moving),
    "file-api-listing": ("a link makes the server list a directory of the host", _listing),
    "file-api-race-reading": ("a path changes between the check and the use", _race_reading),
    "file-api-race-writing": ("the same, and the server writes", _race_writing),
    "file-api-race-listing": ("the same, and the server lists", _race_listing),
    "file-api-race-removing": ("the same, and the server removes", _race_removing),
}


async def attack(suite: Suite, box: TestSandbox, name: str, user: str) -> AttemptOutcome:
    folder = f"/workspace/{name}-{user}-{secrets.token_hex(4)}"
    machine = await box.machine()
    await machine.make_directory(folder)
    secret = str(suite.canaries["secret"]).encode()
    trial = Trial(box, machine, folder, user, str(suite.canaries["file"]), secret)
    problem = await FILE_ATTACKS[name][1](trial)
    if (harm := harm_to_host(suite.canaries)) is not None:
        return AttemptOutcome(f"{name}-by-{user}", user, Verdict.NOT_REFUSED, harm)
    if problem is not None:
        return suite.judge(name, AttemptOutcome(f"{name}-by-{user}", user, Verdict.NOT_REFUSED, problem))
    return AttemptOutcome(f"{name}-by-{user}", user, Verdict.REFUSED, "nothing outside was touched")


def file_cases() -> list[tuple[str, str]]:
    """With the permissions of the sandbox's user, and of its root."""
    return [(name, user) for name in FILE_ATTACKS for user in USERS]


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
