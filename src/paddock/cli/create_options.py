"""Options of commands that create a sandbox, and the request built from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import typer

from paddock.cli.arguments import Action as ActionName
from paddock.cli.arguments import Egress as EgressMode
from paddock.cli.arguments import Isolation as Level
from paddock.cli.arguments import login_name, pairs
from paddock.cli.confinement import Allow, Deny, Private, egress_of, mount_of

OnTimeout = Annotated[ActionName | None, typer.Option(help="Action at the timeout. [default: pause]")]


@dataclass(frozen=True, kw_only=True)
class CreateOptions:
    """Options shared by ``create`` and ``run``. The idle timeout differs between them."""

    user_id: Annotated[str | None, typer.Option(help="User of the sandbox. [default: the login name]")] = None
    template: Annotated[str | None, typer.Option(help="Template to create it from.")] = None
    max_lifetime: Annotated[
        int | None, typer.Option(metavar="SECONDS", help="Pause it after this time, whatever the activity.")
    ] = None
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="NAME=VALUE", help="Variable for all commands.")
    ] = None
    metadata: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Metadata to find it by.")] = None
    cpu: Annotated[float | None, typer.Option(help="CPU cores.")] = None
    memory: Annotated[int | None, typer.Option(metavar="MB", help="Memory.")] = None
    disk: Annotated[int | None, typer.Option(metavar="MB", help="Disk.")] = None
    git_url: Annotated[str | None, typer.Option(metavar="URL", help="Git repository to clone into /workspace.")] = None
    provider: Annotated[str | None, typer.Option(help="Provider that creates it.")] = None
    egress: Annotated[EgressMode | None, typer.Option(help="Egress mode: how it may connect to the outside.")] = None
    allow: Allow = None
    deny: Deny = None
    private: Private = None
    isolation: Annotated[Level | None, typer.Option(help="Minimum isolation level.")] = None
    mount: Annotated[
        list[str] | None, typer.Option(metavar="DIR:/PATH[:ro]", help="Host directory to mount; for admins.")
    ] = None
    public_ports: Annotated[bool, typer.Option("--public-ports", help="Make its ports accessible without a token.")] = (
        False
    )
    auto_resume: Annotated[
        bool, typer.Option("--auto-resume/--no-auto-resume", help="Resume it automatically when it is used.")
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
