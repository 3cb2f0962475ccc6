"""Makes ``docs/providers.md``: what each provider can do, from what its class has and from a run of this suite.

    make conformance      # runs it everywhere; or, with a report of your own:
    python -m tests.conformance.capabilities build/conformance.xml

A provider that did not run (no engine, no SDK) has no numbers. Without a report only the first table is made anew.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path
from xml.etree import ElementTree

from paddock.providers.base import Provider
from paddock.providers.docker import DockerProvider
from paddock.providers.local import LocalProvider
from paddock.providers.vendor.provider import VendorProvider

PAGE = Path(__file__).parents[2] / "docs" / "providers.md"

CLASSES: dict[str, type[Provider]] = {
    "local": LocalProvider,
    "docker": DockerProvider,
    "e2b": VendorProvider,
    "daytona": VendorProvider,
}
OPTIONAL = {
    "isolation": "isolation report per sandbox",
    "egress": "record of outgoing connections",
    "set_egress": "egress rules changed live",
    "connect_out": "remote MCP servers, under the sandbox's egress rules",
    "answer_inside": "MCP on the sandbox's own `localhost:6060`",
    "warm": "warm pool",
}
"""What a provider may leave out, by the method that it then does not have."""
FILES = {
    "test_lifecycle": "create, connect, pause, resume, delete, list, metrics",
    "test_commands": "commands: foreground, background, users, environment",
    "test_output": "output: streamed, from any offset, kept",
    "test_signals": "signals and timeouts",
    "test_terminal": "terminals",
    "test_files": "files",
    "test_watch": "watching files",
    "test_ports": "ports",
    "test_details": "details of processes and files (notes, owners, attributes)",
    "test_confinement": "confinement",
}
RUNS = {
    "local": "`local`",
    "local-gvisor": "`local`, `hardened`",
    "docker": "`docker`",
    "docker-far": "`docker`, far",
    "e2b": "`e2b`",
    "daytona": "`daytona`",
}
"""Under which names the suite runs them, and what they are called here."""
_CASE = re.compile(rf"\[(?:.*-)?({'|'.join(sorted(RUNS, key=len, reverse=True))})(?:-.*)?\]$")
_BEFORE_RESULTS = "\n## The same promises\n"


def has(provider: type[Provider], method: str) -> bool:
    return getattr(provider, method) is not getattr(Provider, method)


def features() -> str:
    """What stands before the results of a run."""
    rows = [
        [what, *("yes" if has(each, method) else "–" for each in CLASSES.values())] for method, what in OPTIONAL.items()
    ]
    return (
        "# Providers\n\n"
        "Where sandboxes are made: [`local`](local.md), [`docker`](docker.md), [`e2b`](e2b-provider.md), "
        "[`daytona`](daytona-provider.md). `SANDBOX_PROVIDER` names the default, `SANDBOX_PROVIDERS` all that a server "
        "has, and `provider` at create chooses one. Everything that acts inside a sandbox (API, E2B's and Daytona's "
        "SDKs, MCP, tools, code, terminals, ports) is the same on all of them. What differs:\n\n"
        + _table(rows, [f"`{name}`" for name in CLASSES])
    )


def results(report: Path) -> str:
    counts: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for case in ElementTree.parse(report).iter("testcase"):
        found = _CASE.search(case.get("name", ""))
        if found:
            ended = {child.tag for child in case} & {"failure", "error", "skipped"}
            counts[case.get("classname", "").rpartition(".")[2], found[1]][min(ended, default="passed")] += 1
    rows = [[what, *(_cell(counts[file, name]) for name in RUNS)] for file, what in FILES.items()]
    return (
        f"{_BEFORE_RESULTS}\nTests of the conformance suite that passed, of those that ran, per provider. `hardened` "
        "is the [level with a kernel of its own](local.md), far an engine reached [by the network](docker.md). E2B and "
        "Daytona are played by a second Paddock, through their official SDKs. Made by `make conformance`.\n\n"
        + _table(rows, RUNS.values())
    )


def _cell(counts: dict[str, int]) -> str:
    ran = counts["passed"] + counts["failure"] + counts["error"]
    return f"{counts['passed']} of {ran}" if ran else "not run"


def _table(rows: Sequence[Sequence[str]], columns: Collection[str]) -> str:
    lines = [["", *columns], ["---"] * (len(columns) + 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def page(report: Path | None, before: str) -> str:
    if report is not None:
        return features() + results(report)
    _, mark, kept = before.partition(_BEFORE_RESULTS)
    return features() + mark + kept


def main(arguments: Sequence[str]) -> None:
    before = PAGE.read_text() if PAGE.exists() else ""
    PAGE.write_text(page(Path(arguments[0]) if arguments else None, before))


if __name__ == "__main__":
    main(sys.argv[1:])
