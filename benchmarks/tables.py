"""Prints results as Markdown tables: medians, percentiles, and ratios."""

from __future__ import annotations

import os
import platform
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

progress = Console(stderr=True)
"""For people; only the tables go to standard output."""


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def p99(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[98] if len(values) > 1 else values[0]


def milliseconds(seconds: float) -> str:
    value = seconds * 1000
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def times(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.1f}"


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], *notes: str) -> None:
    """The first column is text, the others are numbers."""
    print(f"\n### {title}\n")
    print("| " + " | ".join(head) + " |")
    print("|---|" + "---:|" * (len(head) - 1))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    for note in notes:
        print(f"\n{note}")
    sys.stdout.flush()


def machine() -> str:
    """The machine, and its load, which tells how reliable the numbers are."""
    load = " ".join(f"{value:.2f}" for value in os.getloadavg())
    return (
        f"Linux {platform.release()}, {os.cpu_count()} CPUs, {memory_info('MemTotal') >> 30} GiB, "
        f"Python {platform.python_version()}, load average {load}"
    )


def memory_info(name: str) -> int:
    """One entry of /proc/meminfo, in bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0
