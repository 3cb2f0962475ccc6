"""Small images of known content."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import zstandard

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
OCI = "application/vnd.oci.image"
LAYER = f"{OCI}.layer.v1.tar"


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass
class Entry:
    name: str
    kind: bytes = tarfile.REGTYPE
    content: bytes = b""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    mtime: int = 1_000_000
    link: str = ""
    pax: Mapping[str, str] = field(default_factory=dict)


def directory(name: str, mode: int = 0o755, **more: Any) -> Entry:
    return Entry(name, tarfile.DIRTYPE, mode=mode, **more)


def symlink(name: str, target: str) -> Entry:
    return Entry(name, tarfile.SYMTYPE, link=target, mode=0o777)


def hard_link(name: str, target: str) -> Entry:
    return Entry(name, tarfile.LNKTYPE, link=target)


def tar(*entries: Entry) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for one in entries:
            info = tarfile.TarInfo(one.name)
            info.type, info.mode, info.uid, info.gid, info.mtime = one.kind, one.mode, one.uid, one.gid, one.mtime
            info.linkname, info.size, info.pax_headers = one.link, len(one.content), dict(one.pax)
            archive.addfile(info, io.BytesIO(one.content))
    return made.getvalue()


def gzipped(content: bytes) -> bytes:
    return gzip.compress(content, compresslevel=1, mtime=0)


def zstd(content: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(content)


@dataclass
class BuiltImage:
    """``blobs`` by digest, and which of them is the manifest."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifest: bytes = b""

    @property
    def digest(self) -> str:
        return digest(self.manifest)

    def blob(self, content: bytes) -> dict[str, Any]:
        self.blobs[digest(content)] = content
        return {"digest": digest(content), "size": len(content)}


def image(
    layers: Iterable[tuple[bytes, bytes]], *, config: Mapping[str, Any] | None = None, architecture: str = ARCHITECTURE
) -> BuiltImage:
    """``layers``: each as a tar, and as it is in the registry."""
    made, pairs = BuiltImage(), list(layers)
    root = {"type": "layers", "diff_ids": [digest(plain) for plain, _ in pairs]}
    document = {"architecture": architecture, "os": "linux", "config": dict(config or {}), "rootfs": root}
    written = made.blob(json.dumps(document).encode())
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{OCI}.manifest.v1+json",
        "config": {"mediaType": f"{OCI}.config.v1+json", **written},
        "layers": [{"mediaType": LAYER, **made.blob(packed)} for _, packed in pairs],
    }
    made.manifest = json.dumps(manifest).encode()
    return made


def plain_image(*layers: bytes, **more: Any) -> BuiltImage:
    return image([(layer, gzipped(layer)) for layer in layers], **more)


def index(*images: tuple[BuiltImage, str]) -> bytes:
    """Of images with their architectures, and an attestation beside them as BuildKit writes it."""
    entries = [
        {
            "mediaType": f"{OCI}.manifest.v1+json",
            "digest": one.digest,
            "size": len(one.manifest),
            "platform": {"os": "linux", "architecture": architecture},
        }
        for one, architecture in images
    ]
    unknown = {"os": "unknown", "architecture": "unknown"}
    entries.append({**entries[0], "platform": unknown})
    return json.dumps({"schemaVersion": 2, "mediaType": f"{OCI}.index.v1+json", "manifests": entries}).encode()
