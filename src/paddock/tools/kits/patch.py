"""Patches: changes of several files at once."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from paddock.tools import patching
from paddock.tools.context import ToolContext
from paddock.tools.tool import ToolKit, ToolReply

kit = ToolKit("files")


class PatchedFile(BaseModel):
    path: str
    action: Literal["added", "updated", "deleted"]
    moved_to: str | None
    added: int = Field(description="Lines.")
    removed: int


class Patched(BaseModel):
    files: list[PatchedFile]


@kit.tool("apply_patch", "Apply a patch", langchain="apply_patch", destructive=True)
async def apply_patch(
    ctx: ToolContext,
    patch: Annotated[
        str,
        Field(
            min_length=1,
            max_length=4_000_000,
            description="In one of the forms above.",
            examples=[
                "*** Begin Patch\n*** Update File: a.py\n@@ def f():\n-    return 1\n+    return 2\n*** End Patch"
            ],
        ),
    ],
) -> ToolReply[Patched]:
    """Change several files at once: all of them, or none if one part does not fit.

    Takes unified diffs (as git diff prints them) and this form:
    *** Begin Patch
    *** Add File: path (then each line with a + before it)
    *** Delete File: path
    *** Update File: path (then, if it moves, *** Move to: path)
    @@ a line above the change, such as the class or function it is in
     a line that stays
    -a line that goes
    +a line that comes
    *** End Patch
    Give about three lines of context around each change. Paths are relative to /workspace, or absolute.
    """
    steps = await patching.apply(ctx, patch)
    files = [
        PatchedFile(
            path=step.path,
            action=step.act.value,
            moved_to=step.target if step.target != step.path else None,
            added=step.added,
            removed=step.removed,
        )
        for step in steps
    ]
    lines = [f"{each.action} {each.moved_to or each.path} (+{each.added} -{each.removed})" for each in files]
    return ToolReply("\n".join(lines), Patched(files=files))
