"""Which provider a server takes: the one that is named, or the best that the machine can run; or what to do."""

from __future__ import annotations

import subprocess
import sys

import pytest

from paddock.clock import SystemClock
from paddock.providers import registry
from paddock.providers.fake import FakeProvider
from paddock.providers.registry import NoProvider, build_providers, default_provider
from paddock.settings import Settings


def settings(name: str = "") -> Settings:
    return Settings(SANDBOX_PROVIDER=name, _env_file=None)


@pytest.fixture
def problems(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What keeps the local provider from working here; a test may add some."""
    found: list[str] = []
    monkeypatch.setattr(registry, "local_problems", lambda: found)
    return found


def test_where_the_machine_can_it_is_local(problems: list[str]) -> None:
    assert default_provider(settings()) == "local"


def test_where_it_cannot_every_problem_is_said_and_what_to_do(problems: list[str]) -> None:
    problems += ["User namespaces are off: set kernel.x=1.", "There is no compiler: install one."]
    with pytest.raises(NoProvider) as caught:
        default_provider(settings())
    said = str(caught.value)
    assert all(problem in said for problem in problems)
    assert "Docker" in said and "not part of this version" in said and "SANDBOX_PROVIDER=fake" in said


def test_a_local_provider_that_was_asked_for_and_cannot_work_is_refused_too(problems: list[str]) -> None:
    problems.append("User namespaces are off.")
    with pytest.raises(NoProvider, match=r"SANDBOX_PROVIDER=local cannot .* User namespaces are off"):
        default_provider(settings("local"))


def test_the_fake_is_taken_when_it_is_named_whatever_the_machine_can(problems: list[str]) -> None:
    problems.append("Nothing works.")
    assert default_provider(settings("fake")) == "fake"
    assert isinstance(build_providers(settings("fake"), SystemClock())["fake"], FakeProvider)


@pytest.mark.parametrize("name", ["nonsense", "docker", "kubernetes"])
def test_a_provider_that_is_not_there_says_which_are(name: str, problems: list[str]) -> None:
    with pytest.raises(NoProvider, match=r"local, .*fake"):
        default_provider(settings(name))


def test_the_choice_of_one_imports_nothing_of_the_other() -> None:
    check = """
import sys
from paddock.clock import SystemClock
from paddock.providers.registry import build_providers
from paddock.settings import Settings
build_providers(Settings(SANDBOX_PROVIDER="fake", _env_file=None), SystemClock())
print([name for name in sys.modules if name.startswith("paddock.providers.local")])
"""
    assert subprocess.run((sys.executable, "-c", check), capture_output=True, text=True).stdout == "[]\n"
