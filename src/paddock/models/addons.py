"""Add-ons on the wire: what there is, and how far an installation has come."""

from __future__ import annotations

from pydantic import Field

from paddock.models.base import Answer, Request, Success


class InstallAddon(Request):
    full: bool = Field(
        default=False, description="`browser`: its own Chromium and Node.js, even where the host has them."
    )
    fresh: bool = Field(default=False, description="Make it anew, not from the packed copy of an earlier installation.")
    stream: bool = Field(default=False, description="Answer with server-sent events as it goes.")


class AddonProgress(Answer):
    step: int = Field(description="0 before the first.", examples=[2])
    steps: int = Field(examples=[4])
    doing: str = Field(examples=["unpacking them"])
    detail: str = Field(default="", description="The latest line of the program that does it.")
    size: int = Field(description="Bytes on the disk so far.", examples=[79691776])


class AddonAnswer(Success):
    name: str = Field(examples=["browser"])
    summary: str
    installed: bool
    version: str | None = None
    parts: dict[str, str] = Field(default_factory=dict, description="What is in it, each with its version.")
    size: int | None = Field(default=None, description="Bytes on the disk.")
    progress: AddonProgress | None = Field(
        default=None, description="Of an installation by this server, while it is at work."
    )
    problem: str | None = Field(default=None, description="Why the last installation by this server failed, if it did.")


class AddonList(Answer):
    addons: list[AddonAnswer]
