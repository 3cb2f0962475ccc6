"""Templates are images: those that are listed, those that are allowed, and what is said of one that is missing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from paddock import errors
from paddock.providers.base import Resources, SandboxSpec
from paddock.providers.docker import container
from paddock.providers.docker.address import Address
from paddock.providers.docker.engine import DockerEngine
from paddock.providers.docker.images import EngineImages
from tests.cli.conftest import Paddock
from tests.docker.fake_engine import FakeEngine
from tests.support.serving import serving

LISTED = ("python:3.12", "team/own:1")


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeEngine]:
    here = [{"RepoTags": ["python:3.12", "other:2"]}, {"RepoTags": None}, {"RepoTags": ["<none>:<none>"]}]
    answers = {
        "GET /images/json": (200, here),
        "GET /images/python:3.12/json": (200, {"Config": {"Env": ["A=b"]}}),
        "POST /images/create": (200, ""),
    }
    with FakeEngine(tmp_path, answers) as made:
        yield made


@pytest.fixture
async def engine(fake: FakeEngine) -> AsyncIterator[DockerEngine]:
    made = DockerEngine(Address.parse(fake.host))
    yield made
    await made.close()


async def test_the_first_that_is_listed_is_the_default_and_nothing_else_is_one(engine: DockerEngine) -> None:
    images = EngineImages(engine, LISTED, any_local=False, pull=False)
    assert await images.names() == ["python:3.12", "team/own:1"]
    await images.require("python:3.12")
    with pytest.raises(errors.TemplateNotFound, match="no template 'other:2'"):
        await images.require("other:2")


async def test_with_leave_every_image_of_the_engine_is_one(engine: DockerEngine) -> None:
    images = EngineImages(engine, LISTED, any_local=True, pull=False)
    assert await images.names() == ["python:3.12", "team/own:1", "other:2"]


async def test_an_image_that_the_engine_has_not_is_missing_with_what_to_do(engine: DockerEngine) -> None:
    images = EngineImages(engine, LISTED, any_local=False, pull=False)
    with pytest.raises(errors.TemplateNotFound, match=r"docker pull team/own:1.*PADDOCK_DOCKER_PULL"):
        await images.require("team/own:1")


async def test_it_is_fetched_where_that_is_allowed(fake: FakeEngine, engine: DockerEngine) -> None:
    images = EngineImages(engine, LISTED, any_local=False, pull=True)
    with pytest.raises(errors.TemplateNotFound):  # this engine has it no more than before
        await images.require("team/own:1")
    assert fake.asked[-2].endswith("/images/create?fromImage=team%2Fown&tag=1")
    await images.close()


def test_a_container_gets_no_more_than_it_needs(tmp_path: Path) -> None:
    spec = SandboxSpec("x_1", "k", "o", "u", "python:3.12", resources=Resources(0.5, 256, 100, 64))
    made = container.body(
        container.ContainerSettings("me", tmp_path / "agent", "", False), spec, tmp_path, hard_disk=False
    )
    host = made["HostConfig"]
    assert (host["NetworkMode"], host["CapDrop"]) == ("none", ["ALL"])
    assert not {"SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "MKNOD", "NET_RAW"} & set(host["CapAdd"])
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert (host["Memory"], host["MemorySwap"], host["CpuQuota"], host["PidsLimit"]) == (
        256 << 20,
        256 << 20,
        50_000,
        64,
    )
    assert all(mount["ReadOnly"] for mount in host["Mounts"])
    assert not {"Privileged", "PortBindings", "Devices", "Binds"} & set(host)
    assert made["Healthcheck"] == {"Test": ["NONE"]}


def test_a_read_only_root_leaves_the_places_to_work_in(tmp_path: Path) -> None:
    spec = SandboxSpec("x_1", "k", "o", "u", "python:3.12")
    made = container.body(
        container.ContainerSettings("me", tmp_path / "agent", "", True), spec, tmp_path, hard_disk=False
    )
    host = made["HostConfig"]
    assert host["ReadonlyRootfs"]
    volumes = {mount["Target"] for mount in host["Mounts"] if mount["Type"] == "volume"}
    assert volumes == {"/workspace", "/home", container.KEEP}
    assert {"/tmp", "/run"} <= set(host["Tmpfs"])


def test_the_servers_templates_have_the_images_of_its_engine(fake: FakeEngine, tmp_path: Path) -> None:
    fake.answers |= {
        "GET /version": (200, {"Version": "27.1", "ApiVersion": "1.46"}),
        "GET /info": (200, {"NCPU": 2, "MemTotal": 4 << 30}),
        "GET /containers/json": (200, []),
    }
    settings = {
        "SANDBOX_PROVIDERS": "local,docker",
        "DOCKER_HOST": fake.host,
        "PADDOCK_DOCKER_IMAGES": ",".join(LISTED),
    }
    with serving(tmp_path / "home", **settings) as server:
        found = httpx.get(f"{server.url}/templates", headers={"X-API-Key": server.key}).raise_for_status().json()
        assert [(each["provider"], each["template_id"], each["default"]) for each in found["templates"]] == [
            ("local", "host", True),
            ("docker", "python:3.12", True),
            ("docker", "team/own:1", False),
        ]
        paddock = Paddock(tmp_path, server.url, server.key)
        assert paddock.json("template", "list")["templates"] == found["templates"]
        shown = [line.split() for line in paddock("template", "list").stdout.splitlines()]
        assert shown[1:] == [
            ["host", "local", "default"],
            ["python:3.12", "docker", "default"],
            ["team/own:1", "docker"],
        ]
