"""API keys: through the server, or directly on this machine's database if no server runs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from paddock.cli import output
from paddock.cli.arguments import Role
from paddock.cli.session import CliSession, command
from paddock.errors import Invalid

if TYPE_CHECKING:
    from paddock.accounts.accounts import Accounts, Principal
    from paddock.client import SyncSandboxClient

T = TypeVar("T")


@command
def create(
    session: CliSession,
    name: Annotated[str, typer.Argument(help="Name of the key; also the user, if none is given.")],
    user: Annotated[str | None, typer.Option(help="User of the key; created if new.")] = None,
    role: Annotated[Role | None, typer.Option(help="Role of a new user. [default: member]")] = None,
) -> None:
    """Create a key. It is shown only once; in a pipe it is printed alone."""

    async def local(accounts: Accounts, owner: Principal) -> Mapping[str, Any]:
        from paddock import models

        request = models.CreateKey(name=name, user_id=user, role=models.Role(role) if role else None)
        key, secret = await accounts.create_key(owner, request)
        return {"success": True, "key": secret, **_document(key)}

    made = ask(session, lambda client: client.create_key(name, user_id=user, role=role), local)
    session.answer(made, lambda: _show_new(made))


@command
def list_(session: CliSession) -> None:
    """List keys, without their secrets."""

    async def local(accounts: Accounts, owner: Principal) -> list[Mapping[str, Any]]:
        return [_document(key) for key in await accounts.list_keys(owner)]

    keys: list[Mapping[str, Any]] = ask(session, lambda client: list(client.list_keys()), local)
    rows = (
        (
            str(key["key_id"]),
            key["name"],
            key["user_id"],
            f"{key['prefix']}…",
            output.ago(key["created_at"]),
            output.ago(key["last_used_at"]) or "never",
        )
        for key in keys
    )
    columns = ("ID", "NAME", "USER", "KEY", "CREATED", "USED")
    session.answer({"keys": keys}, lambda: output.print_table(columns, rows, empty="No keys."))


@command
def revoke(
    session: CliSession,
    key_id: Annotated[int, typer.Argument(metavar="ID", help="Id of the key; see `paddock keys list`.")],
) -> None:
    """Revoke a key."""

    async def local(accounts: Accounts, owner: Principal) -> None:
        await accounts.revoke_key(owner, key_id)

    ask(session, lambda client: client.revoke_key(key_id), local)
    session.answer({"success": True, "key_id": key_id}, lambda: print(f"Key {key_id} is revoked."))


def ask(
    session: CliSession,
    remote: Callable[[SyncSandboxClient], Any],
    local: Callable[[Accounts, Principal], Coroutine[Any, Any, Any]],
) -> Any:
    """Ask the server; if none answers and none was named, open the database of this machine."""
    client = session.client
    from paddock.client import AnswerLost, ServerUnreachable
    from paddock.client.connection import is_this_machine

    try:
        return remote(client)
    except ServerUnreachable as error:
        if session.server or isinstance(error, AnswerLost) or not is_this_machine(client.server_url):
            raise
    output.note("No server answers: working on the database of this machine.")
    import asyncio

    return asyncio.run(_on_database(local))


async def _on_database(work: Callable[[Accounts, Principal], Coroutine[Any, Any, T]]) -> T:
    from paddock.accounts.first_key import local_accounts
    from paddock.cli.configuration import describe, load_settings

    try:
        async with local_accounts(load_settings()) as (accounts, owner):
            return await work(accounts, owner)
    except ValueError as error:
        raise Invalid(describe(error)) from error


def _document(key: Any) -> dict[str, Any]:
    """A key's row in the API's format."""
    from paddock.clock import iso

    return {
        "key_id": key.key_id,
        "name": key.name,
        "user_id": key.user_id,
        "prefix": key.prefix,
        "created_at": iso(key.created_at),
        "last_used_at": iso(key.last_used_at) if key.last_used_at else None,
    }


def _show_new(made: Mapping[str, Any]) -> None:
    print(made["key"])
    output.note(f"This key of {made['user_id']} is shown this once: keep it in PADDOCK_API_KEY.")


keys = typer.Typer(help="Create, list and revoke API keys.", no_args_is_help=True, rich_markup_mode=None)
keys.command("create")(create)
keys.command("list")(list_)
keys.command("revoke")(revoke)
