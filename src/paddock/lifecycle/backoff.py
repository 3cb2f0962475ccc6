"""How long to wait before trying again what has failed."""

from __future__ import annotations

_MAX_EXPONENT = 30
"""Beyond it every limit that makes sense is reached, and a float would overflow at 1024."""


def backoff_seconds(attempts: int, longest: float) -> float:
    """0 before the first failure, then 2, 4, 8 … up to ``longest``. Whatever number a row holds."""
    return min(longest, 2.0 ** min(attempts, _MAX_EXPONENT)) if attempts > 0 else 0.0
