"""Runs the attempts: sandboxes with the probe inside, canaries on the host, and a second sandbox that must not be
affected."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

from paddock import errors
from paddock.doctor.attempts import Attempt, AttemptOutcome, Case, Verdict
from paddock.doctor.canaries import Canaries, harm_to_host, place_canaries
from paddock.doctor.kinds import SandboxKind
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.machine.base import Machine, ProcessInfo, ProcessSpec
from paddock.providers.base import IsolationReport, Provider, Resources, SandboxSpec
from paddock.providers.common.programs import Programs
from paddock.providers.common.record import SOCKET

PROBE = "/tmp/paddock-probe"  # noqa: S108 - inside the sandbox
RESOURCES = Resources(cpu=1.0, memory_mb=256, disk_mb=256, pids=128)
_SETUID_PROBE = "/tmp/paddock-probe-setuid"  # noqa: S108
_OTHER_PORT = "7801"
_SECONDS = 90.0
_SYSTEM = ("/usr/lib", "/usr/bin", "/etc", "/var/lib/dpkg", "/lib", "/opt", "/boot")
_VERDICTS = {0: Verdict.REFUSED, 1: Verdict.NOT_REFUSED, 2: Verdict.NOT_TRIED}


def probe_program() -> Path:
    path = Programs.find().agent.with_name("paddock-probe")
    if not os.access(path, os.X_OK):
        raise errors.Unsupported(f"{path.name} was not built for this machine: the escape suite cannot run.")
    return path


class TestSandbox:
    """A sandbox that contains the probe."""

    def __init__(self, provider: Provider, sandbox_id: str) -> None:
        self.sandbox_id = sandbox_id
        self._provider = provider

    async def machine(self) -> Machine:
        """Its current machine: a crashed sandbox gets a new one."""
        return await self._provider.attach(self.sandbox_id)

    async def run(self, *argv: str, user: str = "user", seconds: float = _SECONDS) -> tuple[ProcessInfo, str]:
        """Run to the end; returns the process and its output."""
        spec = ProcessSpec(secrets.token_hex(8), argv, cwd="/", user=user, hard_timeout=seconds)
        info, stdout, stderr = await (await self.machine()).run(spec, timeout=seconds + 5)
        return info, (stdout.data + stderr.data).decode(errors="replace").strip()

    async def must(self, *argv: str, user: str = "root") -> str:
        info, output = await self.run(*argv, user=user)
        if info.exit_code != 0:
            raise errors.PaddockError(f"{argv[0]} failed in the sandbox ({info.exit_code}): {output[:500]}")
        return output

    async def start(self, *argv: str, user: str = "user", seconds: float | None = None) -> str:
        """Start, and wait for the first output, which reports that it is ready."""
        process_id = secrets.token_hex(8)
        machine = await self.machine()
        await machine.spawn(ProcessSpec(process_id, argv, cwd="/", user=user, hard_timeout=seconds))
        async for _ in machine.follow(process_id):
            return process_id
        raise errors.PaddockError(f"{argv[0]} ended in the sandbox before it was ready.")

    async def equip(self) -> None:
        machine = await self.machine()
        program = await asyncio.to_thread(probe_program().read_bytes)
        for path in (PROBE, _SETUID_PROBE):
            await machine.write_file(path, _bytes(program), mode=0o755, user="root")
        await self.must("/bin/chmod", "4755", _SETUID_PROBE)


class Suite:
    """Usable inside ``opened``."""

    def __init__(self, provider: Provider, canaries: Canaries, kind: SandboxKind) -> None:
        self.provider = provider
        self.kind = kind
        self.canaries: dict[str, str | None] = dict(canaries)
        self._boxes: dict[EgressMode, TestSandbox] = {}
        self._absent: dict[EgressMode, str] = {}
        self._made: list[str] = []

    @property
    def attacker(self) -> TestSandbox:
        return self._boxes[EgressMode.PROXY]

    async def begin(self, server_folder: Path) -> None:
        self.neighbour = await self.new_box()
        await self._set_up_other(self.neighbour)
        self._boxes[EgressMode.PROXY] = await self.new_box()
        try:
            self._boxes[EgressMode.FULL] = await self.new_box(EgressMode.FULL)
        except errors.ConfinementUnavailable as refusal:
            self._absent[EgressMode.FULL] = refusal.message
        self.canaries["agent_socket"] = str(server_folder / "sandboxes" / self.attacker.sandbox_id / SOCKET)
        self.canaries["setuid_program"] = _SETUID_PROBE

    async def end(self) -> None:
        for sandbox_id in self._made:
            await self.provider.delete(sandbox_id)

    async def new_box(self, mode: EgressMode = EgressMode.PROXY) -> TestSandbox:
        sandbox_id = f"doctor_{secrets.token_hex(4)}"
        spec = SandboxSpec(
            sandbox_id=sandbox_id,
            key=f"d{secrets.token_hex(8)}",
            owner_id="doctor",
            user_id="doctor",
            template_id=(await self.provider.templates())[0],
            resources=RESOURCES,
            egress=EgressPolicy(mode),
            isolation=self.kind.level,
        )
        self._made.append(sandbox_id)
        await self.provider.create(spec)
        box = TestSandbox(self.provider, sandbox_id)
        await box.equip()
        return box

    async def isolation(self) -> IsolationReport:
        return await self.provider.isolation(self.neighbour.sandbox_id)

    async def run(self, case: Case) -> AttemptOutcome:
        """Make one attempt."""
        attempt = case.attempt
        if (reason := self._absent.get(case.mode)) is not None:
            return AttemptOutcome(case.name, case.user, Verdict.NOT_TRIED, reason)
        missing = [word.lstrip("~") for word in attempt.words if self.canaries.get(word.lstrip("~")) is None]
        if missing:
            return AttemptOutcome(
                case.name, case.user, Verdict.NOT_TRIED, f"this machine has no {missing[0]} to try it on"
            )
        words = [given(self.canaries, word) for word in attempt.words]
        info, output = await self._boxes[case.mode].run(PROBE, "run", attempt.name, *words, user=case.user)
        verdict = _VERDICTS.get(-1 if info.exit_code is None else info.exit_code)
        if verdict is None:  # a crash of the probe proves nothing
            verdict, output = Verdict.NOT_REFUSED, f"the probe ended with {info.exit_code}: {output}"
        if (harm := self._harm(attempt)) is not None:
            return AttemptOutcome(case.name, case.user, Verdict.NOT_REFUSED, harm)
        return self.judge(attempt.name, AttemptOutcome(case.name, case.user, verdict, output))

    def judge(self, attempt: str, outcome: AttemptOutcome) -> AttemptOutcome:
        """Report known and documented failures of this kind of sandbox as such, unless the host was harmed."""
        known = self.kind.exempt.get(attempt)
        if outcome.verdict is not Verdict.NOT_REFUSED or known is None or outcome.user not in known.users:
            return outcome
        return replace(outcome, verdict=Verdict.DOCUMENTED, detail=f"{known.reason} ({outcome.detail})")

    def _harm(self, attempt: Attempt) -> str | None:
        if attempt.leaves is not None:
            name = str(self.canaries[attempt.leaves])
            for place in (place for place in _SYSTEM if Path(place, name).exists()):
                return f"a file was made in the host's {place}"
        return harm_to_host(self.canaries)

    async def _set_up_other(self, box: TestSandbox) -> None:
        """Set up another sandbox with files, a process, a port, a socket and shared memory, each with its own
        secret."""
        secret, key = secrets.token_hex(12), str(secrets.randbelow(1 << 24) + 1)
        name = f"other-{secret[:8]}"
        machine = await box.machine()
        for folder in ("/workspace", "/tmp", "/dev/shm", "/home/user"):  # noqa: S108
            await machine.write_file(f"{folder}/{name}", _bytes(secret.encode()), mode=0o644)
        await box.start(PROBE, "run", "neighbour", _OTHER_PORT, secret, key)
        self.canaries |= {
            "other_secret": secret,
            "other_file": name,
            "other_port": _OTHER_PORT,
            "other_abstract": secret,
            "other_shared_memory": key,
        }


def given(canaries: Canaries, word: str) -> str:
    """A canary in the form passed to the probe: secrets are reversed, so that a search does not find the argument
    itself."""
    value = str(canaries[word.lstrip("~")])
    return value[::-1] if word.startswith("~") else value


@contextlib.asynccontextmanager
async def opened(kind: SandboxKind) -> AsyncIterator[Suite]:
    """Creates sandboxes of an installation in a temporary directory, without a server; removes everything
    afterwards."""
    probe_program()
    with tempfile.TemporaryDirectory(prefix="paddock-doctor-") as folder:
        provider = kind.build(Path(folder))
        root = Path(folder, provider.name)
        await provider.start()
        try:
            async with place_canaries(root) as canaries:
                suite = Suite(provider, canaries, kind)
                try:
                    await suite.begin(root)
                    yield suite
                finally:
                    await suite.end()
        finally:
            await provider.close()


async def _bytes(data: bytes) -> AsyncIterator[bytes]:
    yield data
