"""Which provider a server takes: the one that is named, or the best that the machine can run; or what to do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paddock.clock import SystemClock
from paddock.providers import registry
from paddock.providers.faults import FaultyProvider
from paddock.providers.registry import NoProvider, build_providers, default_provider
from paddock.settings import Settings


def settings(name: str = "", *several: str, **more: str) -> Settings:
    return Settings(SANDBOX_PROVIDER=name, SANDBOX_PROVIDERS=",".join(several), _env_file=None, **more)


@pytest.fixture
def problems(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What keeps the local provider from working here; a test may add some."""
    found: list[str] = []
    monkeypatch.setattr(registry, "local_problems", lambda: found)
    return found


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What keeps the Docker provider from working here; nothing, unless a test says so."""
    found: list[str] = []
    monkeypatch.setattr(registry, "docker_problem", lambda settings: found[0] if found else None)
    return found


def test_where_the_machine_can_it_is_local(problems: list[str]) -> None:
    assert default_provider(settings()) == "local"


def test_where_it_cannot_and_an_engine_answers_it_is_docker(problems: list[str], engine: list[str]) -> None:
    problems.append("User namespaces are off.")
    assert default_provider(settings()) == "docker"


def test_where_neither_can_every_problem_is_said_and_what_to_do(problems: list[str], engine: list[str]) -> None:
    problems += ["User namespaces are off: set kernel.x=1.", "There is no compiler: install one."]
    engine.append("No engine answers at /var/run/docker.sock.")
    with pytest.raises(NoProvider) as caught:
        default_provider(settings())
    said = str(caught.value)
    assert all(problem in said for problem in problems + engine)
    assert "Put right" in said


def test_an_engine_that_does_not_answer_is_said_with_its_address(tmp_path: Path) -> None:
    said = registry.docker_problem(settings(DOCKER_HOST=f"unix://{tmp_path}/engine.sock"))
    assert said is not None and f"{tmp_path}/engine.sock" in said


def test_a_remote_engine_is_refused_before_anything_is_made() -> None:
    with pytest.raises(NoProvider, match="on another machine"):
        build_providers(settings("docker", DOCKER_HOST="tcp://192.0.2.1:2375"), SystemClock())


def test_several_are_built_with_the_default_first(problems: list[str], tmp_path: Path) -> None:
    given = settings(
        "local", "docker", "local", PADDOCK_HOME=str(tmp_path), DOCKER_HOST=f"unix://{tmp_path}/engine.sock"
    )
    assert list(build_providers(given, SystemClock())) == ["local", "docker"]


def test_the_first_of_several_is_the_default_where_none_is_named(problems: list[str]) -> None:
    assert default_provider(settings("", "docker", "local")) == "docker"


def test_one_of_several_that_does_not_exist_is_refused(problems: list[str]) -> None:
    with pytest.raises(NoProvider, match="SANDBOX_PROVIDERS='nonsense'"):
        default_provider(settings("local", "docker", "nonsense"))


def test_a_local_provider_that_was_asked_for_and_cannot_work_is_refused_too(problems: list[str]) -> None:
    problems.append("User namespaces are off.")
    with pytest.raises(NoProvider, match=r"SANDBOX_PROVIDER=local cannot .* User namespaces are off"):
        default_provider(settings("local"))


def test_one_of_an_earlier_version_says_what_to_use_instead(problems: list[str]) -> None:
    for given in (settings("fake"), settings("local", "fake")):
        with pytest.raises(NoProvider, match=r"'fake' is no longer part of Paddock: use 'local'"):
            default_provider(given)


def test_a_file_of_faults_is_put_around_each(problems: list[str], tmp_path: Path) -> None:
    given = settings("local", PADDOCK_HOME=str(tmp_path), PADDOCK_FAULTS=str(tmp_path / "faults.json"))
    assert isinstance(build_providers(given, SystemClock())["local"], FaultyProvider)
    assert not isinstance(build_providers(settings("local"), SystemClock())["local"], FaultyProvider)


@pytest.mark.parametrize("name", ["nonsense", "kubernetes"])
def test_a_provider_that_is_not_there_says_which_are(name: str, problems: list[str]) -> None:
    with pytest.raises(NoProvider, match=r"local, .*daytona"):
        default_provider(settings(name))


def test_the_choice_of_one_imports_nothing_of_the_other() -> None:
    check = """
import sys
from paddock.clock import SystemClock
from paddock.providers.registry import build_providers
from paddock.settings import Settings
build_providers(Settings(SANDBOX_PROVIDER="local", _env_file=None), SystemClock())
print([name for name in sys.modules if name.startswith(("paddock.providers.docker", "paddock.providers.faults"))])
"""
    assert subprocess.run((sys.executable, "-c", check), capture_output=True, text=True).stdout == "[]\n"
