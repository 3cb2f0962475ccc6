"""Finds files, and lines in them: with ripgrep if the sandbox has it, else with find and grep.

Both search the same files: not those in ``.git``, ``node_modules`` and the like unless requested, and no binary files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from paddock.machine.base import FileType
from paddock.tools import running
from paddock.tools.context import ToolContext
from paddock.tools.globs import compile_glob, without_sets
from paddock.tools.tool import ToolFailed

PRUNED = (".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache", ".pytest_cache")
"""Directories that are searched only if the path or the pattern names them."""
MAX_LINE = 500
_SEARCH_TIMEOUT_S = 60.0
_MAX_OUTPUT_BYTES = 8 << 20
"""Maximum bytes of a search's output."""
_SPECIAL = frozenset(r"\.^$*+?{}[]|()")
_NUMBERED = re.compile(r"(\d{1,12})([:-])")

_FIND = r"""
cd "$1" || exit 1
shift
[ "$#" -gt 0 ] && set -- -type d \( "$@" \) -prune -o
find . "$@" -type f -print | head -c 8388608
"""

_GREP = r"""
cd "$1" || exit 3
kind=$2 pattern=$3 context=$4 sensitive=$5
shift 5
grep "$kind" -e "$pattern" </dev/null
[ $? -gt 1 ] && exit 2
set -- "$kind" -s $sensitive -e "$pattern" "$@"
xargs -0 grep -l "$@" -- | while IFS= read -r file; do
  printf '\036%s\n' "$file"
  grep -n $context "$@" -- "$file" | cut -c 1-2000
done | head -c 8388608
exit 0
"""


@dataclass(frozen=True, slots=True)
class MatchLine:
    path: str
    number: int
    text: str
    matches: bool
    """Whether it matches, or is a context line."""


@dataclass(frozen=True, slots=True)
class SearchReport:
    """The requested page of the results, with totals of all."""

    lines: list[MatchLine]
    files: list[tuple[str, int]]
    """With the number of matching lines."""
    total_lines: int
    total_files: int
    total_matches: int


@dataclass(frozen=True, slots=True)
class ResultPage:
    """The requested range of lines and of files."""

    offset: int
    limit: int


async def find(ctx: ToolContext, folder: str, pattern: str, having: str = "") -> list[str]:
    """Matching paths below a directory, sorted. ``having``: only those whose name contains this text, ignoring case."""
    compile_glob(pattern)  # report an invalid pattern before searching
    pruned = [name for name in PRUNED if name not in pattern and f"/{name}" not in f"{folder}/"]
    names = [word for name in pruned for word in ("-o", "-name", name)][1:]
    ran = await running.run(
        ctx,
        ["/bin/sh", "-c", _FIND, "sh", folder, *names],
        what="find files",
        seconds=_SEARCH_TIMEOUT_S,
        limit=_MAX_OUTPUT_BYTES,
    )
    if not ran.ok:
        raise ToolFailed(f"{folder} could not be searched: {ran.err.strip()[:300]}")
    return await ctx.workers.call(len(ran.stdout), fitting, ran.stdout, pattern, having)


def fitting(output: bytes, pattern: str, having: str = "") -> list[str]:
    """Filter the output of ``find``."""
    glob, having = compile_glob(pattern), having.lower()
    found = (line[2:] for line in output.decode(errors="replace").splitlines() if line.startswith("./"))
    return sorted(path for path in found if having in path.rsplit("/", 1)[-1].lower() and glob.matches(path))


async def grep(
    ctx: ToolContext,
    path: str,
    pattern: str,
    part: ResultPage,
    *,
    glob: str | None,
    ignore_case: bool,
    literal: bool,
    context: int,
    multiline: bool,
) -> SearchReport:
    """Files with matching lines, sorted by path."""
    if glob:
        compile_glob(glob)  # report an invalid pattern before searching
    info = await ctx.machine.stat(path, follow=True, user=ctx.user)
    folder, one = (path, None) if info.type is FileType.DIRECTORY else path.rsplit("/", 1)
    folder = folder or "/"
    ran = await _ripgrep(ctx, folder, one, pattern, glob, ignore_case, literal, context, multiline)
    if ran.info.exit_code == running.NOT_FOUND:
        if multiline:
            raise ToolFailed("A search across lines needs ripgrep (rg), which this sandbox does not have.")
        ran = await _plain(ctx, folder, one, pattern, glob, ignore_case, literal, context)
        return await ctx.workers.call(len(ran.stdout), report, _of_grep, folder, ran.stdout, part)
    if ran.info.exit_code not in (0, 1) and not ran.stdout:
        raise _failed(pattern, ran.err.strip()[:1000] or "rg printed nothing")
    return await ctx.workers.call(len(ran.stdout), report, _of_ripgrep, folder, ran.stdout, part, glob)


def report(
    read: Callable[[str, str], Iterator[MatchLine]],
    folder: str,
    output: bytes,
    part: ResultPage,
    glob: str | None = None,
) -> SearchReport:
    """Build the report from a search's output, filtered by file pattern."""
    by_path: dict[str, list[MatchLine]] = {}
    for line in read(folder, output.decode(errors="replace")):
        by_path.setdefault(line.path, []).append(line)
    if glob:
        fits, beginning = compile_glob(glob), f"{folder.rstrip('/')}/"
        by_path = {path: lines for path, lines in by_path.items() if fits.matches(path.removeprefix(beginning))}
    files = sorted((path, sum(line.matches for line in lines)) for path, lines in by_path.items())
    end = part.offset + part.limit
    every = (line for path, _ in files for line in by_path[path])
    return SearchReport(
        lines=list(islice(every, part.offset, end)),
        files=files[part.offset : end],
        total_lines=sum(len(lines) for lines in by_path.values()),
        total_files=len(files),
        total_matches=sum(count for _, count in files),
    )


async def _ripgrep(
    ctx: ToolContext,
    folder: str,
    one: str | None,
    pattern: str,
    glob: str | None,
    ignore_case: bool,
    literal: bool,
    context: int,
    multiline: bool,
) -> running.ProgramResult:
    argv = ["rg", "--null", "--line-number", "--with-filename", "--no-heading", "--color=never", "--hidden"]
    argv += ["--no-ignore", "--sort=path", "--no-config", "--max-columns=2000", "--max-columns-preview"]
    for name in PRUNED:
        if f"/{name}" not in f"{folder}/" and name not in (glob or ""):
            argv.append(f"--glob=!**/{name}/**")
    argv += [f"--glob={without_sets(glob)}"] if glob else []
    argv += ["--ignore-case"] if ignore_case else []
    argv += ["--fixed-strings"] if literal else []
    argv += ["--multiline", "--multiline-dotall"] if multiline else []
    argv += [f"--context={context}"] if context else []
    script = 'command -v rg >/dev/null || exit 127; "$@" | head -c 8388608; exit 0'
    if not literal:
        # The pipe hides rg's exit code, so an invalid pattern is checked for first.
        script = (
            "command -v rg >/dev/null || exit 127; "
            'printf "" | rg --no-config -e "$0" - >/dev/null; [ $? -gt 1 ] && exit 2; "$@" | head -c 8388608; exit 0'
        )
    return await running.run(
        ctx,
        ["/bin/sh", "-c", script, pattern, *argv, "-e", pattern, "--", one or "."],
        what="search",
        cwd=folder,
        seconds=_SEARCH_TIMEOUT_S,
        limit=_MAX_OUTPUT_BYTES,
    )


def _of_ripgrep(folder: str, output: str) -> Iterator[MatchLine]:
    for line in output.split("\n"):
        path, nul, rest = line.partition("\0")
        if nul and (parsed := _line(f"{folder.rstrip('/')}/{path.removeprefix('./')}", rest)):
            yield parsed


def _of_grep(folder: str, output: str) -> Iterator[MatchLine]:
    path = ""
    for line in output.split("\n"):
        if line.startswith("\036"):
            path = f"{folder.rstrip('/')}/{line[1:].removeprefix('./')}"
        elif path and "\0" not in line and (parsed := _line(path, line)):
            yield parsed


async def _plain(
    ctx: ToolContext,
    folder: str,
    one: str | None,
    pattern: str,
    glob: str | None,
    ignore_case: bool,
    literal: bool,
    context: int,
) -> running.ProgramResult:
    files = [one] if one else await find(ctx, folder, glob or "**")
    if one and glob and not compile_glob(glob).matches(one):
        files = []
    ran = await running.run(
        ctx,
        [
            "/bin/sh", "-c", _GREP, "sh", folder, "-F" if literal else "-E",
            pattern if literal else _posix(pattern), f"-C{context}" if context else "", "-i" if ignore_case else "",
            *(["-I"] if await _knows_binaries(ctx) else []),
        ],
        what="search",
        seconds=_SEARCH_TIMEOUT_S,
        limit=_MAX_OUTPUT_BYTES,
        stdin="\0".join(["./" + name for name in files] + [""]).encode(errors="surrogateescape") if files else b"",
    )  # fmt: skip
    if not ran.ok:
        raise _failed(pattern, ran.err.strip()[:1000])
    return ran


def _failed(pattern: str, said: str) -> ToolFailed:
    hint = ""
    if any(letter in _SPECIAL for letter in pattern):
        hint = (
            f"\nTo search for {pattern[:100]!r} as plain text, set literal; or put a backslash before what is special."
        )
    return ToolFailed(f"The search failed: {said}{hint}")


async def _knows_binaries(ctx: ToolContext) -> bool:
    ran = await running.run(ctx, ["/bin/sh", "-c", "echo a | grep -qI a"], what="search")
    return ran.ok


def _posix(pattern: str) -> str:
    """Translate common syntax to POSIX: grep -E knows neither \\d nor non-capturing groups."""
    return pattern.replace(r"\d", "[0-9]").replace(r"\D", "[^0-9]").replace("(?:", "(")


def _line(path: str, text: str) -> MatchLine | None:
    """Parse ``12:a matching line`` or ``12-a context line``."""
    found = _NUMBERED.match(text)
    if found is None:
        return None
    line = text[found.end() :].rstrip("\r")
    return MatchLine(path, int(found[1]), line if len(line) <= MAX_LINE else line[:MAX_LINE] + " …", found[2] == ":")
