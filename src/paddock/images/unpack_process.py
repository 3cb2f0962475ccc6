"""The program that unpacks one layer: ``python -m paddock.images.unpack_process ROOT QUOTA``.

The blob is its standard input. It shuts itself into the empty directory ROOT before it reads the first byte, and says
how it ended in one line of JSON.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import tarfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO, Self

from paddock.images.confinement import confine
from paddock.images.decompression import Damaged, LayerReader, TooLarge
from paddock.images.layer_entry import Refused
from paddock.images.layer_writer import LayerWriter, Quota

_MEMORY_BYTES = 1 << 30
_CPU_SECONDS = 6 * 3600
_BLOCK = 1 << 20
_USER_OPAQUE = "user.overlay.opaque"


class _Entry(tarfile.TarInfo):
    """Where a header is damaged the module would take the archive to end there."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        try:
            return super().frombuf(buf, encoding, errors)
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError):  # type: ignore[attr-defined]
            raise Refused("it is damaged, or no tar") from None


def main() -> None:
    root, quota = Path(sys.argv[1]), json.loads(sys.argv[2])
    blob = os.fdopen(os.dup(0), "rb", buffering=0)
    try:
        confine(root, memory_bytes=_MEMORY_BYTES, file_bytes=max(quota["bytes"], _BLOCK), cpu_seconds=_CPU_SECONDS)
    except OSError as error:
        _end({"unconfined": str(error)})
        return
    _end(_outcome(blob, quota))


def _outcome(blob: BinaryIO, quota: dict[str, int]) -> dict[str, Any]:
    try:
        return _unpack(blob, quota)
    except (Refused, Damaged) as refusal:
        return {"refused": str(refusal)}
    except TooLarge:
        return {"refused": "it unpacks to more bytes than a layer may have"}
    except tarfile.TarError as error:
        return {"refused": f"it is damaged, or no tar: {error}"}
    except MemoryError:
        return {"refused": "its headers need more memory than they may have"}
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return {"full": True}
        return {"refused": f"{error.strerror}: {os.fsdecode(error.filename or '')[:200]!r}"}
    except (ValueError, OverflowError, RecursionError) as error:
        return {"refused": f"it is damaged: {error}"}


def _unpack(blob: BinaryIO, given: dict[str, int]) -> dict[str, Any]:
    root = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    quota = Quota(given["bytes"], given["inodes"], given["free_bytes"], root)
    quota.check_disk()
    reader = LayerReader(blob, given["bytes"])
    privileged = bool(given["owners"])
    writer = LayerWriter(root, quota, owners=privileged)
    tar = tarfile.open(  # noqa: SIM115 - it lives as long as this process
        fileobj=reader,  # type: ignore[call-overload]
        mode="r|",
        bufsize=_BLOCK,
        tarinfo=_Entry,
        encoding="utf-8",
        errors="surrogateescape",
    )
    while (entry := tar.next()) is not None:
        tar.members.clear()
        content = tar.extractfile(entry) if entry.issparse() else tar.fileobj if entry.isreg() else None
        writer.add(entry, content)
    summary = writer.finish()
    if not privileged:
        for path in summary.opaque:
            os.setxattr(f"/{path}", _USER_OPAQUE, b"y", follow_symlinks=False)
    return {"diff_id": reader.finish(), **asdict(summary)}


def _end(said: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
