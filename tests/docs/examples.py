"""The fenced examples of a page: where they stand, and what a reader would type of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(?P<language>[\w+-]*)[^\n]*\n(?P<text>.*?)^```\s*$", re.MULTILINE | re.DOTALL)
_HERE_DOCUMENT = re.compile(r"<<'?(\w+)'?")
PROMPT = "$ "


@dataclass(frozen=True, slots=True)
class Example:
    page: str
    line: int
    """Of its first line in the page."""
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(slots=True)
class Command:
    """What is typed after one prompt, and what the page says that it prints."""

    line: int
    text: str
    printed: list[str] = field(default_factory=list)


def pages() -> list[str]:
    return ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))]


def examples(page: str) -> list[Example]:
    """All of them, also those without a language: pictures, formats and messages."""
    written = (ROOT / page).read_text()
    return [
        Example(page, written[: found.start("text")].count("\n") + 1, found["language"], found["text"])
        for found in _FENCE.finditer(written)
    ]


def commands(example: Example) -> Iterator[Command]:
    """A command begins at its prompt and goes on after a backslash at the end of its line, and to the end of what is
    given it as a here-document; the rest is what it prints."""
    command: Command | None = None
    document = ""
    for number, line in enumerate(example.text.splitlines(), example.line):
        if document and command is not None:
            command.text += f"\n{line}"
            document = "" if line == document else document
        elif line.startswith(PROMPT):
            if command is not None:
                yield command
            command = Command(number, line.removeprefix(PROMPT))
            found = _HERE_DOCUMENT.search(line)
            document = found[1] if found else ""
        elif command is None:
            raise ValueError(f"{example.page}:{number}: an example of a console begins with `{PROMPT}`")
        elif not command.printed and command.text.endswith("\\"):
            command.text += f"\n{line}"
        elif line:
            command.printed.append(line)
    if command is not None:
        yield command
