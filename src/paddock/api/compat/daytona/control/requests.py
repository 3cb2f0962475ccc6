"""Daytona's requests. Unknown fields are ignored, since newer clients may send more."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from paddock.models import Text

Texts = dict[Text, Text]


class DaytonaRequest(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, alias_generator=to_camel, populate_by_name=True)


class BuildInfo(DaytonaRequest):
    dockerfile_content: Text | None = None
    context_hashes: list[Text] | None = None


class NetworkSettings(DaytonaRequest):
    network_block_all: bool | None = None
    network_allow_list: Text | None = None
    domain_allow_list: Text | None = None


class DaytonaCreate(NetworkSettings):
    name: Text | None = None
    snapshot: Text | None = None
    user: Text | None = None
    env: Texts | None = None
    labels: Texts | None = None
    public: bool | None = None
    kvm: bool | None = None
    outbound_proxy_url: Text | None = None
    otel_endpoint_override: Text | None = None
    target: Text | None = None
    cpu: int | None = Field(default=None, ge=1)
    gpu: int | None = Field(default=None, ge=0)
    gpu_type: list[Text] | None = None
    spot: bool | None = None
    memory: int | None = Field(default=None, ge=1)
    disk: int | None = Field(default=None, ge=1)
    auto_stop_interval: int | None = None
    auto_pause_interval: int | None = None
    auto_archive_interval: int | None = None
    auto_delete_interval: int | None = None
    ttl_minutes: int | None = None
    queue_timeout: int | None = None
    volumes: list[dict[str, Any]] | None = None
    build_info: BuildInfo | None = None
    linked_sandbox: Text | None = None
    secrets: list[dict[str, Text]] | None = None


class Labels(DaytonaRequest):
    labels: Texts


class NewName(DaytonaRequest):
    name: Text
