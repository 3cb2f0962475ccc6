"""The backend in every deepagents that it is for, and the provider of the CLI: each suite runs in its environment."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.deepagents.environments import DCODE, NEWER, OLDER, ROOT, Environment, prepare
from tests.e2b.server import PaddockServer

SUITE = Path(__file__).parent / "suite"
SECONDS = 900
STANDARD_TESTS = 86
MEANT_OTHERWISE = 7
"""Of the standard suite, written for 0.6, that 0.7 itself contradicts."""

Run = Callable[..., dict[str, int]]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
both = pytest.mark.parametrize(
    "environment", [pytest.param(OLDER, marks=pytest.mark.exhaustive), NEWER], ids=lambda environment: environment.name
)


@pytest.fixture
def run(local_server: PaddockServer, tmp_path: Path) -> Run:
    def run(environment: Environment, file: str, **variables: str) -> dict[str, int]:
        """How many tests ended how. One that failed is told with what it said."""
        prepare(environment)
        done = subprocess.run(
            [environment.python, "-B", "-m", "pytest", "-q", "--tb=short", "-W", "ignore", file],
            cwd=SUITE,
            env=_surroundings(local_server, environment, tmp_path) | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stdout[-8000:]
        last = done.stdout.strip().splitlines()[-1]
        return {kind: int(count) for count, kind in re.findall(r"(\d+) (passed|skipped|deselected|failed)", last)}

    return run


def _surroundings(server: PaddockServer, environment: Environment, home: Path) -> dict[str, str]:
    ours = ("PADDOCK_", "SANDBOX_", "PYTEST_", "PYTHON", "LANG", "COV_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    found = {"PADDOCK_URL": server.url, "PADDOCK_API_KEY": server.key, "PYTHONPATH": environment.path}
    return kept | found | {"HOME": str(home), "LANGSMITH_TRACING": "false"}


@both
def test_the_standard_suite_passes(environment: Environment, run: Run) -> None:
    ended = run(environment, "test_standard.py")
    contradicted = 0 if environment is OLDER else MEANT_OTHERWISE
    assert ended == {"passed": STANDARD_TESTS - contradicted} | ({"deselected": contradicted} if contradicted else {})


@both
def test_the_backend_answers_as_deepagents_own_scripts_do(environment: Environment, run: Run) -> None:
    assert run(environment, "test_backend.py")["passed"] > 50


def test_an_agent_works_in_a_sandbox(run: Run) -> None:
    assert run(NEWER, "test_agent.py")["passed"] >= 1


def test_the_provider_keeps_to_the_interface_of_the_cli(run: Run) -> None:
    assert run(NEWER, "test_provider.py")["passed"] >= 5


@pytest.mark.exhaustive
def test_the_cli_finds_and_uses_the_provider(run: Run, tmp_path: Path) -> None:
    """As an installed package would tell it: by the entry point."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    told = tmp_path / "site" / "paddock_sandbox-0.1.0.dist-info"
    told.mkdir(parents=True)
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: paddock-sandbox\nVersion: 0.1.0\n")
    (told / "entry_points.txt").write_text(
        "".join(f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in each.items()) for group, each in points.items())
    )
    path = os.pathsep.join((str(told.parent), DCODE.path))
    assert run(DCODE, "test_dcode.py", PYTHONPATH=path)["passed"] >= 7
