"""Python code as Daytona runs it: as a script of its own, whose figures come back as charts when it shows them.

The code is fed to Python together with a small driver, so that it may be of any length and its tracebacks show nothing
but itself. With ``mark``, ``pyplot.show`` prints what the figures hold behind that mark, which is taken out of the
output again; describing a figure is the interpreter's own code.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from paddock import errors, json_limits

_DRIVER = """
import sys, traceback
mark = {mark}
sys.argv[0] = ""
if mark:
    charts = {{}}
    exec(compile({charts}, "<charts>", "exec"), charts)

    def watch():
        import base64, io, json
        try:
            import matplotlib
        except ImportError:
            return
        matplotlib.use("Agg")
        import matplotlib.axes as axes
        import matplotlib.pyplot as plt

        charts["remember_boxes"](axes)

        def show(*args, **options):
            for number in plt.get_fignums():
                figure = plt.figure(number)
                chart = charts["describe"](figure)
                if chart is not None:
                    png = io.BytesIO()
                    figure.savefig(png, format="png")
                    chart["png"] = base64.b64encode(png.getvalue()).decode()
                    print("\\n" + mark + json.dumps(chart) + mark, flush=True)
            plt.close("all")

        plt.show = show

    watch()
try:
    program = compile({code}, "<string>", "exec")
except SyntaxError as problem:
    traceback.print_exception(type(problem), problem, None)
    sys.exit(1)
try:
    exec(program, sys.modules["__main__"].__dict__)
except Exception as problem:
    traceback.print_exception(type(problem), problem, problem.__traceback__.tb_next)
    sys.exit(1)
"""


def driver(code: str, mark: str | None) -> bytes:
    charts = _describing() if mark else ""
    return _DRIVER.format(code=ascii(code), mark=ascii(mark), charts=ascii(charts)).encode()


def with_charts(output: bytes, mark: str, note: bytes) -> tuple[bytes, bytes]:
    """The output without its charts, and those, each as JSON. ``note``: what is missing before the output."""
    text, charts = charts_of(output.decode(errors="replace"), mark, cut=bool(note))
    written = [json.dumps(chart, ensure_ascii=False) for chart in charts]
    return json.dumps(note.decode() + text, ensure_ascii=False).encode(), f"[{','.join(written)}]".encode()


def charts_of(output: str, mark: str, *, cut: bool = False) -> tuple[str, list[dict[str, Any]]]:
    """The output without its charts, and those. ``cut``: its beginning is missing, which may have been in a chart."""
    pieces = output.split(mark)
    if cut and len(pieces) % 2 == 0:
        pieces = ["", "", *pieces[1:]]
    texts = [piece.removeprefix("\n") if place else piece for place, piece in enumerate(pieces[::2])]
    texts = [piece.removesuffix("\n") if place < len(texts) - 1 else piece for place, piece in enumerate(texts)]
    charts = []
    for piece in pieces[1::2]:
        try:
            charts.append(_chart(json_limits.loads(piece.encode(), json_limits.MAX_SANDBOX_VALUES)))
        except (ValueError, TypeError, AttributeError, errors.Invalid):
            continue  # the code printed the mark itself: it gets no chart for that
    return "".join(texts), charts


@cache
def _describing() -> str:
    return resources.files("paddock.interpreter").joinpath("inside", "charts.py").read_text()


def _chart(found: dict[str, Any]) -> dict[str, Any]:
    """In the types that Daytona's clients insist on."""
    chart = {name: value for name, value in found.items() if value is not None and not name.endswith("_unit")}
    if chart.get("type") == "superchart":
        chart["type"] = "composite_chart"
        chart["elements"] = [_chart(element) for element in chart["elements"]]
        return chart
    for name in ("x_ticks", "y_ticks"):
        if name in chart:
            chart[name] = [_number(value, place) for place, value in enumerate(chart[name])]
    chart["elements"] = [_element(element) for element in chart.get("elements", ())]
    return chart


def _element(found: dict[str, Any]) -> dict[str, Any]:
    element = dict(found)
    if "value" in element:
        value = element["value"]
        element["value"] = f"{value:g}" if isinstance(value, float) else str(value)
    if "points" in element:
        element["points"] = [
            [_number(value, place) for value in point] for place, point in enumerate(element["points"])
        ]
    return element


def _number(value: Any, place: int) -> float:
    """Names and dates have no number of their own: they stand where they come."""
    return value if isinstance(value, int | float) else float(place)
