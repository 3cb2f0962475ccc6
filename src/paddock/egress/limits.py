"""Limits for the connections of one sandbox."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    connections: int = 512
    """Concurrent; further ones are answered with 503."""
    head_bytes: int = 65_536
    head_seconds: float = 15.0
    """For a complete request head, so that a slow client does not hold resources for long."""
    connect_seconds: float = 15.0
    keep_alive_seconds: float = 75.0
    """Between two requests on one connection."""
    idle_seconds: float = 900.0
    """Without traffic in either direction."""
    peek_seconds: float = 0.5
    """For the first bytes of a client that may be waiting for the server to speak first (SSH, SMTP)."""
    peek_bytes: int = 32_768
    lookups: int = 64
    """Concurrent DNS queries; further ones are dropped, and clients retry them."""
