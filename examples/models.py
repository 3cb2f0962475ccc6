"""The model of an example: a real one if an API key for it is set, otherwise one that replays a script."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from langchain_core.language_models import BaseChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolCall


class ScriptedModel(GenericFakeChatModel):
    """Works offline: returns the messages of its script in order, whatever the input."""

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> BaseChatModel:
        return self


def choose(script: Sequence[AIMessage]) -> BaseChatModel:
    """``MODEL`` names another model of the same provider."""
    name = os.environ.get("MODEL")
    if os.environ.get("ANTHROPIC_API_KEY"):
        from langchain_anthropic import ChatAnthropic

        return ChatAnthropic(model=name or "claude-sonnet-4-5")
    if os.environ.get("OPENAI_API_KEY"):
        from langchain_openai import ChatOpenAI

        return ChatOpenAI(model=name or "gpt-5")
    return ScriptedModel(messages=iter(script))


def calls(tool: str, **arguments: Any) -> AIMessage:
    """A message of a script that calls a tool."""
    return AIMessage("", tool_calls=[ToolCall(name=tool, args=arguments, id=f"{tool}-1", type="tool_call")])
