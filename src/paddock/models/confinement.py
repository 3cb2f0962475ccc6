"""What stands around a sandbox, on the wire: isolation, egress, and directories of the host inside it."""

from __future__ import annotations

import posixpath
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from paddock.models.base import Answer, Request
from paddock.models.values import MAX_PATH, SandboxPath, _check_path

MAX_RULES = 512
MAX_MOUNTS = 32

_NO_SPACE = r"^[^\s\u0000]+$"
_KERNEL_PLACES = ("/proc", "/sys", "/dev", "/run")
"""Nothing is mounted there or anywhere below: they are the sandbox's own, and what confines it stands on them."""
_SYSTEM_PLACES = ("/", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/etc")
"""Nothing is mounted over these as a whole; a place below them is the caller's business."""


class Egress(StrEnum):
    NONE = "none"
    PROXY = "proxy"
    FULL = "full"


class Isolation(StrEnum):
    """Weakest first; each includes the ones before it."""

    BASIC = "basic"
    STANDARD = "standard"
    STRICT = "strict"
    HARDENED = "hardened"


# Strictness would ask for the enums' own members; on the wire they are their text.
EgressChoice = Annotated[Egress, Field(strict=False)]
IsolationChoice = Annotated[Isolation, Field(strict=False)]

Rules = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=300, pattern=_NO_SPACE)]],
    Field(max_length=MAX_RULES, examples=[["example.org", "*.example.org:443", "203.0.113.0/24"]]),
]


class EgressRules(Request):
    """A policy. What is left out keeps its default, or in a change what it was."""

    mode: EgressChoice | None = Field(
        default=None,
        description="`none`: nothing goes out. `proxy`: HTTP and HTTPS through a proxy of the host. `full`: all of TCP "
        "and DNS. A sandbox keeps the mode that it was made with.",
    )
    allow: Rules | None = Field(
        default=None,
        description="Domains (`example.org`, `*.example.org`, `.example.org`, `*`), addresses or networks, each with "
        "`:port` if you like. Empty: everything public. Private networks are the operator's to open.",
    )
    deny: Rules | None = Field(default=None, description="The same kinds of entries; they win over `allow`.")
    private: Rules | None = Field(
        default=None,
        description="Private networks that this sandbox may reach besides, and domains that may lead into them; for "
        "admins only. A private network that an admin puts into `allow` is opened as well.",
    )


def _spelt_out(value: Any) -> Any:
    """Just the mode is short for a policy with that mode."""
    return {"mode": value} if isinstance(value, str) else value


EgressRequest = Annotated[
    EgressRules,
    BeforeValidator(_spelt_out, json_schema_input_type=EgressRules | Egress),
]


def _mount_target(path: str) -> str:
    plain = _plain_path(path)
    if plain in _SYSTEM_PLACES or f"{plain}/".startswith(tuple(f"{place}/" for place in _KERNEL_PLACES)):
        raise ValueError(f"nothing can be mounted at {plain}")
    return plain


def _plain_path(path: str) -> str:
    return "/" + posixpath.normpath(_check_path(path)).strip("/")


class MountRequest(Request):
    """A directory of the host inside the sandbox."""

    source: Annotated[str, AfterValidator(_plain_path), Field(min_length=1, max_length=MAX_PATH)] = Field(
        description="A directory of the machine that the server runs on. Absolute, without `..`.",
        examples=["/srv/project"],
    )
    target: Annotated[SandboxPath, AfterValidator(_mount_target)] = Field(
        description="Where it is in the sandbox.", examples=["/workspace"]
    )
    read_only: bool = False


class ConfinementRequest(Request):
    """The part of a create that says what stands around the sandbox."""

    egress: EgressRequest | None = Field(
        default=None, description="Where it may connect to; just the mode, or the mode and lists."
    )
    isolation: IsolationChoice | None = Field(
        default=None,
        description="The least that will do. Where the machine cannot give it the create is refused.",
    )
    mounts: list[MountRequest] = Field(
        default_factory=list, max_length=MAX_MOUNTS, description="Directories of the host; for admins only."
    )

    @field_validator("mounts")
    @classmethod
    def _one_each(cls, mounts: list[MountRequest]) -> list[MountRequest]:
        targets = [mount.target for mount in mounts]
        if len(set(targets)) < len(targets):
            raise ValueError("two mounts have the same target")
        return mounts


class MountInfo(Answer):
    source: str
    target: str
    read_only: bool


class LayerInfo(Answer):
    name: str = Field(examples=["seccomp"])
    active: bool
    detail: str = Field(description="By what; or, where it is not active, what to do about that.")


class IsolationAnswer(Answer):
    sandbox_id: str
    level: Isolation = Field(description="What there is.")
    requested: Isolation | None = Field(description="The least that was asked for.")
    layers: list[LayerInfo]


class EgressConnection(Answer):
    at: str
    host: str
    address: str | None = Field(description="None where it was refused before a name was resolved.")
    port: int
    allowed: bool
    reason: str
    bytes_up: int
    bytes_down: int
    seconds: float


class EgressTotals(Answer):
    connections: int
    denied: int
    bytes_up: int
    bytes_down: int


class EgressAnswer(Answer):
    sandbox_id: str
    mode: Egress
    allow: list[str]
    deny: list[str]
    private: list[str] = Field(default_factory=list, description="Private places that an admin has opened for it.")
    totals: EgressTotals
    latest: list[EgressConnection] = Field(description="Newest last; older ones are only counted.")
