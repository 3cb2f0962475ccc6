"""What every command shares: the server it talks to, how it answers, and how it fails.

``@command`` gives a function a :class:`CliSession` and the options ``--json``, ``--server`` and ``--api-key``, which
are also taken before the command's name. A parameter whose type is a dataclass stands for its fields: options that
several commands share. An expected failure ends in one line and exit code 1, never in a traceback.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import inspect
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, cast, get_type_hints

import typer

from paddock.cli import output
from paddock.errors import PaddockError

if TYPE_CHECKING:
    from paddock.client import SandboxClient, SyncSandboxClient

P = ParamSpec("P")
NOBODY_READS = 141
"""The exit code when whoever read our output has left, as ``head`` does: as a shell says SIGPIPE."""
RETRIES = 2
"""A person waits: better a quick answer than a patient one."""

Server = Annotated[str | None, typer.Option("--server", metavar="URL", help="The server. [env: PADDOCK_URL]")]
ApiKey = Annotated[str | None, typer.Option("--api-key", metavar="KEY", help="The key. [env: PADDOCK_API_KEY]")]
Json = Annotated[bool, typer.Option("--json", help="Answer with one JSON document, for machines.")]


class CliSession:
    def __init__(self, server: str | None = None, api_key: str | None = None, json: bool = False) -> None:
        self.server = server
        self.api_key = api_key
        self.json = json
        self._open = ExitStack()
        self._client: SyncSandboxClient | None = None

    @property
    def client(self) -> SyncSandboxClient:
        """Made on first use, closed when the command ends."""
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
        """The document for a machine, or whatever ``show`` prints for a person."""
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
    """Turn ``function(session, …)`` into a command for Typer."""

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
    """The fields of each group as one argument."""
    given = dict(arguments)
    for name, group in groups.items():
        given[name] = group(**{each.name: given.pop(each.name) for each in dataclasses.fields(group)})
    return given


def _parameter(name: str, annotation: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _local_error(error: OSError) -> PaddockError:
    """A file of this machine that cannot be read or written."""
    return PaddockError(f"{error.filename}: {error.strerror}" if error.filename else str(error))
