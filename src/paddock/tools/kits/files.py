"""Files: read, written, changed, found."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from pydantic import BaseModel, Field

from paddock.tools.bench import Bench
from paddock.tools.tool import Kit, Reply

kit = Kit("files")

Path = Annotated[str, Field(description="Absolute, or relative to /workspace.", examples=["/workspace/main.py"])]


class Written(BaseModel):
    path: str
    size: int


@kit.tool("write_file", "Write a file", langchain="file_write", destructive=True, idempotent=True)
async def write_file(
    bench: Bench, path: Path, content: Annotated[str, Field(description="The whole new content, as text.")]
) -> Reply[Written]:
    """Create a file or replace its whole content. Missing directories are made.

    To change a part of a file, use edit_file.
    """

    async def whole() -> AsyncIterator[bytes]:
        yield content.encode()

    info = await bench.machine.write_file(bench.path(path), whole(), user=bench.user)
    return Reply(f"Wrote {info.size} bytes to {info.path}.", Written(path=info.path, size=info.size))
