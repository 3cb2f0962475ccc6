"""Finding files and lines in them: with ripgrep where the sandbox has it, else with find and grep.

Both see the same files: not those in ``.git``, ``node_modules`` and their like unless asked for, and no binary ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from paddock.machine.base import FileType
from paddock.tools import running
from paddock.tools.bench import Bench
from paddock.tools.globs import compile_glob
from paddock.tools.tool import ToolFailed

PRUNED = (".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache", ".pytest_cache")
"""Directories that are searched only when the path or the pattern names them."""
MAX_LINE = 500
_SECONDS = 60.0
_LIMIT = 8 << 20
"""Bytes of what a search finds that are read."""

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


@dataclass
class Match:
    """One file, with the lines that were found in it."""

    path: str
    lines: list[tuple[int, str, bool]] = field(default_factory=list)
    """Number, text, and whether it matches rather than stands beside one that does."""

    @property
    def count(self) -> int:
        return sum(matches for _, _, matches in self.lines)


async def find(bench: Bench, folder: str, pattern: str) -> list[str]:
    """Paths below a folder that fit, sorted."""
    fits = compile_glob(pattern)
    pruned = [name for name in PRUNED if name not in pattern and f"/{name}" not in f"{folder}/"]
    names = [word for name in pruned for word in ("-o", "-name", name)][1:]
    ran = await running.run(
        bench, ["/bin/sh", "-c", _FIND, "sh", folder, *names], what="find files", seconds=_SECONDS, limit=_LIMIT
    )
    if not ran.ok:
        raise ToolFailed(f"{folder} could not be searched: {ran.err.strip()[:300]}")
    found = [line[2:] for line in ran.out.splitlines() if line.startswith("./")]
    return sorted(path for path in found if fits.fullmatch(path))


async def grep(
    bench: Bench,
    path: str,
    pattern: str,
    *,
    glob: str | None,
    ignore_case: bool,
    literal: bool,
    context: int,
    multiline: bool,
) -> list[Match]:
    """Files with lines that fit, sorted by path."""
    info = await bench.machine.stat(path, follow=True, user=bench.user)
    folder, one = (path, None) if info.type is FileType.DIRECTORY else path.rsplit("/", 1)
    folder = folder or "/"
    ran = await _ripgrep(bench, folder, one, pattern, glob, ignore_case, literal, context, multiline)
    if ran.info.exit_code == running.NOT_FOUND:
        if multiline:
            raise ToolFailed("A search across lines needs ripgrep (rg), which this sandbox does not have.")
        return await _plain(bench, folder, one, pattern, glob, ignore_case, literal, context)
    if ran.info.exit_code not in (0, 1) and not ran.stdout:
        raise ToolFailed(f"The search failed: {ran.err.strip()[:1000] or 'rg said nothing'}")
    return _of_ripgrep(folder, ran.out)


async def _ripgrep(
    bench: Bench,
    folder: str,
    one: str | None,
    pattern: str,
    glob: str | None,
    ignore_case: bool,
    literal: bool,
    context: int,
    multiline: bool,
) -> running.Ran:
    argv = ["rg", "--null", "--line-number", "--with-filename", "--no-heading", "--color=never", "--hidden"]
    argv += ["--no-ignore", "--sort=path", "--no-config", "--max-columns=2000", "--max-columns-preview"]
    for name in PRUNED:
        if f"/{name}" not in f"{folder}/" and name not in (glob or ""):
            argv.append(f"--glob=!**/{name}/**")
    argv += [f"--glob={glob}"] if glob else []
    argv += ["--ignore-case"] if ignore_case else []
    argv += ["--fixed-strings"] if literal else []
    argv += ["--multiline", "--multiline-dotall"] if multiline else []
    argv += [f"--context={context}"] if context else []
    script = 'command -v rg >/dev/null || exit 127; "$@" | head -c 8388608; exit 0'
    if not literal:
        # The pipe hides how rg ended; a pattern that is none must be heard of.
        script = (
            "command -v rg >/dev/null || exit 127; "
            'printf "" | rg --no-config -e "$0" - >/dev/null; [ $? -gt 1 ] && exit 2; "$@" | head -c 8388608; exit 0'
        )
    return await running.run(
        bench,
        ["/bin/sh", "-c", script, pattern, *argv, "-e", pattern, "--", one or "."],
        what="search",
        cwd=folder,
        seconds=_SECONDS,
        limit=_LIMIT,
    )


def _of_ripgrep(folder: str, output: str) -> list[Match]:
    found: dict[str, Match] = {}
    for line in output.split("\n"):
        path, nul, rest = line.partition("\0")
        if nul and (parsed := _line(rest)):
            path = f"{folder.rstrip('/')}/{path.removeprefix('./')}"
            found.setdefault(path, Match(path)).lines.append(parsed)
    return list(found.values())


async def _plain(
    bench: Bench,
    folder: str,
    one: str | None,
    pattern: str,
    glob: str | None,
    ignore_case: bool,
    literal: bool,
    context: int,
) -> list[Match]:
    files = [one] if one else await find(bench, folder, glob or "**")
    if one and glob and not compile_glob(glob).fullmatch(one):
        files = []
    ran = await running.run(
        bench,
        [
            "/bin/sh", "-c", _GREP, "sh", folder, "-F" if literal else "-E",
            pattern if literal else _posix(pattern), f"-C{context}" if context else "", "-i" if ignore_case else "",
            *(["-I"] if await _knows_binaries(bench) else []),
        ],
        what="search",
        seconds=_SECONDS,
        limit=_LIMIT,
        stdin="\0".join(["./" + name for name in files] + [""]).encode(errors="surrogateescape") if files else b"",
    )  # fmt: skip
    if not ran.ok:
        raise ToolFailed(f"The search failed: {ran.err.strip()[:1000]}")
    found: list[Match] = []
    for line in ran.out.split("\n"):
        if line.startswith("\036"):
            found.append(Match(f"{folder.rstrip('/')}/{line[1:].removeprefix('./')}"))
        elif found and "\0" not in line and (parsed := _line(line)):
            found[-1].lines.append(parsed)
    return sorted((match for match in found if match.lines), key=lambda match: match.path)


async def _knows_binaries(bench: Bench) -> bool:
    ran = await running.run(bench, ["/bin/sh", "-c", "echo a | grep -qI a"], what="search")
    return ran.ok


def _posix(pattern: str) -> str:
    """What models write most, in the words of POSIX: grep -E knows no \\d, and no groups without a number."""
    return pattern.replace(r"\d", "[0-9]").replace(r"\D", "[^0-9]").replace("(?:", "(")


def _line(text: str) -> tuple[int, str, bool] | None:
    """``12:a line that matches``, ``12-one beside it``."""
    found = re.match(r"(\d+)([:-])(.*)", text, re.DOTALL)
    if found is None:
        return None
    line = found[3].rstrip("\r")
    return int(found[1]), line if len(line) <= MAX_LINE else line[:MAX_LINE] + " …", found[2] == ":"
