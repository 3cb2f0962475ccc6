"""``paddock doctor``: what this machine supports, and with ``--full`` whether its sandboxes are secure."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli import output
from paddock.cli.configuration import load_settings
from paddock.cli.session import CliSession, command

if TYPE_CHECKING:
    from paddock.doctor.attempts import AttemptOutcome
    from paddock.doctor.checks import Diagnosis
    from paddock.doctor.plan import LeftOut, Plan

Full = Annotated[bool, typer.Option("--full", help="Also try to break out, in more than 250 ways.")]
_COLOURS = {"refused": "green", "not refused": "red", "documented": "yellow", "not tried": "yellow"}
_ESCAPED_CODE = 1
_UNTESTED_CODE = 3
"""No escape was found, but some kinds of sandboxes of this installation were not tested."""


@command
def doctor(session: CliSession, full: Full = False) -> None:
    """Check what this machine supports. Needs no server."""
    from paddock.api.logging import configure_logging
    from paddock.doctor.checks import examine
    from paddock.doctor.plan import planned
    from paddock.providers.docker.probe import EngineOptions
    from paddock.providers.local.gvisor.runsc import RunscSettings
    from paddock.store.database import Store

    settings = load_settings(PADDOCK_LOG_LEVEL="error")  # sandboxes killed by fork bombs are expected
    configure_logging(settings)
    runsc = RunscSettings(settings.runsc, settings.runsc_platform)
    reserve_mb, database = settings.disk_reserve_mb, Store(settings.database_url).file
    diagnosis = examine(settings.home, EngineOptions.of(settings), runsc, reserve_mb=reserve_mb, database=database)
    if not session.json:
        _show(diagnosis)
    if not full:
        if session.json:
            output.print_json(_document(diagnosis))
        raise typer.Exit(0 if diagnosis.runs else _ESCAPED_CODE)
    plan = planned(settings, diagnosis)
    outcomes, cut_short = _examined(plan, session.json)
    left_out = [*plan.left_out, *cut_short]
    if session.json:
        output.print_json(_document(diagnosis) | _tried(outcomes, left_out))
    else:
        _show_outcomes(outcomes, left_out)
    if not diagnosis.runs or any(outcome.verdict.value == "not refused" for outcome in outcomes):
        raise typer.Exit(_ESCAPED_CODE)
    if any(one.in_use for one in left_out):
        raise typer.Exit(_UNTESTED_CODE)


def _examined(plan: Plan, quiet: bool) -> tuple[list[AttemptOutcome], list[LeftOut]]:
    import asyncio

    from rich.progress import Progress

    from paddock.doctor.attempts import AttemptOutcome
    from paddock.doctor.plan import examination, length

    async def every() -> tuple[list[AttemptOutcome], list[LeftOut]]:
        found: list[AttemptOutcome] = []
        left_out: list[LeftOut] = []
        with Progress(
            console=output.console(stderr=True), transient=True, disable=quiet or not sys.stderr.isatty()
        ) as progress:
            task = progress.add_task("Running escape attempts", total=length(plan.kinds))
            async for one in examination(plan.kinds):
                if isinstance(one, AttemptOutcome):
                    found.append(one)
                    progress.update(task, advance=1, description=output.escape(f"{one.kind}: {one.name}"))
                else:
                    left_out.append(one)
        return found, left_out

    return asyncio.run(every())


def _document(diagnosis: Diagnosis) -> dict[str, Any]:
    report = diagnosis.report
    return {
        "sandboxes": diagnosis.runs,
        "level": report.level.value if report else None,
        "checks": [{"name": one.name, "good": one.good, "detail": one.detail} for one in diagnosis.checks],
        "layers": [
            {"name": layer.name, "active": layer.active, "detail": layer.detail}
            for layer in (report.layers if report else ())
        ],
    }


def _tried(outcomes: list[AttemptOutcome], left_out: list[LeftOut]) -> dict[str, Any]:
    return {
        "tried": _kinds(outcomes),
        "left_out": [{"kind": one.kind, "reason": one.reason, "in_use": one.in_use} for one in left_out],
        "attempts": [
            {
                "kind": one.kind,
                "name": one.name,
                "user": one.user,
                "verdict": one.verdict.value,
                "detail": one.detail,
            }
            for one in outcomes
        ],
    }


def _kinds(outcomes: list[AttemptOutcome]) -> list[str]:
    return list(dict.fromkeys(one.kind for one in outcomes))


def _show(diagnosis: Diagnosis) -> None:
    output.print_table(
        ("", "THIS MACHINE", "FOUND, OR HOW TO FIX IT"),
        ((_sign(one.good), output.escape(one.name), output.escape(one.detail)) for one in diagnosis.checks),
    )
    print()
    if diagnosis.report is None:
        only = (
            "Sandboxes can run here with the provider docker only."
            if diagnosis.runs
            else "[red]Sandboxes cannot run here.[/]"
        )
        output.console().print(only)
        return
    output.print_table(
        ("", "LAYER", "BY, OR HOW TO FIX IT"),
        (
            (_sign(layer.active), output.escape(layer.name), output.escape(layer.detail))
            for layer in diagnosis.report.layers
        ),
    )
    print()
    output.console().print(f"Sandboxes run here, with isolation level [bold]{diagnosis.report.level.value}[/].")


def _show_outcomes(outcomes: list[AttemptOutcome], left_out: list[LeftOut]) -> None:
    print()
    output.print_table(
        ("SANDBOX", "ATTEMPT", "AS", "RESULT", "DETAIL"),
        (
            (
                output.escape(one.kind),
                output.escape(one.name.replace(f"-by-{one.user}", "", 1)),
                one.user,
                f"[{_COLOURS[one.verdict.value]}]{one.verdict.value}[/]",
                output.escape(one.detail),
            )
            for one in outcomes
        ),
    )
    print()
    counts = {word: sum(one.verdict.value == word for one in outcomes) for word in _COLOURS}
    output.console().print(", ".join(f"[{_COLOURS[word]}]{count} {word}[/]" for word, count in counts.items()))
    output.console().print(f"Tried: {'; '.join(output.escape(kind) for kind in _kinds(outcomes)) or 'nothing'}.")
    for one in left_out:
        colour = "red" if one.in_use else "yellow"
        output.console().print(f"[{colour}]Not tried: {output.escape(one.kind)}[/] ({output.escape(one.reason)})")


def _sign(good: bool) -> str:
    return "[green]✓[/]" if good else "[red]✗[/]"
