"""E2B's requests. Unknown fields are ignored, since newer clients may send more."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from paddock.models import Text

DEFAULT_TIMEOUT = 300
V1_TIMEOUT = 15
"""What the first generation of routes means by no timeout."""

Texts = dict[Text, Text]


class E2BRequest(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, alias_generator=to_camel, populate_by_name=True)


class AutoResume(E2BRequest):
    enabled: bool = False


class Egress(E2BRequest):
    """Where a sandbox may connect to. A list that is not given is empty."""

    allow_out: list[Text] | None = None
    deny_out: list[Text] | None = None
    rules: dict[str, Any] | None = None
    egress_proxy: dict[str, Any] | None = None
    dns_servers: list[str] | None = None


class Network(Egress):
    allow_public_traffic: bool | None = None
    mask_request_host: Text | None = None
    https_ports: list[int] | None = None


class UpdateNetwork(Egress):
    allow_internet_access: bool | None = Field(default=None, alias="allow_internet_access")


class E2BCreate(E2BRequest):
    template_id: Text = Field(alias="templateID")
    timeout: int | None = None
    metadata: Texts | None = None
    env_vars: Texts | None = None
    auto_pause: bool | None = None
    auto_pause_memory: bool | None = None
    auto_resume: AutoResume | None = None
    allow_internet_access: bool | None = Field(default=None, alias="allow_internet_access")
    network: Network | None = None
    iam: dict[str, Any] | None = None
    volume_mounts: list[dict[str, Any]] | None = None
    mcp: dict[str, Any] | None = None


class Connect(E2BRequest):
    timeout: int = DEFAULT_TIMEOUT
    memory: bool | None = None


class ConnectV1(Connect):
    timeout: int


class Resume(E2BRequest):
    timeout: int = V1_TIMEOUT
    auto_pause: bool | None = None
    memory: bool | None = None


class Pause(E2BRequest):
    memory: bool | None = None
    require_healthy_guest: bool | None = None


class SetTimeout(E2BRequest):
    timeout: int


class Refresh(E2BRequest):
    duration: int | None = None
