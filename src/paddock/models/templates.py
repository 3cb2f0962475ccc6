"""Templates on the wire."""

from __future__ import annotations

from pydantic import Field

from paddock.models.base import Answer


class TemplateInfo(Answer):
    template_id: str
    provider: str
    default: bool = Field(description="Whether a create takes it that names no template, with this provider.")


class TemplateList(Answer):
    templates: list[TemplateInfo] = Field(description="The default provider's first.")
