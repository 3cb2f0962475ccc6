"""One page of a file, by lines, within the limits that deepagents sets."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import PurePosixPath

MAX_PAGE_BYTES = 500 * 1024
"""Maximum bytes of one page of text, and of a binary file."""
EMPTY = "System reminder: File exists but has empty contents"
CUT = (
    "\n\n[Output was truncated due to size limits. This paginated read result exceeded the sandbox stdout limit. "
    "Continue reading with a larger offset or smaller limit to inspect the rest of the file.]"
)
"""The same sentence as in other backends, which models know."""
_NOT_TEXT = {
    *(".png", ".jpeg", ".jpg", ".webp", ".gif", ".heic", ".heif"),
    *(".mp4", ".mpeg", ".mov", ".avi", ".flv", ".mpg", ".webm", ".wmv", ".3gpp", ".mkv"),
    *(".wav", ".mp3", ".aiff", ".aac", ".ogg", ".flac", ".pdf", ".ppt", ".pptx"),
}
"""File types that are passed to the model unchanged, from deepagents' own list."""


class UnreadablePage(Exception):
    """The reason, in deepagents' wording."""


@dataclass(frozen=True, slots=True)
class FilePage:
    content: str
    encoding: str = "utf-8"
    total_lines: int | None = None
    start_line: int | None = None
    end_line: int | None = None

    @property
    def next_offset(self) -> int | None:
        """Line number after the page; None at the end of the file."""
        return self.end_line if (self.end_line or 0) < (self.total_lines or 0) else None


def page(path: str, data: bytes, offset: int, limit: int) -> FilePage:
    """At most ``limit`` lines from ``offset`` (from 0); a binary file is returned whole, in base64."""
    if not data:
        return FilePage(EMPTY)
    text = None if PurePosixPath(path).suffix.lower() in _NOT_TEXT else _text(data)
    if text is None:
        if len(data) > MAX_PAGE_BYTES:
            raise UnreadablePage(f"Binary file exceeds maximum preview size of {MAX_PAGE_BYTES} bytes")
        return FilePage(base64.b64encode(data).decode(), "base64")
    offset, limit = max(0, offset), max(0, limit)
    if limit == 0:
        return FilePage("")
    lines = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    if offset >= len(lines):
        raise UnreadablePage(f"Line offset {offset} exceeds file length ({len(lines)} lines)")
    content, shown = _fitting(lines[offset : offset + limit])
    return FilePage(content, total_lines=len(lines), start_line=offset + 1, end_line=offset + shown)


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _fitting(lines: list[str]) -> tuple[str, int]:
    """The text that fits, and its number of complete lines; a single line that is too long counts as one, so that
    reading advances."""
    content = "\n".join(lines)
    if len(content.encode()) <= MAX_PAGE_BYTES - len(CUT.encode()):
        return content, len(lines)
    kept = content.encode()[: MAX_PAGE_BYTES - len(CUT.encode())].decode(errors="ignore")
    return kept + CUT, max(1, kept.count("\n"))
