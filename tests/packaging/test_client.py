"""``paddock-client`` alone: on any system, with httpx and pydantic only, and of use."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.e2b.server import PaddockServer
from tests.packaging.installed import Environment, Person, a_person
from tests.packaging.wheels import Wheels

_SERVERS = {"fastapi", "uvicorn", "uvloop", "sqlalchemy", "asyncpg", "starlette", "mcp", "cryptography"}

_IMPORT_ALL = """
import importlib, importlib.metadata, sys
left_out = tuple(sys.argv[1:])
for file in importlib.metadata.files("paddock-client"):
    name = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
    if file.suffix == ".py" and not name.startswith(left_out) and name != "paddock.__main__":
        importlib.import_module(name)
print(*sorted({name.split(".")[0] for name in sys.modules}))
"""

_USE = """
import asyncio
from paddock import SandboxClient, SyncSandboxClient

with SyncSandboxClient() as client:
    box = client.create_sandbox("alice")
    client.write_file(box.sandbox_id, "hello.py", "print('hello from', 'a client')")
    print(client.run_command(box.sandbox_id, "python3 hello.py"))

async def main():
    async with SandboxClient() as client:
        print((await client.run_command(box.sandbox_id, "exit 3")).exit_code)
        await client.delete_sandbox(box.sandbox_id)

asyncio.run(main())
"""

# What Windows does not have. Python there has none of these modules, so their import fails.
_AS_ON_WINDOWS = """
import asyncio, os, sys
import httpx, pydantic, rich.console, rich.table, typer  # other people's look at the platform, too
for name in ("fcntl", "termios", "tty", "pwd", "grp", "resource", "pty"):
    sys.modules[name] = None
for name in ("O_CLOEXEC", "O_NOFOLLOW", "geteuid", "getuid", "fork"):
    delattr(os, name)
def add_signal_handler(*words): raise NotImplementedError
asyncio.unix_events._UnixSelectorEventLoop.add_signal_handler = add_signal_handler
asyncio.unix_events._UnixSelectorEventLoop.remove_signal_handler = add_signal_handler
sys.platform = "win32"
"""


@pytest.fixture(scope="module")
def client(wheels: Wheels) -> Iterator[Environment]:
    """Installed where there is no compiler, and nothing else than what it requires."""
    with a_person() as somebody:
        nowhere = somebody.home / "bin"
        nowhere.mkdir()
        made = Environment.create(Person(somebody.home, path=str(nowhere)))
        made.install(wheels.client)
        yield made


@pytest.fixture(scope="module")
def with_cli(client: Environment, wheels: Wheels) -> Environment:
    """The same, once what needs no more has been tried: tests run in the order of this file."""
    client.install(f"{wheels.client}[cli]")
    return client


def _at(server: PaddockServer) -> dict[str, str]:
    return {"PADDOCK_URL": server.url, "PADDOCK_API_KEY": server.key}


@pytest.mark.xdist_group("client wheel")
def test_it_brings_httpx_and_pydantic_and_what_those_need(client: Environment) -> None:
    listed = json.loads(client.person.run(client.python, "-m", "pip", "inspect"))["installed"]
    metadata = {each["metadata"]["name"].lower().replace("_", "-"): each["metadata"] for each in listed}
    asked = {name for name in metadata if name in ("paddock-client", "httpx", "pydantic")}
    assert asked == {"paddock-client", "httpx", "pydantic"}
    assert len(metadata) <= 16, sorted(metadata)
    assert not set(metadata) & (_SERVERS | {"typer", "rich", "websockets"})
    assert client.person.run(client.python, "-m", "pip", "check").startswith("No broken requirements")


@pytest.mark.xdist_group("client wheel")
def test_everything_but_the_extras_can_be_imported(client: Environment) -> None:
    extras = ["paddock.cli", "paddock.langchain", "paddock.deepagents", "paddock.client.terminal_connections"]
    client.person.run(client.python, "-c", _IMPORT_ALL, *extras)


@pytest.mark.xdist_group("client wheel")
def test_a_first_sandbox_by_the_client(client: Environment, local_server: PaddockServer) -> None:
    said = client.person.run(client.python, "-c", _USE, **_at(local_server))
    assert said == "hello from a client\n\n3\n"


@pytest.mark.xdist_group("client wheel")
def test_the_command_without_its_extra_says_how_to_get_it(client: Environment) -> None:
    said = client.person.run(client.paddock, "list", fails=True)
    assert "pip install 'paddock-client[cli]'" in said
    assert "Traceback" not in said


@pytest.mark.xdist_group("client wheel")
@pytest.mark.slow
def test_a_terminal_without_its_extra_says_how_to_get_it(client: Environment, local_server: PaddockServer) -> None:
    program = "from paddock import SyncSandboxClient; SyncSandboxClient().terminal('alice_00000000').__enter__()"
    said = client.person.run(client.python, "-c", program, fails=True, **_at(local_server))
    assert "pip install 'paddock-client[terminal]'" in said


@pytest.mark.xdist_group("client wheel")
def test_the_command_line_works_on_a_server_elsewhere(with_cli: Environment, local_server: PaddockServer) -> None:
    person, at = with_cli.person, _at(local_server)
    sandbox_id = person.run(with_cli.paddock, "create", "--user-id", "alice", **at).strip()
    assert person.run(with_cli.paddock, "exec", sandbox_id, "--", "echo hello", **at) == "hello\n"
    assert sandbox_id in person.run(with_cli.paddock, "list", **at)
    assert "browser" in person.run(with_cli.paddock, "addon", "list", "--server", local_server.url, **at)
    person.run(with_cli.paddock, "kill", sandbox_id, **at)


@pytest.mark.xdist_group("client wheel")
def test_importing_all_of_it_with_the_command_line_imports_no_server(with_cli: Environment) -> None:
    imported = with_cli.person.run(
        with_cli.python, "-c", _IMPORT_ALL, "paddock.langchain", "paddock.deepagents"
    ).split()
    assert not _SERVERS & set(imported)


@pytest.mark.xdist_group("client wheel")
@pytest.mark.parametrize("words", [["up"], ["doctor"], ["down"], ["template", "build"]], ids=" ".join)
def test_commands_of_the_server_say_what_to_install(with_cli: Environment, words: list[str]) -> None:
    said = with_cli.person.run(with_cli.paddock, *words, fails=True)
    assert "pip install paddock-sandbox" in said and "PADDOCK_URL" in said
    assert "Traceback" not in said


@pytest.mark.xdist_group("client wheel")
def test_it_runs_where_there_is_nothing_of_unix(with_cli: Environment, local_server: PaddockServer) -> None:
    """As far as Linux can play another system: see the workflow of the release for the real ones."""
    person, at = with_cli.person, _at(local_server)
    person.run(with_cli.python, "-c", f"{_AS_ON_WINDOWS}\n{_USE}", **at)
    command = f"{_AS_ON_WINDOWS}\nfrom paddock.__main__ import main\nmain()"
    sandbox_id = person.run(with_cli.python, "-c", command, "create", "--user-id", "alice", **at).strip()
    assert person.run(with_cli.python, "-c", command, "exec", sandbox_id, "--", "echo hello", **at) == "hello\n"
    said = person.run(with_cli.python, "-c", command, "shell", sandbox_id, fails=True, **at)
    assert "WSL" in said, said
    assert "Linux only" in person.run(with_cli.python, "-c", command, "up", fails=True)
    person.run(with_cli.python, "-c", command, "kill", sandbox_id, **at)
