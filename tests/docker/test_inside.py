"""What is in a container of any image, what it may do, and what it may use."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from paddock import errors
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.machine.base import ProcessSpec, ProcessStatus
from paddock.providers.base import IsolationLevel, Mount, Resources
from tests.docker import engine
from tests.docker.place import Place
from tests.local.outside import REACHABLE, Outside, fetch
from tests.support.waiting import until


async def test_an_image_of_one_static_program_and_nothing_else_is_a_sandbox(place: Place) -> None:
    inside = await place.create(template_id=engine.SCRATCH)
    spec = ProcessSpec(process_id="p_1", argv=["/hello", "7"], cwd="/workspace")
    info, out, _ = await inside.machine.run(spec, 30)
    assert (info.exit_code, out.data) == (7, b"hello from uid 1000 in /workspace\n")
    await inside.put("/workspace/file", "kept")
    assert await inside.get("/workspace/file") == b"kept"
    home = await inside.machine.stat("/home/user")
    assert (home.owner, home.group) == ("user", "user")
    assert b"user:x:1000:1000:" in await inside.get("/etc/passwd")


async def test_users_and_sudo_are_there_whatever_the_image_has(place: Place) -> None:
    inside = await place.create()
    assert await inside.says("id -un; pwd; sudo id -un; hostname") == "user\n/workspace\nroot\nsandbox"
    assert await inside.says("id -u", user="root") == "0"
    assert await inside.says("touch /workspace/x ~/y && stat -c %U /workspace/x ~/y") == "user\nuser"


async def test_no_capability_no_new_privilege_and_our_filter(place: Place) -> None:
    inside = await place.create()
    status = await inside.says("grep -E 'CapEff|NoNewPrivs|^Seccomp:' /proc/self/status")
    assert status.split() == ["CapEff:", "0000000000000000", "NoNewPrivs:", "1", "Seccomp:", "2"]
    of_root = await inside.says("grep CapEff /proc/self/status", user="root")
    assert of_root.split()[1] == "00000000800004fb"
    assert (await inside.run("unshare -U true")).code != 0
    assert (await inside.run("kill -9 1", user="root")).code == 0, "the kernel spares a first process"
    assert await inside.says("echo alive") == "alive"


async def test_nothing_of_the_engine_is_seen_and_the_door_is_shut(place: Place) -> None:
    inside = await place.create()
    assert await inside.says("ls -A /run/paddock/birth", user="root") == ""
    assert (await inside.run("touch /run/paddock/birth/x || touch /run/paddock/agent", user="root")).code != 0
    assert await inside.says("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '") == "lo"


async def test_the_images_own_environment_is_kept_and_the_creators_wins(place: Place, tmp_path: Path) -> None:
    name = f"paddock-test-env-{secrets.token_hex(4)}"
    changes = ["ENV PATH=/opt/tool/bin:/usr/bin:/bin", "ENV TOOL=image", "ENV BOTH=image", "ENV HOME=/wrong"]
    container = engine.call("POST", "/containers/create", json={"Image": engine.DEBIAN, "Cmd": ["true"]}).json()["Id"]
    engine.call("POST", "/commit", params={"container": container, "repo": name, "changes": changes})
    other = Place(tmp_path / "other", place.address, images=[name])
    try:
        await other.provider.start()
        inside = await other.create(template_id=name, env={"BOTH": "creator"})
        assert await inside.says("echo $TOOL $BOTH $HOME") == "image creator /home/user"
        assert await inside.says("echo $PATH") == "/run/paddock/bin:/home/user/.local/bin:/opt/tool/bin:/usr/bin:/bin"
    finally:
        await other.clear()
        engine.call("DELETE", f"/containers/{container}")
        engine.call("DELETE", f"/images/{name}", params={"force": 1})


async def test_what_a_user_installs_is_found_and_the_package_managers_are_told_to_install(place: Place) -> None:
    inside = await place.create()
    await inside.says(
        "mkdir -p ~/.local/bin && printf '#!/bin/sh\necho mine\n' > ~/.local/bin/tool && chmod +x ~/.local/bin/tool"
    )
    assert await inside.says("tool; bash -lc 'tool; sudo id -un'") == "mine\nmine\nroot"
    assert await inside.says("sudo env | grep ^PIP_B") == "PIP_BREAK_SYSTEM_PACKAGES=1"
    assert "break-system-packages = true" in await inside.says("cat /etc/pip.conf")
    assert await inside.says("cat $NPM_CONFIG_GLOBALCONFIG") == "prefix=${HOME}/.local"
    assert await inside.says("echo ${NPM_CONFIG_GLOBALCONFIG-none}", user="root") == "none"


async def test_memory_processes_and_processor_are_limited(place: Place) -> None:
    inside = await place.create(resources=Resources(cpu=0.5, memory_mb=64, disk_mb=256, pids=40))
    hungry = await inside.run("python3 -c 'x = bytearray(200 << 20)'")
    assert hungry.code == 128 + signal.SIGKILL
    bomb = await inside.run("for i in $(seq 60); do sleep 30 & done 2>&1; true")
    assert b"fork" in bomb.out + bomb.err
    container = engine.call("GET", f"/containers/{await place.container(inside.sandbox_id)}/json").json()
    assert (container["HostConfig"]["CpuQuota"], container["HostConfig"]["Memory"]) == (50_000, 64 << 20)


async def test_who_takes_more_disk_than_he_may_is_stopped(place: Place) -> None:
    inside = await place.create(resources=Resources(disk_mb=20))
    process = await inside.start("head -c 40M /dev/zero > big; echo full; exec sleep 1000")
    await inside.until(process, b"full")
    told: list[Mapping[str, Any]] = []

    async def hear(sandbox_id: str, kind: str, data: Mapping[str, Any]) -> None:
        told.append({"kind": kind, **data})

    place.provider.tell(hear)
    await until(lambda: told)
    assert (told[0]["kind"], told[0]["reason"]) == ("processes.killed", "disk_limit")
    assert (await inside.machine.wait(process, 30)).status is ProcessStatus.KILLED
    assert await inside.says("rm big; echo room again") == "room again"


async def test_a_read_only_root_has_places_to_work_in(place: Place, tmp_path: Path) -> None:
    other = Place(tmp_path / "other", place.address, read_only=True)
    await other.provider.start()
    inside = await other.create()
    assert (await inside.run("touch /usr/x /etc/x", user="root")).code != 0
    assert await inside.says("cd; touch here /workspace/there /tmp/else && echo fine") == "fine"
    await other.provider.pause(inside.sandbox_id, keep_memory=False)
    await other.provider.resume(inside.sandbox_id)
    assert await (await other.inside(inside.sandbox_id)).says("ls /workspace") == "there"
    await other.clear()
    assert other.leftovers() == []


async def test_an_operators_directory_is_there_and_private_ones_are_refused(place: Place, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "given").write_text("from outside")
    mounts = (Mount(str(shared), "/mnt/shared", read_only=True),)
    inside = await place.create(mounts=mounts)
    assert await inside.says("cat /mnt/shared/given") == "from outside"
    assert (await inside.run("touch /mnt/shared/x", user="root")).code != 0
    assert place.address.socket is not None
    for private in (tmp_path, place.root / "sandboxes", Path(place.address.socket).parent):
        with pytest.raises(errors.ConfinementUnavailable, match="not for mounting"):
            await place.create(mounts=(Mount(str(private), "/mnt/x"),))


async def test_what_goes_out_goes_through_the_gate(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = Outside()
    outside.install(monkeypatch)
    server = await outside.listen()
    other = Place(tmp_path / "other", place.address, reachable=REACHABLE)
    await other.provider.start()
    inside = await other.create(egress=EgressPolicy(EgressMode.PROXY, allow=("open.test",)))
    assert await inside.says(fetch("http://open.test/")) == "hello"
    await other.restart()
    inside = await other.inside(inside.sandbox_id)
    assert await inside.says(fetch("http://open.test/")) == "hello"
    await other.provider.set_egress(inside.sandbox_id, EgressPolicy(EgressMode.PROXY, deny=("open.test",)))
    assert (await inside.run(fetch("http://open.test/"))).text != "hello"
    assert (await other.provider.egress(inside.sandbox_id)).policy.deny == ("open.test",)
    await other.clear()
    server.close()


async def test_what_cannot_be_given_is_refused(place: Place) -> None:
    with pytest.raises(errors.ConfinementUnavailable, match="less than the 'strict'"):
        await place.create(isolation=IsolationLevel.STRICT)
    with pytest.raises(errors.ConfinementUnavailable, match="egress modes"):
        await place.create(egress=EgressPolicy(EgressMode.FULL))
    with pytest.raises(errors.TemplateNotFound):
        await place.create(template_id="nothing:1")
    assert (await place.provider.isolation((await place.create()).sandbox_id)).level is IsolationLevel.STANDARD


async def test_a_runtime_that_the_engine_has_not_is_refused_at_the_start(place: Place, tmp_path: Path) -> None:
    other = Place(tmp_path / "other", place.address, runtime="no-such-runtime")
    with pytest.raises(errors.ProviderRefused, match="no runtime 'no-such-runtime'"):
        await other.provider.start()
    await other.provider.close()
