"""Finds files by name, and lines by content."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, Field

from paddock.machine.base import FileType
from paddock.tools import searching
from paddock.tools.context import ToolContext
from paddock.tools.reading import tidy
from paddock.tools.searching import ResultPage, SearchReport
from paddock.tools.tool import ToolFailed, ToolKit, ToolReply

kit = ToolKit("search")

Item = TypeVar("Item")

Where = Annotated[str, Field(description="Where to search.", examples=["src"])]
Skip = Annotated[int, Field(ge=0, description="How many to skip: next_offset of the last answer.")]
Glob = Annotated[
    str | None, Field(description="Only files whose path matches.", examples=["*.py", "src/**/*.{ts,tsx}"])
]


class Files(BaseModel):
    path: str
    files: list[str]
    total: int
    next_offset: int | None = Field(description="Where to continue. Null at the end.")


class FoundLine(BaseModel):
    file: str
    line: int
    text: str
    match: bool = Field(description="False for a context line.")


class Counted(BaseModel):
    file: str
    matches: int


class Found(BaseModel):
    lines: list[FoundLine] = Field(description="In the mode `content`.")
    files: list[Counted] = Field(description="In the other modes.")
    total_files: int
    total_matches: int
    next_offset: int | None = Field(description="Where to continue. Null at the end.")


class Hits(BaseModel):
    names: list[str] = Field(description="Files whose name has the text.")
    lines: list[FoundLine]
    total_names: int
    total_lines: int


@kit.tool("glob_files", "Find files by name", langchain="file_glob", read_only=True, idempotent=True)
async def glob_files(
    ctx: ToolContext,
    pattern: Annotated[
        str, Field(min_length=1, description="`*`, `?`, `**`, `[…]`, `{a,b}`.", examples=["**/*.py", "*.{json,toml}"])
    ],
    path: Where = ".",
    offset: Skip = 0,
    limit: Annotated[int, Field(ge=1, le=5000, description="Maximum number.")] = 200,
) -> ToolReply[Files]:
    """Find files by a pattern of their paths, sorted. A pattern without a slash fits in every directory.

    Skips .git, node_modules, caches and virtual environments unless they are named.
    """
    where = tidy(ctx.path(path))
    await ctx.machine.list_directory(where, 1, user=ctx.user)
    found = await searching.find(ctx, where, pattern)
    some, more = _page(found, offset, limit)
    page = [f"{where.rstrip('/')}/{each}" for each in some]
    lines = [*page, *_rest(len(found), more)]
    return ToolReply(
        "\n".join(lines) or f"No file below {where} fits {pattern}.",
        Files(path=where, files=page, total=len(found), next_offset=more),
    )


@kit.tool("grep_files", "Search in files", langchain="file_grep", read_only=True, idempotent=True)
async def grep_files(
    ctx: ToolContext,
    pattern: Annotated[str, Field(min_length=1, description="A regular expression.", examples=[r"def \w+_id\("])],
    path: Where = ".",
    glob: Glob = None,
    mode: Annotated[
        Literal["content", "files", "count"],
        Field(description="Lines, file names only, or counts per file."),
    ] = "content",
    ignore_case: Annotated[bool, Field(description="Ignore case.")] = False,
    literal: Annotated[bool, Field(description="The pattern is plain text.")] = False,
    context: Annotated[int, Field(ge=0, le=20, description="Lines to show before and after each.")] = 0,
    multiline: Annotated[bool, Field(description="It may match across lines. Needs ripgrep.")] = False,
    offset: Skip = 0,
    limit: Annotated[int, Field(ge=1, le=2000, description="Maximum lines or files.")] = 250,
) -> ToolReply[Found]:
    """Search what is in files for a regular expression.

    Uses ripgrep where the sandbox has it, else grep -E: keep to what both know. Skips binary files, and .git,
    node_modules, caches and virtual environments unless they are named.
    """
    where = tidy(ctx.path(path))
    found = await searching.grep(
        ctx,
        where,
        pattern,
        ResultPage(offset, limit),
        glob=glob,
        ignore_case=ignore_case,
        literal=literal,
        context=context,
        multiline=multiline,
    )
    total_files, matches = found.total_files, found.total_matches
    if mode == "content":
        kept, more = _fitting(_lines(found), offset, _next(offset, limit, found.total_lines), ctx.inline)
        data = Found(lines=kept, files=[], total_files=total_files, total_matches=matches, next_offset=more)
        said = [*_grouped(kept), *_rest(found.total_lines, more)]
    else:
        some = [Counted(file=path, matches=count) for path, count in found.files]
        more = _next(offset, limit, total_files)
        data = Found(lines=[], files=some, total_files=total_files, total_matches=matches, next_offset=more)
        said = [each.file if mode == "files" else f"{each.file}: {each.matches}" for each in some]
        said += _rest(total_files, more)
    return ToolReply("\n".join(said) or f"Nothing below {where} fits {pattern!r}.", data)


@kit.tool("search_files", "Search for a text", langchain="file_search", read_only=True, idempotent=True)
async def search_files(
    ctx: ToolContext,
    query: Annotated[str, Field(description="Plain text. Empty: all files that match glob.")] = "",
    path: Where = ".",
    glob: Glob = None,
    limit: Annotated[int, Field(ge=1, le=1000, description="Maximum names, and lines.")] = 100,
) -> ToolReply[Hits]:
    """Find files whose name has a text, and lines that have it, whatever the case.

    The first look around in a project. For regular expressions and context use grep_files; for patterns of names,
    glob_files.
    """
    where = tidy(ctx.path(path))
    if not query:
        return await _fitting_names(ctx, where, glob, limit)
    found = await searching.grep(
        ctx, where, query, ResultPage(0, limit), glob=glob, ignore_case=True, literal=True, context=0, multiline=False
    )
    below = [] if "\n" in query else await _named(ctx, where, query, glob)
    total_lines = found.total_lines
    kept, more = _fitting(_lines(found), 0, None, ctx.inline)
    data = Hits(names=below[:limit], lines=kept, total_names=len(below), total_lines=total_lines)
    said = [f"Files whose name has it ({len(below)}):", *below[:limit]] if below else []
    said += [f"Lines that have it ({total_lines}):", *_grouped(kept)] if kept else []
    if total_lines > len(kept) or more:
        said.append("… there are more: narrow it with path or glob, or page through with grep_files.")
    return ToolReply("\n".join(said) or f"{query!r} is nowhere below {where}.", data)


async def _fitting_names(ctx: ToolContext, where: str, glob: str | None, limit: int) -> ToolReply[Hits]:
    if not glob:
        raise ToolFailed("Say what to search for: query is a text, glob a pattern of file names, such as *.py.")
    names = await _named(ctx, where, "", glob)
    data = Hits(names=names[:limit], lines=[], total_names=len(names), total_lines=0)
    said = [*names[:limit], *(["… there are more: page through with glob_files."] if len(names) > limit else [])]
    return ToolReply("\n".join(said) or f"No file below {where} fits {glob}.", data)


async def _named(ctx: ToolContext, where: str, query: str, glob: str | None) -> list[str]:
    if (await ctx.machine.stat(where, follow=True, user=ctx.user)).type is not FileType.DIRECTORY:
        return []
    found = await searching.find(ctx, where, glob or "**", having=query)
    return [f"{where.rstrip('/')}/{each}" for each in found]


def _lines(found: SearchReport) -> list[FoundLine]:
    return [FoundLine(file=each.path, line=each.number, text=each.text, match=each.matches) for each in found.lines]


def _grouped(lines: list[FoundLine]) -> list[str]:
    """Each file named once, above its lines."""
    said: list[str] = []
    file = None
    for each in lines:
        if each.file != file:
            file = each.file
            said.append(file)
        said.append(f"{each.line:6}{':' if each.match else ' '} {each.text}")
    return said


def _page(items: list[Item], offset: int, limit: int) -> tuple[list[Item], int | None]:
    return items[offset : offset + limit], _next(offset, limit, len(items))


def _next(offset: int, limit: int, total: int) -> int | None:
    end = offset + limit
    return end if end < total else None


def _fitting(lines: list[FoundLine], offset: int, more: int | None, room: int) -> tuple[list[FoundLine], int | None]:
    """As many as an answer holds."""
    for number, line in enumerate(lines):
        room -= len(line.text) + 10
        if room < 0 and number:
            return lines[:number], offset + number
    return lines, more


def _rest(total: int, more: int | None) -> list[str]:
    return [] if more is None else [f"… {total - more} more: go on with offset {more}."]
