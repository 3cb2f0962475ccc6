"""Files: read, write, edit, list, move, delete."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from paddock import errors
from paddock.machine.base import FileInfo, FileType
from paddock.tools import editing, reading
from paddock.tools.contents import Contents, load, save, turn
from paddock.tools.context import ToolContext
from paddock.tools.excerpt import once
from paddock.tools.tool import Picture, ToolFailed, ToolKit, ToolReply

kit = ToolKit("files")

Path = Annotated[str, Field(description="Absolute, or relative to /workspace.", examples=["/workspace/main.py"])]


class FileText(BaseModel):
    path: str
    size: int = Field(description="Of the whole file, in bytes.")
    media_type: str = Field(description="`text/plain`, or of the attached picture.")
    content: str = Field(description="The requested lines, without numbers. Empty for a picture.")
    first_line: int
    last_line: int
    total_lines: int | None = Field(description="Null if the file is too large to count, and for pictures.")
    next_offset: int | None = Field(description="Where to continue. Null at the end.")
    truncated: bool = Field(description="A line was cut because it is very long.")


class Written(BaseModel):
    path: str
    size: int


class Edited(BaseModel):
    path: str
    replacements: int
    first_line: int = Field(description="The line of the first change, before it.")
    size: int


class Entry(BaseModel):
    path: str
    type: Literal["file", "directory", "symlink", "other"]
    size: int
    modified_at: float
    target: str | None = Field(default=None, description="Of a symlink.")


class Listing(BaseModel):
    path: str
    entries: list[Entry]
    total: int
    next_offset: int | None = Field(description="Where to continue. Null at the end.")


class Deleted(BaseModel):
    path: str


class Moved(BaseModel):
    source: str
    destination: str


@kit.tool("read_file", "Read a file", langchain="file_read", read_only=True, idempotent=True)
async def read_file(
    ctx: ToolContext,
    path: Path,
    offset: Annotated[int, Field(ge=1, description="The first line, from 1.")] = 1,
    limit: Annotated[int, Field(ge=1, le=20_000, description="Maximum lines.")] = 2000,
) -> ToolReply[FileText]:
    """Read a text file, with line numbers, or look at a picture (PNG, JPEG, GIF, WebP).

    Says how many lines there are, and where to read on. The numbers and the tab after them are not part of the file.
    Lines longer than 2000 characters are cut. Other binary files are refused.
    """
    where = ctx.path(path)
    info = await ctx.machine.stat(where, follow=True, user=ctx.user)
    if info.type is FileType.DIRECTORY:
        raise ToolFailed(f"{where} is a directory. List it with list_directory.")
    begin = await reading.beginning(ctx, where)
    if (kind := reading.picture_type(begin)) is not None:
        data = await reading.picture(ctx, info, where)
        seen = FileText(
            path=where, size=info.size, media_type=kind, content="", first_line=0, last_line=0,
            total_lines=None, next_offset=None, truncated=False,
        )  # fmt: skip
        return ToolReply(f"{where}: a picture ({kind}, {info.size} bytes).", seen, (Picture(data, kind),))
    if b"\0" in begin:
        raise ToolFailed(
            f"{where} is binary ({info.size} bytes). Look at it with a program, through run_command: file, xxd, "
            "strings, pdftotext, unzip -l."
        )
    page = await reading.lines(ctx, where, offset, limit)
    if offset > 1 and not page.lines:
        raise ToolFailed(f"{where} has {page.total} lines: there is no line {offset}.")
    last = offset + len(page.lines) - 1
    text = FileText(
        path=where, size=info.size, media_type="text/plain", content="".join(page.lines), first_line=offset,
        last_line=last, total_lines=page.total, next_offset=last + 1 if page.more else None, truncated=page.cut,
    )  # fmt: skip
    return ToolReply(reading.numbered(page, offset), text)


@kit.tool("write_file", "Write a file", langchain="file_write", destructive=True, idempotent=True)
async def write_file(
    ctx: ToolContext, path: Path, content: Annotated[str, Field(description="The whole new content.")]
) -> ToolReply[Written]:
    """Create a file or replace its whole content. Missing directories are made.

    To change a part of a file, use edit_file.
    """
    where = ctx.path(path)
    async with turn(ctx, where):
        info = await ctx.machine.write_file(where, once(_encoded(content)), user=ctx.user)
    return ToolReply(f"Wrote {info.size} bytes to {info.path}.", Written(path=info.path, size=info.size))


@kit.tool("edit_file", "Edit a file", langchain="file_edit", destructive=True)
async def edit_file(
    ctx: ToolContext,
    path: Path,
    old_string: Annotated[str, Field(description="The text to replace, exactly, without line numbers.")],
    new_string: Annotated[str, Field(description="The text to put in its place.")],
    replace_all: Annotated[bool, Field(description="Every occurrence.")] = False,
) -> ToolReply[Edited]:
    """Replace text in a file. Read the file first, so that the text fits exactly.

    The text must be in the file exactly once, unless replace_all is set; give enough of what is around it. For
    several changes in one file use multi_edit; for several files, apply_patch.
    """
    where = ctx.path(path)
    async with turn(ctx, where):
        before = await load(ctx, where)
        edit = editing.Edit(old_string, new_string, replace_all)
        replaced = await _replaced(ctx, before, [edit])
        info = await save(ctx, where, before, replaced.text)
    data = Edited(path=where, replacements=replaced.count, first_line=replaced.first_line, size=info.size)
    return ToolReply(_changed(data), data)


class Edit(BaseModel):
    old_string: str = Field(description="The text to replace, exactly, without line numbers.")
    new_string: str = Field(description="The text to put in its place.")
    replace_all: bool = Field(default=False, description="Every occurrence.")


@kit.tool("multi_edit", "Edit a file in several places", langchain="file_multi_edit", destructive=True)
async def multi_edit(
    ctx: ToolContext,
    path: Path,
    edits: Annotated[list[Edit], Field(min_length=1, max_length=200, description="Applied in order.")],
) -> ToolReply[Edited]:
    """Make several changes in one file at once: all of them, or none if one does not fit.

    Each works like edit_file, on what the ones before it have made.
    """
    where = ctx.path(path)
    async with turn(ctx, where):
        before = await load(ctx, where)
        asked = [editing.Edit(edit.old_string, edit.new_string, edit.replace_all) for edit in edits]
        replaced = await _replaced(ctx, before, asked)
        info = await save(ctx, where, before, replaced.text)
    data = Edited(path=where, replacements=replaced.count, first_line=replaced.first_line, size=info.size)
    return ToolReply(_changed(data), data)


@kit.tool("list_directory", "List a directory", langchain="file_list", read_only=True, idempotent=True)
async def list_directory(
    ctx: ToolContext,
    path: Annotated[str, Field(description="Absolute, or relative to /workspace.", examples=["src"])] = ".",
    depth: Annotated[int, Field(ge=1, le=8, description="How many levels.")] = 1,
    offset: Annotated[int, Field(ge=0, description="How many to skip: next_offset of the last answer.")] = 0,
    limit: Annotated[int, Field(ge=1, le=5000, description="Maximum number.")] = 500,
) -> ToolReply[Listing]:
    """What is in a directory, hidden files too, sorted by path, with kinds and sizes."""
    where = reading.tidy(ctx.path(path))
    found = await ctx.machine.list_directory(where, depth, user=ctx.user)
    entries = [_entry(info) for info in found[offset : offset + limit]]
    more = offset + limit if offset + limit < len(found) else None
    lines = [_line(where, entry) for entry in entries]
    if more is not None:
        lines.append(f"… {len(found) - more} more: go on with offset {more}.")
    listing = Listing(path=where, entries=entries, total=len(found), next_offset=more)
    return ToolReply("\n".join([f"{where}: {len(found)} {'entry' if len(found) == 1 else 'entries'}", *lines]), listing)


@kit.tool("delete_file", "Delete a file or directory", langchain="file_delete", destructive=True)
async def delete_file(
    ctx: ToolContext,
    path: Path,
    recursive: Annotated[bool, Field(description="Also a directory with everything in it.")] = False,
) -> ToolReply[Deleted]:
    """Delete a file, a symlink (never what it points to) or an empty directory; with recursive, a whole tree."""
    where = reading.tidy(ctx.path(path))
    if where in ("/", ctx.workspace, ctx.home):
        raise ToolFailed(f"{where} itself is not deleted. Delete what is in it.")
    try:
        await ctx.machine.remove(where, recursive, user=ctx.user)
    except errors.PathConflict as problem:
        if recursive:
            raise
        raise ToolFailed(f"{problem.message} To delete a directory with what is in it, set recursive.") from None
    return ToolReply(f"Deleted {where}.", Deleted(path=where))


@kit.tool("move_file", "Move or rename a file", langchain="file_move", destructive=True)
async def move_file(
    ctx: ToolContext,
    source: Annotated[str, Field(description="What to move.")],
    destination: Annotated[str, Field(description="Its new path, or a directory to move it into.")],
    overwrite: Annotated[bool, Field(description="Replace an existing file.")] = False,
) -> ToolReply[Moved]:
    """Move or rename a file or directory. Missing directories are made; an existing file is kept unless overwrite."""
    old, new = reading.tidy(ctx.path(source)), reading.tidy(ctx.path(destination))
    await ctx.machine.stat(old, user=ctx.user)
    there = await _stat(ctx, new)
    if there is not None and there.type is FileType.DIRECTORY:
        new = f"{new.rstrip('/')}/{old.rsplit('/', 1)[-1]}"
        there = await _stat(ctx, new)
    if there is not None and not overwrite and new != old:
        raise ToolFailed(f"{new} exists already. Choose another name, or set overwrite.")
    await ctx.machine.make_directory(new.rsplit("/", 1)[0] or "/", ctx.user)
    await ctx.machine.move(old, new, user=ctx.user)
    return ToolReply(f"Moved {old} to {new}.", Moved(source=old, destination=new))


async def _replaced(ctx: ToolContext, before: Contents, edits: list[editing.Edit]) -> editing.Replaced:
    size = (len(before.text) + sum(len(edit.old) + len(edit.new) for edit in edits)) * len(edits)
    replaced = await ctx.workers.call(size, editing.replace_all, before.text, before.crlf, edits)
    _encoded(replaced.text)
    return replaced


async def _stat(ctx: ToolContext, path: str) -> FileInfo | None:
    try:
        return await ctx.machine.stat(path, follow=True, user=ctx.user)
    except errors.NotFound:
        return None


def _changed(done: Edited) -> str:
    places = "1 place" if done.replacements == 1 else f"{done.replacements} places"
    return f"Changed {places} in {done.path}, the first at line {done.first_line}."


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as problem:
        raise ToolFailed(f"The text has half a character (a lone surrogate) at position {problem.start}.") from None


def _entry(info: FileInfo) -> Entry:
    return Entry(
        path=info.path,
        type=info.type.value,
        size=info.size,
        modified_at=info.modified_at,
        target=info.symlink_target,
    )


def _line(folder: str, entry: Entry) -> str:
    name = entry.path.removeprefix(folder.rstrip("/") + "/")
    match entry.type:
        case "directory":
            return f"{name}/"
        case "symlink":
            return f"{name} -> {entry.target}"
    return f"{name} ({entry.size} bytes)"
