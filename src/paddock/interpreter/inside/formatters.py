"""Data formats of results besides text: tables as columns, figures as charts, lists and dictionaries as JSON."""

from __future__ import annotations

import datetime
import json
import math
from typing import Any

from IPython.core.formatters import BaseFormatter
from IPython.display import display
from traitlets import ObjectName, Unicode

from . import charts


class DataFormatter(BaseFormatter):  # type: ignore[misc]
    """A pandas ``DataFrame``: the name and values of each column."""

    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = dict

    def __call__(self, found: Any) -> dict[str, list[Any]] | None:
        if _is(found, "pandas", "DataFrame"):
            columns = found.to_dict(orient="list")
            return {str(name): [_json_or_text(value) for value in values] for name, values in columns.items()}
        return super().__call__(found)  # type: ignore[no-any-return]


class ChartFormatter(BaseFormatter):  # type: ignore[misc]
    """A matplotlib ``Figure`` as chart data."""

    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = dict

    def __call__(self, found: Any) -> dict[str, Any] | None:
        if _is(found, "matplotlib", "Figure"):
            return charts.describe(found)
        return super().__call__(found)  # type: ignore[no-any-return]


def install(shell: Any) -> None:
    formatter = shell.display_formatter
    for each in (DataFormatter(parent=formatter), ChartFormatter(parent=formatter)):
        formatter.formatters[each.format_type] = each
        formatter.active_types = [*formatter.active_types, each.format_type]
    as_json = formatter.formatters["application/json"]
    as_json.for_type(list, _as_json)
    as_json.for_type(dict, _as_json)


def show_saved_images(image_module: Any) -> None:
    """Also display an image that code saves with ``image.save("plot.png")``."""
    save = image_module.Image.save

    def save_and_show(self: Any, target: Any, format: str | None = None, **options: Any) -> None:
        save(self, target, format, **options)
        if isinstance(target, str):
            display(self)

    image_module.Image.save = save_and_show


def _as_json(found: Any) -> Any:
    """The value if it is JSON; numpy's numbers are converted."""
    plain = _plain(found)
    try:
        json.dumps(plain)
    except (TypeError, ValueError, RecursionError):
        return None
    return plain


def _json_or_text(value: Any) -> Any:
    plain = _plain(value)
    return plain if plain is None or isinstance(plain, (str, bool, int, float, list, dict)) else str(plain)


def _is(found: Any, package: str, name: str) -> bool:
    return any(kind.__name__ == name and kind.__module__.partition(".")[0] == package for kind in type(found).__mro__)


def _plain(value: Any) -> Any:
    """The nearest JSON value, if there is one."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if _is(value, "pandas", "NaTType") or _is(value, "pandas", "NAType"):
        return None
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return str(value)
    if hasattr(value, "tolist") and type(value).__module__.partition(".")[0] == "numpy":
        return _plain(value.tolist())
    return value
