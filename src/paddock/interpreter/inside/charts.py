"""The content of a matplotlib figure as data: lines, points, bars, slices, boxes, with their axes.

A figure with one plot is that plot's chart, one with several is a superchart, an empty one is none. A plot of an
unsupported kind is a chart of type ``unknown`` with its title.
"""

from __future__ import annotations

import datetime
import re
from typing import Any

Chart = dict[str, Any]

_SCALES = {"linear", "log", "symlog", "logit", "function", "functionlog", "asinh"}
_UNIT = re.compile(r"\(([^()]+)\)\s*$")
_BOXES = "_paddock_boxes"


def describe(figure: Any) -> Chart | None:
    plots = [axes for axes in figure.get_axes() if axes.get_label() != "<colorbar>" and not _blank(axes)]
    if not plots:
        return None
    charts = [_chart(axes) for axes in plots]
    if len(charts) == 1:
        return charts[0]
    title = figure.get_suptitle() if hasattr(figure, "get_suptitle") else ""
    return {"type": "superchart", "title": title or None, "elements": charts}


def remember_boxes(axes_module: Any) -> None:
    """Record the statistics of box plots when they are drawn: later they cannot be distinguished from other lines."""
    bxp = axes_module.Axes.bxp

    def bxp_and_remember(self: Any, bxpstats: Any, positions: Any = None, *args: Any, **options: Any) -> Any:
        drawn = bxp(self, bxpstats, positions, *args, **options)
        places = range(1, len(bxpstats) + 1) if positions is None else positions
        boxes = self.__dict__.setdefault(_BOXES, {})
        boxes.update({float(place): dict(box) for place, box in zip(places, bxpstats)})
        return drawn

    axes_module.Axes.bxp = bxp_and_remember


def _blank(axes: Any) -> bool:
    return not (axes.lines or axes.collections or axes.patches or axes.images or axes.artists)


def _chart(axes: Any) -> Chart:
    wedges = [patch for patch in axes.patches if type(patch).__name__ == "Wedge"]
    bars = [each for each in axes.containers if type(each).__name__ == "BarContainer"]
    points = [each for each in axes.collections if type(each).__name__ == "PathCollection"]
    title = axes.get_title() or None
    if wedges:
        return {"type": "pie", "title": title, "elements": [_slice(wedge) for wedge in wedges]}
    if getattr(axes, _BOXES, None):
        return {"type": "box_and_whisker", "title": title, **_labels(axes), "elements": _boxes(axes)}
    if bars:
        elements = [element for container in bars for element in _bars(axes, container)]
        return {"type": "bar", "title": title, **_labels(axes), "elements": elements}
    if axes.lines:
        return {"type": "line", "title": title, **_grid(axes), "elements": [_line(axes, line) for line in axes.lines]}
    if points:
        return {"type": "scatter", "title": title, **_grid(axes), "elements": [_cloud(axes, each) for each in points]}
    return {"type": "unknown", "title": title, "elements": []}


def _slice(wedge: Any) -> Chart:
    # matplotlib uses single precision: 90 % of a circle would be 323.99999.
    angle = round(abs(float(wedge.theta2) - float(wedge.theta1)), 4)
    return {"label": str(wedge.get_label()), "angle": angle, "radius": float(wedge.r)}


def _boxes(axes: Any) -> list[Chart]:
    return [
        {
            "label": str(box.get("label", f"{place:g}")),
            "min": float(box["whislo"]),
            "first_quartile": float(box["q1"]),
            "median": float(box["med"]),
            "third_quartile": float(box["q3"]),
            "max": float(box["whishi"]),
            "outliers": [float(value) for value in box.get("fliers", ())],
        }
        for place, box in sorted(getattr(axes, _BOXES).items())
    ]


def _bars(axes: Any, container: Any) -> list[Chart]:
    lying = container.orientation == "horizontal"
    axis = axes.yaxis if lying else axes.xaxis
    names = {round(float(place), 6): text for place, text in zip(axis.get_ticklocs(), _tick_labels(axis))}
    label = str(container.get_label())
    elements = []
    for bar in container.patches:
        middle = bar.get_y() + bar.get_height() / 2 if lying else bar.get_x() + bar.get_width() / 2
        elements.append(
            {
                "label": names.get(round(float(middle), 6)) or f"{float(middle):g}",
                "group": "" if label.startswith("_") else label,
                "value": float(bar.get_width() if lying else bar.get_height()),
            }
        )
    return elements


def _line(axes: Any, line: Any) -> Chart:
    xs, ys = line.get_xdata(orig=False), line.get_ydata(orig=False)
    return {"label": str(line.get_label()), "points": _points(axes, xs, ys)}


def _cloud(axes: Any, collection: Any) -> Chart:
    offsets = collection.get_offsets()
    return {"label": str(collection.get_label()), "points": _points(axes, offsets[:, 0], offsets[:, 1])}


def _points(axes: Any, xs: Any, ys: Any) -> list[list[Any]]:
    return [list(point) for point in zip(_values(axes.xaxis, xs), _values(axes.yaxis, ys))]


def _labels(axes: Any) -> Chart:
    x_label, y_label = axes.get_xlabel() or None, axes.get_ylabel() or None
    return {"x_label": x_label, "y_label": y_label, "x_unit": _unit(x_label), "y_unit": _unit(y_label)}


def _unit(label: str | None) -> str | None:
    found = _UNIT.search(label or "")
    return found.group(1) if found else None


def _grid(axes: Any) -> Chart:
    found = _labels(axes)
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        found[f"{name}_ticks"] = _values(axis, axis.get_ticklocs())
        found[f"{name}_tick_labels"] = _tick_labels(axis)
        found[f"{name}_scale"] = _scale(axis)
    return found


def _tick_labels(axis: Any) -> list[str]:
    """Labels as the axis formats them. Labels set by hand have a text already; others only get one when drawn."""
    return [str(text) for text in axis.get_major_formatter().format_ticks(axis.get_ticklocs())]


def _scale(axis: Any) -> str:
    kind = type(_converter(axis)).__name__
    if kind == "StrCategoryConverter":
        return "categorical"
    if "Date" in kind:
        return "datetime"
    scale = str(axis.get_scale())
    return scale if scale in _SCALES else "unknown"


def _values(axis: Any, numbers: Any) -> list[Any]:
    """Values of an axis in its own units: dates, category names, or numbers."""
    scale = _scale(axis)
    if scale == "datetime":
        return [_date(float(number)) for number in numbers]
    if scale == "categorical" and axis.units is not None:
        names = {float(place): str(name) for name, place in axis.units._mapping.items()}
        return [names.get(float(number), float(number)) for number in numbers]
    return [float(number) for number in numbers]


def _date(days: float) -> str:
    """matplotlib counts days since 1970."""
    return (datetime.datetime(1970, 1, 1) + datetime.timedelta(days=days)).isoformat()


def _converter(axis: Any) -> Any:
    return axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
