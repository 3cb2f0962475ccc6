"""``paddock doctor``: what this machine can do, and with ``--full`` whether its sandboxes hold."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli import output
from paddock.cli.configuration import load_settings
from paddock.cli.session import Session, command

if TYPE_CHECKING:
    from paddock.doctor.attempts import Outcome
    from paddock.doctor.checks import Diagnosis

Full = Annotated[bool, typer.Option("--full", help="Also try to break out of sandboxes, in hundreds of ways.")]
_COLOURS = {"refused": "green", "not refused": "red", "not tried": "yellow"}


@command
def doctor(session: Session, full: Full = False) -> None:
    """Say what this machine can do for sandboxes. Needs no server."""
    from paddock.doctor.checks import examine
    from paddock.providers.docker.probe import Asked
    from paddock.providers.local.gvisor.runsc import Wanted

    settings = load_settings()
    runsc = Wanted(settings.runsc, settings.runsc_platform)
    diagnosis = examine(settings.home, Asked.of(settings), runsc, reserve_mb=settings.disk_reserve_mb)
    if not session.json:
        _show(diagnosis)
    outcomes = _examined(session.json) if full and diagnosis.report else []
    if session.json:
        output.print_json(_document(diagnosis, outcomes if full else None))
    elif outcomes:
        _show_outcomes(outcomes)
    escaped = [outcome for outcome in outcomes if outcome.verdict.value == "not refused"]
    if escaped or not diagnosis.runs:
        raise typer.Exit(1)


def _examined(quiet: bool) -> list[Outcome]:
    import asyncio

    from rich.progress import Progress

    from paddock.doctor.examination import examination, length

    async def every() -> list[Outcome]:
        found = []
        with Progress(
            console=output.console(stderr=True), transient=True, disable=quiet or not sys.stderr.isatty()
        ) as progress:
            task = progress.add_task("Trying to break out", total=length())
            async for outcome in examination():
                found.append(outcome)
                progress.update(task, advance=1, description=output.escape(outcome.name))
        return found

    return asyncio.run(every())


def _document(diagnosis: Diagnosis, outcomes: list[Outcome] | None) -> dict[str, Any]:
    report = diagnosis.report
    document: dict[str, Any] = {
        "sandboxes": diagnosis.runs,
        "level": report.level.value if report else None,
        "checks": [{"name": one.name, "good": one.good, "detail": one.detail} for one in diagnosis.checks],
        "layers": [
            {"name": layer.name, "active": layer.active, "detail": layer.detail}
            for layer in (report.layers if report else ())
        ],
    }
    if outcomes is not None:
        document["attempts"] = [
            {"name": one.name, "user": one.user, "verdict": one.verdict.value, "detail": one.detail} for one in outcomes
        ]
    return document


def _show(diagnosis: Diagnosis) -> None:
    output.print_table(
        ("", "THIS MACHINE", "FOUND, OR WHAT TO DO"),
        ((_sign(one.good), output.escape(one.name), output.escape(one.detail)) for one in diagnosis.checks),
    )
    print()
    if diagnosis.report is None:
        only = (
            "Sandboxes run here by the provider docker alone."
            if diagnosis.runs
            else "[red]Sandboxes cannot run here.[/]"
        )
        output.console().print(only)
        return
    output.print_table(
        ("", "LAYER", "BY, OR WHAT TO DO"),
        (
            (_sign(layer.active), output.escape(layer.name), output.escape(layer.detail))
            for layer in diagnosis.report.layers
        ),
    )
    print()
    output.console().print(f"Sandboxes run here, with isolation level [bold]{diagnosis.report.level.value}[/].")


def _show_outcomes(outcomes: list[Outcome]) -> None:
    print()
    output.print_table(
        ("ATTEMPT", "AS", "RESULT", "DETAIL"),
        (
            (
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


def _sign(good: bool) -> str:
    return "[green]✓[/]" if good else "[red]✗[/]"
