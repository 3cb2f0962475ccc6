"""The suite itself can fail: what is open on the host is reported as open. Only attempts that harm nothing run here."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from paddock.doctor import canaries
from paddock.doctor.attempts import Attempt, Case, Verdict, cases
from paddock.doctor.bombs import Bomb, run_bomb
from paddock.doctor.canaries import Canaries, harm_to_host
from paddock.doctor.catalogue import GROUPS
from paddock.doctor.file_api import attack
from paddock.doctor.suite import Suite, TestSandbox, given, probe_program

pytestmark = pytest.mark.asyncio(loop_scope="session")

HARMLESS = [
    "host-file",
    "host-file-by-parents",
    "host-file-by-proc-root",
    "host-process-listing",
    "host-process-guessing",
    "host-process-signal",
    "host-process-trace",
    "host-process-memory",
    "host-process-environment",
    "host-process-descriptor",
    "host-shared-memory",
    "host-machine-id",
    "host-name",
    "host-loopback",
    "host-loopback-6",
    "host-address",
    "host-ports-listing",
    "host-abstract-socket",
    "host-file-socket",
    "server-environment",
    "server-folder",
    "keyring-host-key",
    "capabilities",
    "core-dump",
    "filter-active",
    "no-new-privileges",
    "users-own",
]
IN_A_WEAK_SANDBOX = [
    "agent-memory-file",
    "agent-memory-call",
    "agent-memory-layout",
    "agent-environment",
    "agent-descriptors",
    "agent-descriptor-steal",
    "agent-compare",
    "agent-pages",
    "agent-limits",
    "agent-priority",
    "agent-affinity",
    "agent-oom-score",
    "agent-settings",
    "agent-memory-advice",
    "mount-tmpfs",
    "mount-proc",
    "mount-overlay",
    "mount-writable-again",
    "mount-bind",
    "mount-propagation",
    "mount-undo-masks",
    "mount-open-tree",
    "mount-fsopen",
    "mount-fspick",
    "mount-move",
    "mount-setattr",
    "mount-pivot-root",
    "mount-chroot-break",
    "namespace-new-user",
    "namespace-new-user-clone",
    "namespace-new-user-clone-wide",
    "namespace-new-user-clone3",
    "namespace-new-user-and-mount",
    "namespace-new-mount",
    "namespace-new-network",
    "namespace-new-pid",
    "namespace-new-ipc",
    "namespace-new-uts",
    "namespace-new-cgroup",
    "namespace-join-agent",
    "namespace-join-own",
    "namespace-join-pidfd",
    "reboot",
    "kernel-aio",
    "file-handle",
    "keyring-session",
    "host-name-set",
    "host-domain-set",
    "executable-data",
    "proc-network-settings",
    "socket-raw",
    "socket-raw-6",
    "socket-raw-any",
    "socket-packet",
    "socket-packet-old",
    "socket-device-events",
    "socket-netlink-others",
    "socket-families",
    "socket-protocols",
    "socket-mark",
    "socket-transparent",
    "network-interface-flags",
    "network-new-link",
    "network-new-address",
    "network-new-route",
    "network-new-rule",
    "capabilities",
    "capability-raise",
    "no-new-privileges",
    "filter-active",
    "file-capabilities",
    "become-root",
]
"""In namespaces of their own with all capabilities in them and no filter, as a careless container has them. They are
not harmless on the host itself."""
ATTEMPTS = {attempt.name: attempt for group in GROUPS for attempt in group.attempts}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def on_host(possible: None, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Canaries]:
    async with canaries.place_canaries(tmp_path_factory.mktemp("server")) as made:
        yield made


@pytest.mark.parametrize("name", HARMLESS)
async def test_outside_a_sandbox_it_is_not_refused(on_host: Canaries, name: str) -> None:
    attempt = ATTEMPTS[name]
    if any(on_host[word.lstrip("~")] is None for word in attempt.words):
        pytest.skip("this machine has no such canary")
    words = [given(on_host, word) for word in attempt.words]
    process = await asyncio.create_subprocess_exec(
        probe_program(), "run", name, *words, stdout=subprocess.PIPE, start_new_session=True
    )
    output, _ = await process.communicate()
    assert process.returncode == 1, output.decode()
    assert harm_to_host(on_host) is None


@pytest.fixture(scope="module")
def weak_sandbox(possible: None) -> Iterator[list[str]]:
    """The command that runs the probe in one."""
    words = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "--pid",
        "--fork",
        "--net",
        "--ipc",
        "--uts",
        "--cgroup",
        "--mount-proc",
    ]
    if os.geteuid() == 0:  # the host's root, even without a capability, owns too much
        words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *words]
    with tempfile.TemporaryDirectory(prefix="paddock-weak-") as folder:
        Path(folder).chmod(0o755)
        program = Path(shutil.copy(probe_program(), folder))  # where nobody can get at it too
        try:
            subprocess.run((*words, "true"), capture_output=True, text=True, check=True)
        except (FileNotFoundError, subprocess.CalledProcessError) as missing:
            pytest.skip(f"there is no weak sandbox here: {missing}")
        yield [*words, str(program), "run"]


@pytest.mark.parametrize("name", IN_A_WEAK_SANDBOX)
async def test_in_a_weak_sandbox_it_is_not_refused(weak_sandbox: list[str], name: str) -> None:
    process = await asyncio.create_subprocess_exec(*weak_sandbox, name, stdout=subprocess.PIPE, cwd="/")
    output, _ = await process.communicate()
    assert process.returncode == 1, output.decode()


async def test_a_probe_that_does_not_know_an_attempt_proves_nothing(suite: Suite) -> None:
    outcome = await suite.run(Case(Attempt("no-such-attempt", ""), "user"))
    assert outcome.verdict is Verdict.NOT_TRIED


async def test_a_probe_that_crashes_proves_nothing(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.doctor.suite.PROBE", "/bin/false-that-is-not-there")
    outcome = await suite.run(Case(ATTEMPTS["host-name"], "user"))
    assert outcome.verdict is Verdict.NOT_REFUSED


async def test_a_bomb_that_meets_no_limit_is_reported(suite: Suite, box: TestSandbox) -> None:
    outcome = await run_bomb(suite, box, Bomb("bomb-memory", "", (1, 8)))
    assert outcome.verdict is Verdict.NOT_REFUSED
    assert "took 8 MB" in outcome.detail


async def test_a_secret_that_the_file_api_gives_out_is_noticed(suite: Suite) -> None:
    leaky = await suite.new_box()
    file = str(suite.canaries["file"])
    text = str(suite.canaries["secret"])
    await leaky.must("/bin/sh", "-c", f"mkdir -p {Path(file).parent} && echo {text} > {file}")
    for name in ("file-api-absolute-link", "file-api-parents", "file-api-listing"):
        assert (await attack(suite, leaky, name, "user")).verdict is Verdict.NOT_REFUSED


async def test_harm_to_the_host_is_noticed(on_host: Canaries) -> None:
    assert harm_to_host(on_host) is None
    stray = Path(str(on_host["folder"]), "stray")
    stray.touch()
    assert harm_to_host(on_host) == "a file was made on the host"
    stray.unlink()
    file = Path(str(on_host["file"]))
    original = file.read_text()
    file.write_text("changed")
    assert harm_to_host(on_host) == "a file of the host was changed"
    file.write_text(original)


async def test_a_file_left_in_the_hosts_system_is_noticed(
    suite: Suite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("paddock.doctor.suite._SYSTEM", (str(tmp_path),))
    (tmp_path / str(suite.canaries["mark"])).touch()
    found = [case for case in cases(GROUPS) if case.attempt.leaves]
    assert found
    assert (await suite.run(found[0])).verdict is Verdict.NOT_REFUSED
