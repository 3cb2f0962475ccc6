"""Exponential backoff for retries."""

from __future__ import annotations

_MAX_EXPONENT = 30
"""With larger exponents every sensible limit is reached already, and a float would overflow at 1024."""


def backoff_seconds(attempts: int, longest: float) -> float:
    """0 before the first failure, then 2, 4, 8 … up to ``longest``. Safe for any number of attempts read from a row."""
    return min(longest, 2.0 ** min(attempts, _MAX_EXPONENT)) if attempts > 0 else 0.0
