"""Users and their quotas: through the server, or directly on this machine's database if no server runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli import output
from paddock.cli.arguments import Role
from paddock.cli.keys import ask
from paddock.cli.session import CliSession, command

if TYPE_CHECKING:
    from paddock.accounts.accounts import Accounts, Principal

# The API's names, repeated for `--help`. A test compares them.
QUOTAS = {
    "max_live": "sandboxes that are not paused",
    "max_sandboxes": "sandboxes, paused or not",
    "max_cpu": "cores of all that are not paused",
    "max_memory_mb": "MB of memory of all",
    "max_disk_mb": "MB of disk of all",
    "max_processes": "process limits of all",
    "max_mcp_servers": "MCP servers of one sandbox",
    "max_streams": "open streams and terminals",
    "max_bandwidth_mbit": "Mbit/s of all",
    "requests_per_second": "requests",
}

UserId = Annotated[str, typer.Argument(metavar="USER", help="Letters, digits, - and _, for example alice.")]
QuotaOption = Annotated[
    list[str] | None,
    typer.Option(
        "--quota",
        metavar="NAME=NUMBER",
        help=f"Limit; 0 for none, `default` for the server's. May be repeated. Names: {', '.join(QUOTAS)}.",
    ),
]


@command
def list_(session: CliSession) -> None:
    """List users and their quotas."""

    async def local(accounts: Accounts, owner: Principal) -> list[Mapping[str, Any]]:
        return [_document(accounts, user) for user in await accounts.list_users(owner)]

    users: list[Mapping[str, Any]] = ask(session, lambda client: list(client.list_users()), local)
    columns = ("USER", "ROLE", "LIVE", "SANDBOXES", "CPU", "MEMORY", "DISK", "CREATED", "")
    rows = [
        (
            user["user_id"],
            user["role"],
            *(_limit(user, name) for name in ("max_live", "max_sandboxes", "max_cpu", "max_memory_mb", "max_disk_mb")),
            output.ago(user["created_at"]),
            "[red]disabled[/]" if user["disabled"] else "",
        )
        for user in users
    ]
    session.answer({"users": users}, lambda: output.print_table(columns, rows, empty="No users."))


@command
def show(session: CliSession, user_id: UserId) -> None:
    """Show one user with all quotas."""

    async def local(accounts: Accounts, owner: Principal) -> Mapping[str, Any]:
        return _document(accounts, await accounts.get_user(owner, user_id))

    user = ask(session, lambda client: client.get_user(user_id), local)
    session.answer(user, lambda: _show(user))


@command
def create(
    session: CliSession,
    user_id: UserId,
    role: Annotated[Role | None, typer.Option(help="Role. [default: member]")] = None,
    quota: QuotaOption = None,
) -> None:
    """Create a user. `paddock keys create NAME --user USER` creates a key for it."""
    wanted = _quota(quota)

    async def local(accounts: Accounts, owner: Principal) -> Mapping[str, Any]:
        from paddock import models

        given = {"role": role, "quota": wanted}
        request = models.CreateUser(user_id=user_id, **{n: v for n, v in given.items() if v})  # type: ignore[arg-type]
        return _document(accounts, await accounts.create_user(owner, request))

    user = ask(session, lambda client: client.create_user(user_id, role=role, quota=wanted), local)
    session.answer(user, lambda: _show(user))


@command
def update(
    session: CliSession,
    user_id: UserId,
    role: Annotated[Role | None, typer.Option(help="The new role.")] = None,
    quota: QuotaOption = None,
    disabled: Annotated[
        bool | None, typer.Option("--disable/--enable", help="Disable or enable the user's keys.")
    ] = None,
) -> None:
    """Change a user. Only the given options are changed."""
    wanted = _quota(quota)
    given = {"role": role, "quota": wanted, "disabled": disabled}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise typer.BadParameter("nothing to change: give --role, --quota, --disable or --enable", param_hint="update")

    async def local(accounts: Accounts, owner: Principal) -> Mapping[str, Any]:
        from paddock import models

        return _document(accounts, await accounts.change_user(owner, user_id, models.ChangeUser(**changes)))

    user = ask(session, lambda client: client.change_user(user_id, **changes), local)
    session.answer(user, lambda: _show(user))


def _quota(texts: Sequence[str] | None) -> dict[str, float | None] | None:
    """``["max_live=3", "max_cpu=default"]`` in the API's format."""
    if not texts:
        return None
    found: dict[str, float | None] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in QUOTAS:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(QUOTAS)}", param_hint="--quota")
        try:
            found[name] = None if value == "default" else float(value)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not of the form NAME=NUMBER", param_hint="--quota") from None
    return found


def _document(accounts: Accounts, user: Any) -> Mapping[str, Any]:
    """A user's row in the API's format."""
    from paddock.api.shapes import user_answer

    return user_answer(user, accounts.quota_of(user)).model_dump(mode="json")


def _limit(user: Mapping[str, Any], name: str) -> str:
    value = user["quota"][name]
    return f"{value:g}" if value else "–"


def _show(user: Mapping[str, Any]) -> None:
    output.print_fields(
        {
            "user": f"[bold]{output.escape(user['user_id'])}[/]" + ("  [red]disabled[/]" if user["disabled"] else ""),
            "role": user["role"],
            "created": output.ago(user["created_at"]),
        }
    )
    print()
    rows = [(name, _limit(user, name), what) for name, what in QUOTAS.items()]
    output.print_table(("QUOTA", "AT MOST", ""), rows)


users = typer.Typer(help="Create, list and change users and their quotas.", no_args_is_help=True, rich_markup_mode=None)
users.command("list")(list_)
users.command("show")(show)
users.command("create")(create)
users.command("update")(update)
