"""The options of commands that make a sandbox, and the request that they add up to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from paddock.cli.arguments import Action as ActionName
from paddock.cli.arguments import Egress as EgressMode
from paddock.cli.arguments import Isolation as Level
from paddock.cli.arguments import pairs
from paddock.cli.confinement import egress_of, mount_of

UserId = Annotated[str | None, typer.Option(help="Whom it is for. [default: the login name]")]
Template = Annotated[str | None, typer.Option(help="What it is made from.")]
MaxLifetime = Annotated[
    int | None, typer.Option(metavar="SECONDS", help="Seconds after which it is paused, whatever the activity.")
]
OnTimeout = Annotated[ActionName | None, typer.Option(help="What happens then. [default: pause]")]
Env = Annotated[list[str] | None, typer.Option("--env", "-e", metavar="NAME=VALUE", help="For every command.")]
Metadata = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="To find it by.")]
Cpu = Annotated[float | None, typer.Option(help="Cores.")]
Memory = Annotated[int | None, typer.Option(metavar="MB", help="Memory.")]
Disk = Annotated[int | None, typer.Option(metavar="MB", help="Disk.")]
GitUrl = Annotated[str | None, typer.Option(metavar="URL", help="Clone this into /workspace.")]
ProviderName = Annotated[str | None, typer.Option(help="Which provider makes it.")]
Egress = Annotated[EgressMode | None, typer.Option(help="How it may connect to the outside.")]
Isolation = Annotated[Level | None, typer.Option(help="Minimum isolation level.")]
Mount = Annotated[
    list[str] | None, typer.Option(metavar="DIR:/PATH[:ro]", help="A directory of the host inside; for admins.")
]
PublicPorts = Annotated[bool, typer.Option("--public-ports", help="Anybody may open its ports.")]
AutoResume = Annotated[
    bool, typer.Option("--auto-resume/--no-auto-resume", help="Whether using it wakes it when it is paused.")
]


def wishes(
    *,
    env: Sequence[str] | None,
    metadata: Sequence[str] | None,
    cpu: float | None,
    memory: int | None,
    disk: int | None,
    egress: str | None,
    allow: Sequence[str] | None,
    deny: Sequence[str] | None,
    private: Sequence[str] | None,
    mount: Sequence[str] | None,
    public_ports: bool,
    auto_resume: bool,
    **others: Any,
) -> dict[str, Any]:
    """Arguments of ``create_sandbox``; ``others`` are those that it takes as they are."""
    sizes = {"cpu": cpu, "memory_mb": memory, "disk_mb": disk}
    return {
        "env": pairs(env, "--env"),
        "metadata": pairs(metadata, "--metadata"),
        "resources": {name: value for name, value in sizes.items() if value is not None} or None,
        "egress": egress_of(egress, allow, deny, private),
        "mounts": [mount_of(text) for text in mount] if mount else None,
        "public_ports": public_ports or None,
        "auto_resume": None if auto_resume else False,
        **others,
    }
