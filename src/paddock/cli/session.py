"""What all commands share: the connection to the server, output, and error handling.

``@command`` gives a function a :class:`CliSession` and the options ``--json``, ``--server`` and ``--api-key``, which
are also accepted before the command's name. A parameter whose type is a dataclass stands for its fields: options shared
by several commands. An expected failure prints one line and exits with code 1, without a traceback.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import importlib.util
import inspect
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, cast, get_type_hints

import typer

from paddock.cli import output
from paddock.distribution import SERVER
from paddock.errors import PaddockError, Unsupported

if TYPE_CHECKING:
    from paddock.client import SandboxClient, SyncSandboxClient

P = ParamSpec("P")
NOBODY_READS = 141
"""Exit code if the reader of our output has closed, as ``head`` does: that of a shell for SIGPIPE."""
RETRIES = 2
"""Few, because a person is waiting."""

Server = Annotated[str | None, typer.Option("--server", metavar="URL", help="Server URL. [env: PADDOCK_URL]")]
ApiKey = Annotated[str | None, typer.Option("--api-key", metavar="KEY", help="API key. [env: PADDOCK_API_KEY]")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


_UNIX_ONLY = {"termios", "tty", "fcntl"}
_ELSEWHERE = "To use a server on another machine, set PADDOCK_URL and PADDOCK_API_KEY."


class CliSession:
    def __init__(self, server: str | None = None, api_key: str | None = None, json: bool = False) -> None:
        self.server = server
        self.api_key = api_key
        self.json = json
        self._open = ExitStack()
        self._client: SyncSandboxClient | None = None

    @property
    def client(self) -> SyncSandboxClient:
        """Created at first use, closed when the command ends."""
        if self._client is None:
            with output.importing():
                from paddock.client import SyncSandboxClient

                client = SyncSandboxClient(self.server, api_key=self.api_key, retries=RETRIES)
            self._client = self._open.enter_context(client)
        return self._client

    def async_client(self) -> SandboxClient:
        with output.importing():
            from paddock.client import SandboxClient

            return SandboxClient(self.server, api_key=self.api_key, retries=RETRIES)

    def answer(self, document: Any, show: Callable[[], None]) -> None:
        """Print the document with --json, otherwise call ``show``."""
        if self.json:
            output.print_json(document)
        else:
            show()

    def fail(self, error: PaddockError) -> typer.Exit:
        if self.json:
            output.print_json(output.error_document(error))
        else:
            output.print_error(error.message, output.hint_for(error))
        return typer.Exit(1)

    def close(self) -> None:
        self._open.close()


def command(function: Callable[Concatenate[CliSession, P], None]) -> Callable[..., None]:
    """Turn ``function(session, …)`` into a Typer command."""

    @functools.wraps(function)
    def run(ctx: typer.Context, json: bool, server: str | None, api_key: str | None, **arguments: Any) -> None:
        root = ctx.find_root().params
        session = CliSession(
            server or root.get("server"), api_key or root.get("api_key"), json or bool(root.get("json"))
        )
        gc.enable()
        try:
            function(session, **_gathered(groups, arguments))  # type: ignore[call-arg]
        except PaddockError as error:
            raise session.fail(error) from error
        except ModuleNotFoundError as error:
            raise session.fail(_not_installed(error)) from error
        except BrokenPipeError as error:
            raise typer.Exit(NOBODY_READS) from error
        except OSError as error:
            raise session.fail(_local_error(error)) from error
        finally:
            session.close()

    own: list[inspect.Parameter] = []
    groups: dict[str, type[Any]] = {}
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        if dataclasses.is_dataclass(group := hints[name]):
            groups[name] = cast("type[Any]", group)
            own += _options_of(groups[name])
        else:
            own.append(parameter.replace(annotation=group))
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            _parameter("ctx", typer.Context),
            *(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own),
            _parameter("json", Json, False),
            _parameter("server", Server, None),
            _parameter("api_key", ApiKey, None),
        ]
    )
    run.__annotations__ = {}
    return run


def _options_of(group: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [_parameter(each.name, hints[each.name], each.default) for each in dataclasses.fields(group)]


def _gathered(groups: dict[str, type[Any]], arguments: dict[str, Any]) -> dict[str, Any]:
    """Combine the fields of each option group into one argument."""
    given = dict(arguments)
    for name, group in groups.items():
        given[name] = group(**{each.name: given.pop(each.name) for each in dataclasses.fields(group)})
    return given


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _not_installed(error: ModuleNotFoundError) -> PaddockError:
    """Explains a missing module: a server command on a machine that has only the client."""
    if error.name in _UNIX_ONLY:
        return Unsupported("A terminal in a sandbox needs Linux or macOS here. On Windows use WSL, or `paddock exec`.")
    if importlib.util.find_spec("paddock.settings") is not None:
        raise error
    if sys.platform == "linux":
        how = f"To install it, run `uv tool install {SERVER}` or `pip install {SERVER}`"
    else:
        how = f"It runs on Linux only, where `uv tool install {SERVER}` installs it"
    return Unsupported(f"This command needs the server, which is not on this machine. {how}. {_ELSEWHERE}")


def _local_error(error: OSError) -> PaddockError:
    """An error with a local file."""
    return PaddockError(f"{error.filename}: {error.strerror}" if error.filename else str(error))
