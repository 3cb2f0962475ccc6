"""``paddock up``: starts the server, and prints what to do next."""

from __future__ import annotations

import gc
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock import __version__
from paddock.cli import output
from paddock.cli.configuration import describe, load_settings
from paddock.cli.session import CliSession, command
from paddock.errors import Invalid, StoreUnavailable, Unavailable
from paddock.home import unset_home

if TYPE_CHECKING:
    from paddock.accounts.first_key import FirstKey
    from paddock.settings import Settings


@command
def up(
    session: CliSession,
    host: Annotated[str | None, typer.Option(help="Address to listen on. [env: HOST; default: 127.0.0.1]")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; 0 for any. [env: PORT; default: 8080]")
    ] = None,
    provider: Annotated[str | None, typer.Option(help="Sandbox provider. [env: SANDBOX_PROVIDER]")] = None,
    database_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Database. [env: DATABASE_URL; default: SQLite]")
    ] = None,
    home: Annotated[Path | None, typer.Option(metavar="DIR", help="Directory for state. [env: PADDOCK_HOME]")] = None,
) -> None:
    """Start the server on this machine."""
    gc.disable()  # garbage collection during imports takes a fifth of the start; the server enables it again
    options: dict[str, Any] = {
        "HOST": host,
        "PORT": port,
        "SANDBOX_PROVIDER": provider,
        "DATABASE_URL": database_url,
        "PADDOCK_HOME": home,
    }
    settings = load_settings(**options)
    # Load again with the final port, because other settings depend on it.
    settings = load_settings(**{**options, "PORT": _usable_port(settings)})
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    from paddock.providers import local  # noqa: F401 - so that the thread does not import it while others are imported
    from paddock.providers.registry import default_provider

    with ThreadPoolExecutor(1) as trials:  # of this machine, by other processes, while the server is imported
        choice = trials.submit(default_provider, settings)
        from paddock.accounts.first_key import first_key
        from paddock.api.server import serve
        from paddock.server.context import ensure_free

    try:
        chosen = choice.result()
        _private_home(settings.home)
        ensure_free(settings)
        first = asyncio.run(first_key(settings))
    except ValueError as error:  # an impossible setting
        raise Invalid(describe(error)) from error
    except (OSError, StoreUnavailable) as error:
        raise Unavailable(_cannot_write(settings, error)) from error
    # Pass on the choices made here, so that they are not made again.
    settings = load_settings(**{**options, "PORT": settings.port, "SANDBOX_PROVIDER": chosen})
    if not session.json:
        import rich.table  # noqa: F401 - slow to import, which must not delay a request

    def started() -> None:
        session.answer(_document(settings, chosen, first), lambda: _welcome(settings, chosen, first))
        sys.stdout.flush()

    try:
        serve(settings, started)
    except ValueError as error:
        raise Invalid(describe(error)) from error


def _usable_port(settings: Settings) -> int:
    """Fail early, in one line, if the port is taken; choose one if any will do."""
    import socket

    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            raise Unavailable(
                f"Cannot listen on {settings.host}:{settings.port}: {error.strerror}. "
                "Stop what is there, or choose another port with --port."
            ) from error
        return int(probe.getsockname()[1])


def _private_home(home: Path) -> None:
    """Accessible by its owner only, also if it existed with wider permissions."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    home.chmod(0o700)


def _cannot_write(settings: Settings, error: OSError | StoreUnavailable) -> str:
    from paddock.store.database import StoreDamaged

    if isinstance(error, StoreUnavailable):
        cause = getattr(error.__cause__, "orig", None) or error.message
        what = "the database" if settings.database_url.startswith("postgres") else "its database"
    else:
        cause, what = error.strerror or error, str(error.filename or settings.home)
    if isinstance(error, StoreDamaged):
        return (
            f"Paddock cannot start, because {what} is damaged: {cause}. Nothing was changed, and sandboxes are left as "
            'they are. "Backups, and a damaged database" in docs/configuration.md describes how to restore it.'
        )
    read_only = " It is read-only." if "readonly" in str(cause) else ""
    return (
        f"Paddock cannot start, because it cannot use {what}: {cause}.{read_only} "
        "Make it writable, or choose another PADDOCK_HOME or DATABASE_URL."
    )


def _document(settings: Settings, provider: str, first: FirstKey) -> dict[str, Any]:
    return {
        "url": settings.local_url,
        "home": str(settings.home),
        "key_file": str(settings.key_file),
        "new_key": first.new,
        "provider": provider,
        "version": __version__,
    }


def _welcome(settings: Settings, provider: str, first: FirstKey) -> None:
    screen = output.console()
    screen.print(f"[bold]Paddock[/] {__version__}\n")
    output.print_fields(
        {
            "server": f"[bold]{output.escape(settings.local_url)}[/]",
            "key": f"{output.escape(_short(settings.key_file))}{' (new)' if first.new else ''}",
            "provider": output.escape(provider),
            "ports": output.escape(f"{settings.public_scheme}://<port>-<key>.{settings.domain}/"),
        }
    )
    screen.print("\n[bold]Try this[/], in another terminal:")
    print(_example(settings))


def _example(settings: Settings) -> str:
    """Shell commands, to be pasted as they are."""
    # A new terminal has no PADDOCK_HOME, by which clients find the server and its key.
    home = "" if settings.home == unset_home().absolute() else f"\nexport PADDOCK_HOME={_quoted(settings.home)}\n"
    return f"""{home}
{_own_command()} create

curl -sw '\\n' {settings.local_url}/sandboxes/create \\
  -H "X-API-Key: $(cat {_quoted(settings.key_file)})" \\
  -H 'Content-Type: application/json' -d '{{"user_id": "alice"}}'

{shlex.quote(sys.executable)} - <<'END'
from paddock import SyncSandboxClient
with SyncSandboxClient() as client:
    box = client.create_sandbox("alice")
    print(client.run_command(box.sandbox_id, "uname -a").stdout)
END
"""


def _own_command() -> str:
    """How to call this program: by name if it is on PATH, else by path."""
    import shutil

    called = Path(sys.argv[0])
    if called.name != "paddock":  # started by ``python -m`` or from a test
        called = Path(sys.executable).with_name("paddock")
    if (found := shutil.which("paddock")) and called.exists() and Path(found).samefile(called):
        return "paddock"
    return shlex.quote(str(called.absolute()))


def _quoted(path: Path) -> str:
    return shlex.quote(_short(path)).replace("'~/", "~/'")


def _short(path: Path) -> str:
    try:
        return f"~/{path.relative_to(Path.home())}"
    except (ValueError, RuntimeError):
        return str(path)
