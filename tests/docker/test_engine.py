"""The engine's answers, and what each means: a definite no, or an outcome that nobody knows. No engine is needed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from paddock import errors
from paddock.providers.docker.address import Address
from paddock.providers.docker.engine import DockerEngine, EngineNotFound
from tests.docker.fake_engine import HANG_UP, SILENCE, FakeEngine, Said


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeEngine]:
    with FakeEngine(tmp_path, {}) as made:
        yield made


@pytest.fixture
async def engine(fake: FakeEngine) -> AsyncIterator[DockerEngine]:
    made = DockerEngine(Address.parse(fake.host), seconds=20)
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("given", "socket", "url"),
    [
        ("unix:///run/x.sock", "/run/x.sock", "http://docker"),
        ("tcp://127.0.0.1:1234", None, "http://127.0.0.1:1234"),
        ("tcp://localhost", None, "http://localhost:2375"),
    ],
)
def test_an_engine_on_this_machine_is_understood(given: str, socket: str | None, url: str) -> None:
    assert Address.parse(given) == Address(socket, url)


@pytest.mark.parametrize("given", ["tcp://192.0.2.7:2375", "tcp://engine.example:2376"])
def test_an_engine_on_another_machine_is_not_spoken_to_in_the_clear(given: str) -> None:
    with pytest.raises(errors.ProviderRefused, match=r"on another machine, without TLS.*DOCKER_TLS_VERIFY=1"):
        Address.parse(given)


def test_one_by_ssh_is_refused_with_what_to_do_instead() -> None:
    with pytest.raises(errors.ProviderRefused, match=r"ssh -NL .*PADDOCK_DOCKER_WAY=far"):
        Address.parse("ssh://me@engine")


def test_one_that_speaks_tls_without_certificates_is_refused_with_the_place(tmp_path: Path) -> None:
    address = Address.parse("tcp://engine.example", tls_verify="1", cert_path=str(tmp_path))
    assert address == Address(None, "https://engine.example:2376", tmp_path)
    with pytest.raises(errors.ProviderRefused, match=f"ca.pem, cert.pem and key.pem. In {tmp_path}"):
        DockerEngine(address)


@pytest.mark.parametrize("given", ["ssh://me@engine", "npipe://x", "nonsense", "unix://", "tcp://"])
def test_an_address_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(errors.ProviderRefused, match="DOCKER_HOST"):
        Address.parse(given)


@pytest.mark.parametrize(
    ("said", "spoken"),
    [
        ({"ApiVersion": "1.41", "MinAPIVersion": "1.12"}, (1, 41)),
        ({"ApiVersion": "1.99", "MinAPIVersion": "1.44"}, (1, 47)),
    ],
)
async def test_old_and_new_engines_are_spoken_to_in_what_both_know(
    fake: FakeEngine, engine: DockerEngine, said: dict[str, str], spoken: tuple[int, int]
) -> None:
    fake.answers["GET /version"] = (200, said)
    fake.answers["GET /info"] = (200, {"ID": "x"})
    await engine.negotiate()
    assert await engine.info() == {"ID": "x"}
    assert fake.asked[-1] == f"GET /v1.{spoken[1]}/info"


@pytest.mark.parametrize("said", [{"ApiVersion": "1.30"}, {"ApiVersion": "2.1", "MinAPIVersion": "2.0"}, {}])
async def test_an_engine_that_is_too_old_or_too_new_is_refused(
    fake: FakeEngine, engine: DockerEngine, said: dict[str, str]
) -> None:
    fake.answers["GET /version"] = (200, said)
    with pytest.raises(errors.ProviderRefused, match=r"Docker 20\.10"):
        await engine.negotiate()


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        ((404, {"message": "No such container: x"}), EngineNotFound, "No such container"),
        ((409, {"message": "is already paused"}), errors.Conflict, "already paused"),
        ((500, {"message": "x: container state improper"}), errors.Conflict, "state improper"),
        ((500, {"message": "Cannot pause container x: cannot pause a stopped container"}), errors.Conflict, "stopped"),
        ((400, {"message": "invalid mount"}), errors.ProviderRefused, "invalid mount"),
        ((403, "denied by a plugin"), errors.ProviderRefused, "denied by a plugin"),
        ((500, {"message": "write /x: no space left on device"}), errors.ProviderRefused, "disk is full"),
        ((500, {"message": "OCI runtime create failed: x"}), errors.ProviderRefused, "OCI runtime"),
        ((500, {"message": "database is locked"}), errors.ProviderUnavailable, "database is locked"),
        ((503, ""), errors.ProviderUnavailable, "503"),
        ((200, "this is no JSON"), errors.ProviderUnavailable, "nonsense"),
        (HANG_UP, errors.ProviderUnavailable, "does not answer"),
    ],
)
async def test_every_answer_is_a_definite_no_or_an_open_question(
    fake: FakeEngine, engine: DockerEngine, said: Said, kind: type[errors.PaddockError], words: str
) -> None:
    fake.answers["POST /containers/x/start"] = said
    with pytest.raises(kind, match=words) as caught:
        await engine.start("x")
    assert isinstance(caught.value, kind)
    assert not (kind is errors.ProviderUnavailable and isinstance(caught.value, errors.ProviderRefused))


async def test_an_engine_that_hangs_is_not_waited_for_for_ever(fake: FakeEngine) -> None:
    fake.answers["GET /containers/x/json"] = SILENCE
    engine = DockerEngine(Address.parse(fake.host), seconds=0.3)
    with pytest.raises(errors.ProviderTimeout):
        await engine.inspect("x")
    await engine.close()


async def test_an_engine_that_is_not_there_is_unknown_not_empty(tmp_path: Path) -> None:
    engine = DockerEngine(Address.parse(f"unix://{tmp_path}/nobody.sock"))
    with pytest.raises(errors.ProviderUnavailable, match=r"nobody\.sock does not answer"):
        await engine.containers("label")
    await engine.close()


async def test_a_container_that_is_not_there_is_a_definite_answer(engine: DockerEngine) -> None:
    assert await engine.inspect("x") is None
    await engine.remove("x")


async def test_a_pull_that_fails_in_the_middle_says_why(fake: FakeEngine, engine: DockerEngine) -> None:
    fake.answers["POST /images/create"] = (200, '{"status": "Pulling"}\n{"error": "manifest unknown"}\n')
    with pytest.raises(errors.ProviderRefused, match="manifest unknown"):
        await engine.pull("registry.example:5000/team/image")
    assert fake.asked[-1].endswith("fromImage=registry.example%3A5000%2Fteam%2Fimage&tag=latest")
