"""Output events of an execution, one JSON object per line: the format of E2B's code interpreter.

Lines are ASCII (clients decode each network chunk by itself) and contain no NaN (which is not JSON).
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

Output = dict[str, Any]

END: Output = {"type": "end_of_execution"}
KEEPALIVE: Output = {"type": "keepalive"}
MAX_TEXT = 1 << 16
"""Maximum characters of output in one line."""

_FIELDS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/json": "json",
    "application/javascript": "javascript",
    "e2b/data": "data",
    "e2b/chart": "chart",
}


def line(output: Output) -> bytes:
    try:
        text = json.dumps(output, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(output), allow_nan=False)
    return text.encode("ascii") + b"\n"


def count(number: int) -> Output:
    return {"type": "number_of_executions", "execution_count": number}


def stream(name: str, text: str) -> Output:
    """``name`` is ``stdout`` or ``stderr``. The time is in nanoseconds since 1970."""
    return {"type": name, "text": text, "timestamp": time.time_ns()}


def pieces(text: str) -> Sequence[str]:
    """Split the text so that each part fits one line."""
    return [text[begin : begin + MAX_TEXT] for begin in range(0, len(text), MAX_TEXT)]


def error(name: str, value: str, traceback: str = "") -> Output:
    return {"type": "error", "name": name, "value": value, "traceback": traceback}


def result(bundle: Mapping[str, Any], is_main: bool) -> Output:
    """One result in several MIME types. Types without a field of their own go to ``extra``."""
    found: Output = {"type": "result"}
    extra = {}
    for mime, value in bundle.items():
        field = _FIELDS.get(mime)
        if field is None:
            extra[mime] = value
        elif field == "text":
            found[field] = _unquoted(str(value))
        else:
            found[field] = value
    if extra:
        found["extra"] = extra
    found["is_main_result"] = is_main
    return found


def _unquoted(text: str) -> str:
    """Without the quotes of a string's repr."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
