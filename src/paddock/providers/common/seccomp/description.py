"""Text descriptions of the policy, for the documentation and for ``paddock doctor``."""

from __future__ import annotations

from paddock.providers.common.seccomp.compiler import compile_filter
from paddock.providers.common.seccomp.numbers import Architecture, numbers
from paddock.providers.common.seccomp.policy import Role, the_policy


def describe() -> str:
    """Every section of the policy as a row of a Markdown table: what, the answer, why, and the calls."""
    rows = ["| what | answer | why | calls |", "|---|---|---|---|"]
    for section in the_policy().sections:
        calls = " ".join(f"`{call}`" for call in section.calls) or "–"
        rows.append(f"| {section.name} | {section.answer} | {section.reason} | {calls} |")
    return "\n".join(rows) + "\n"


def summary(architecture: str) -> str:
    """One line with the numbers of one architecture."""
    of, policy = Architecture.named(architecture), the_policy()
    here = [decision for name, decision in policy.children.items() if name in numbers(of)]
    by_argument = sum(1 for decision in here if decision.cases)
    allowed = sum(1 for decision in here if not decision.cases and decision.otherwise == "allow")
    size = len(compile_filter(policy, of, Role.CHILDREN)) // 8
    refused = len(here) - allowed - by_argument
    return (
        f"{allowed} system calls allowed, {by_argument} by their arguments, {refused} refused, "
        f"every other {policy.default}; {size} instructions"
    )
