"""``paddock-sandbox`` from its wheel, without a checkout and a compiler: ``paddock up`` does what ``make run`` does."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.packaging.first_sandbox import make_a_first_sandbox
from tests.packaging.installed import Environment, Person, a_server
from tests.packaging.wheels import Wheels


def _handed_over(wheels: Wheels, person: Person) -> Path:
    """The wheels, where the person may read them."""
    folder = person.home.parent / "wheels"
    folder.mkdir()
    for wheel in (wheels.client, wheels.server):
        shutil.copy(wheel, folder)
    return folder


def test_the_server_runs_from_its_wheels(person: Person, wheels: Wheels) -> None:
    """The sample: other people's packages are those that the tests run with."""
    environment = Environment.create(person, python=Path(sys.executable))
    environment.install("--no-deps", wheels.client, wheels.server, index=False)
    site = Path(person.run(environment.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    # At the end of the path, and without what other `.pth` files say: this checkout is not found there.
    (site / "others.pth").write_text("\n".join(_installed_for_the_tests()))
    with a_server(person, [environment.paddock]):
        where = person.run(environment.python, "-c", "import paddock.settings as it; print(it.__file__)").strip()
        assert Path(where).is_relative_to(site)
        sandbox_id = person.run(environment.paddock, "create", "--user-id", "alice").strip()
        assert person.run(environment.paddock, "exec", sandbox_id, "--", "echo hello") == "hello\n"
        person.run(environment.paddock, "kill", sandbox_id)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(1200)  # installs from an index
def test_a_first_sandbox_after_pip_install(anybody: Person, wheels: Wheels) -> None:
    environment = Environment.create(anybody)
    environment.install("--find-links", _handed_over(wheels, anybody), "paddock-sandbox")
    assert not {"ipykernel", "debugpy", "jedi", "langchain-core"} & environment.names()
    assert environment.person.run(environment.python, "-m", "pip", "check").startswith("No broken requirements")
    with a_server(anybody, [environment.paddock]) as server:
        make_a_first_sandbox(anybody, server, environment.paddock, environment.python)
        anybody.run(environment.paddock, "down")


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(1200)  # installs from an index
@pytest.mark.parametrize("tool", ["uv", "pipx"])
def test_a_first_sandbox_after_a_tools_install(anybody: Person, wheels: Wheels, tool: str) -> None:
    tools = Environment.create(anybody, "tools")
    tools.install(tool)
    links = _handed_over(wheels, anybody)
    program = tools.folder / "bin" / tool
    if tool == "uv":
        anybody.run(program, "tool", "install", "--find-links", links, "--python", tools.python, "paddock-sandbox")
    else:
        anybody.run(program, "install", f"--pip-args=--find-links={links}", "paddock-sandbox")
    paddock = anybody.home / ".local" / "bin" / "paddock"
    with a_server(anybody, [paddock]) as server:
        make_a_first_sandbox(anybody, server, paddock, None)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.timeout(1200)  # installs from an index
def test_each_can_be_upgraded_and_the_server_removed(person: Person, wheels: Wheels) -> None:
    """Whatever the order, no file of the one goes with the other."""
    environment = Environment.create(person)
    whole = (
        "import importlib.metadata as m; "
        "print(*[f for n in sys.argv[1:] for f in m.files(n) if not f.locate().exists() and f.suffix != '.pyc'])"
    )
    for names in (
        (wheels.server, wheels.client),
        (wheels.client, wheels.server),
        (wheels.client,),
        (wheels.server,),
    ):
        environment.install("--no-deps", "--force-reinstall", *names, index=False)
        both = ("paddock-client", "paddock-sandbox")
        assert person.run(environment.python, "-c", f"import sys; {whole}", *both).strip() == ""
    environment.install("httpx", "pydantic")
    person.run(environment.python, "-m", "pip", "uninstall", "--yes", "--quiet", "paddock-sandbox")
    person.run(environment.python, "-c", "from paddock import SandboxClient, SandboxSession")
    # The command is both distributions', so it goes with either; docs/installing.md says how to get it back.
    assert "pip install 'paddock-client[cli]'" in person.run(environment.python, "-m", "paddock", fails=True)


def _installed_for_the_tests() -> list[str]:
    import httpx

    return sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), str(Path(httpx.__file__).parents[1])})
