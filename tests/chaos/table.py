"""One table of all scenes of a run: where servers died, what else happened, and what was judged."""

from __future__ import annotations

from collections.abc import Mapping

Report = dict[str, dict[str, "int | float | str"]]
"""Of one scene: its rows, by section. Plain values, because the workers of a run send them to each other."""

_ALL = "all"


def table(reports: Mapping[str, Report]) -> list[str]:
    """Whole numbers are added up over the scenes, fractions and words are not."""
    sections = {section: None for report in reports.values() for section in report}
    lines: list[list[str]] = [["", *reports, _ALL]]
    for section in sections:
        rows = {name: None for report in reports.values() for name in report.get(section, {})}
        lines.append([f"{section}:"])
        for name in sorted(rows) if section.endswith("steps") else rows:
            values = [report.get(section, {}).get(name, "") for report in reports.values()]
            counts = [value for value in values if isinstance(value, int)]
            lines.append([f"  {name}", *map(_shown, values), str(sum(counts)) if counts else ""])
    widths = [max(len(line[place]) for line in lines if place < len(line)) for place in range(len(lines[0]))]
    return ["  ".join(_padded(line, widths)).rstrip() for line in lines]


def _padded(line: list[str], widths: list[int]) -> list[str]:
    name, *values = line
    return [name.ljust(widths[0]), *(value.rjust(width) for value, width in zip(values, widths[1:], strict=False))]


def _shown(value: float | str) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)
