"""The server's side of the agent: a Machine over the protocol of ``docs/agent-protocol.md``."""

from __future__ import annotations

from paddock.machine.agent.machine import AgentMachine

__all__ = ["AgentMachine"]
