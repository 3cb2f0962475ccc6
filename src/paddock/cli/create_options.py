"""What commands that make a sandbox take, stated once, and the request that it adds up to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from paddock.cli.arguments import Action as ActionName
from paddock.cli.arguments import Egress as EgressMode
from paddock.cli.arguments import Isolation as Level
from paddock.cli.arguments import login_name, pairs
from paddock.cli.confinement import Allow, Deny, Private, egress_of, mount_of

OnTimeout = Annotated[ActionName | None, typer.Option(help="What happens then. [default: pause]")]


@dataclass(frozen=True, kw_only=True)
class CreateOptions:
    """Options of ``create`` and ``run``. What becomes of an idle sandbox is each command's own."""

    user_id: Annotated[str | None, typer.Option(help="Whom it is for. [default: the login name]")] = None
    template: Annotated[str | None, typer.Option(help="What it is made from.")] = None
    max_lifetime: Annotated[
        int | None, typer.Option(metavar="SECONDS", help="Seconds after which it is paused, whatever the activity.")
    ] = None
    env: Annotated[list[str] | None, typer.Option("--env", "-e", metavar="NAME=VALUE", help="For every command.")] = (
        None
    )
    metadata: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="To find it by.")] = None
    cpu: Annotated[float | None, typer.Option(help="Cores.")] = None
    memory: Annotated[int | None, typer.Option(metavar="MB", help="Memory.")] = None
    disk: Annotated[int | None, typer.Option(metavar="MB", help="Disk.")] = None
    git_url: Annotated[str | None, typer.Option(metavar="URL", help="Clone this into /workspace.")] = None
    provider: Annotated[str | None, typer.Option(help="Which provider makes it.")] = None
    egress: Annotated[EgressMode | None, typer.Option(help="How it may connect to the outside.")] = None
    allow: Allow = None
    deny: Deny = None
    private: Private = None
    isolation: Annotated[Level | None, typer.Option(help="Minimum isolation level.")] = None
    mount: Annotated[
        list[str] | None, typer.Option(metavar="DIR:/PATH[:ro]", help="A directory of the host inside; for admins.")
    ] = None
    public_ports: Annotated[bool, typer.Option("--public-ports", help="Anybody may open its ports.")] = False
    auto_resume: Annotated[
        bool, typer.Option("--auto-resume/--no-auto-resume", help="Whether using it wakes it when it is paused.")
    ] = True

    def request(self, *, timeout: int | None, on_timeout: str | None) -> dict[str, Any]:
        """Arguments of ``create_sandbox``."""
        sizes = {"cpu": self.cpu, "memory_mb": self.memory, "disk_mb": self.disk}
        return {
            "user_id": self.user_id or login_name(),
            "template_id": self.template,
            "timeout": timeout,
            "on_timeout": on_timeout,
            "max_lifetime": self.max_lifetime,
            "env": pairs(self.env, "--env"),
            "metadata": pairs(self.metadata, "--metadata"),
            "resources": {name: value for name, value in sizes.items() if value is not None} or None,
            "git_url": self.git_url,
            "provider": self.provider,
            "egress": egress_of(self.egress, self.allow, self.deny, self.private),
            "isolation": self.isolation,
            "mounts": [mount_of(text) for text in self.mount] if self.mount else None,
            "public_ports": self.public_ports or None,
            "auto_resume": None if self.auto_resume else False,
        }
