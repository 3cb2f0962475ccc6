"""How much one sandbox may ask of the server that carries its connections."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    connections: int = 512
    """At a time; more are answered 503."""
    head_bytes: int = 65_536
    head_seconds: float = 15.0
    """For a whole request head, so that a client that dribbles holds nothing for long."""
    connect_seconds: float = 15.0
    keep_alive_seconds: float = 75.0
    """Between two requests on one connection."""
    idle_seconds: float = 900.0
    """Without a byte in either direction."""
    peek_seconds: float = 0.5
    """For the first bytes of a client that may be waiting for the server to speak first (SSH, SMTP)."""
    peek_bytes: int = 32_768
    lookups: int = 64
    """DNS questions at a time; more are dropped, and asked again by whoever asked."""
