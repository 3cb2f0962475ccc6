"""Writes an image as an archive that ``docker load``, ``skopeo`` and ``paddock image import`` read."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path

from paddock import errors
from paddock.images.manifest import OCI_INDEX, OCI_MANIFEST
from paddock.images.reference import Reference
from paddock.images.store import Image, ImageStore


def export(store: ImageStore, reference: Reference, image: Image, target: Path) -> None:
    """The blobs as they came. ``target`` is there whole or not at all. Blocking."""
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with store.lease() as lease, tarfile.open(draft, "w", format=tarfile.PAX_FORMAT) as tar:
            parts = {image.digest, *(part.digest for part in image.manifest.parts)}
            lease.hold(parts)
            _add(tar, "oci-layout", {"imageLayoutVersion": "1.0.0"})
            _add(tar, "index.json", _index(store, reference, image))
            _add(tar, "manifest.json", [_docker_manifest(reference, image)])
            for digest in sorted(parts):
                tar.add(store.blob(digest), arcname=_name(digest), filter=_plain)
        draft.replace(target)
    except OSError as error:
        raise errors.InsufficientStorage(f"{target} cannot be written: {error.strerror or error}.") from None
    finally:
        draft.unlink(missing_ok=True)


def _index(store: ImageStore, reference: Reference, image: Image) -> dict[str, object]:
    content = store.read_blob(image.digest)
    entry = {
        "mediaType": json.loads(content).get("mediaType", OCI_MANIFEST),
        "digest": image.digest,
        "size": len(content),
        "annotations": {
            "org.opencontainers.image.ref.name": reference.tag or "latest",
            "io.containerd.image.name": str(reference),
        },
    }
    return {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [entry]}


def _docker_manifest(reference: Reference, image: Image) -> dict[str, object]:
    return {
        "Config": _name(image.manifest.config.digest),
        "RepoTags": [reference.familiar] if reference.digest is None else [],
        "Layers": [_name(layer.digest) for layer in image.manifest.layers],
    }


def _name(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _add(tar: tarfile.TarFile, name: str, document: object) -> None:
    content = json.dumps(document).encode()
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    tar.addfile(entry, io.BytesIO(content))


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    entry.mode = 0o644
    return entry
