"""The images of one server on its disk: blobs and unpacked layers by digest, names, and what is in use.

::

    images/blobs/sha256/HEX     as the registry gave it; checked when it came
    images/layers/HEX/root      an unpacked layer, by the digest of its uncompressed tar; never changed
    images/layers/HEX/layer.json
    images/own/HEX-FORMAT       what sandboxes need above the layers of an image, by its digest
    images/names/HEX.json       a name, and the manifest that it leads to
    images/leases/HEX.json      what a pull in progress needs; locked by its process
    images/drafts/              being made

Everything is made aside and renamed, so it is there whole or not at all. Whoever takes something away, or relies on
something that is there, holds the lock; of a process that was killed the kernel releases it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import secrets
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock import errors
from paddock.images.config import ImageConfig
from paddock.images.manifest import Manifest, read_manifest
from paddock.images.reference import Reference, check_digest
from paddock.images.unpack import UnpackedLayer
from paddock.removal import remove

IMAGES = "images"
"""Below the home of a server."""
IN_USE = "image.json"
"""In the folder of a sandbox: what it stands on."""
_LAYER_NOTE = "layer.json"
_ROOT = "root"


@dataclass(frozen=True, slots=True)
class Layer:
    diff_id: str
    root: Path
    implicit: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Image:
    digest: str
    """Of its manifest."""
    manifest: Manifest
    config: ImageConfig
    layers: tuple[Layer, ...]
    """The lowest first."""

    @property
    def size(self) -> int:
        """Bytes of its unpacked files, shared ones included."""
        return sum(layer.size for layer in self.layers)


@dataclass(frozen=True, slots=True)
class NamedImage:
    reference: Reference
    image: Image
    pulled_at: float


@dataclass(frozen=True, slots=True)
class InUse:
    """What stands in the folder of a sandbox about its image."""

    digest: str
    env: Mapping[str, str]


def in_use(folder: Path) -> InUse | None:
    """None: it stands on no image."""
    path = folder / IN_USE
    try:
        note: Any = json.loads(path.read_text())
        return InUse(check_digest(note["digest"]), dict(note["env"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, errors.ImageInvalid) as error:
        raise errors.ProviderUnavailable(f"What a sandbox stands on cannot be read: {path}: {error}") from None


class ImageStore:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.drafts = root / "drafts"
        self._blobs = root / "blobs"
        self._layers = root / "layers"
        self._own = root / "own"
        self._names = root / "names"
        self._leases = root / "leases"

    def create_layout(self) -> None:
        """Only its owner may enter: the files in layers have the owners and setuid bits that images gave them."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root.chmod(0o700)
        for folder in (self.drafts, self._blobs, self._layers, self._own, self._names, self._leases):
            folder.mkdir(mode=0o700, exist_ok=True)

    # Blobs

    def blob(self, digest: str) -> Path:
        algorithm, _, value = check_digest(digest).partition(":")
        return self._blobs / algorithm / value

    def draft_of(self, digest: str) -> Path:
        """Where it is downloaded to; what is there of an earlier attempt is continued."""
        return self.drafts / f"{check_digest(digest).replace(':', '-')}.part"

    def read_blob(self, digest: str) -> bytes:
        """A small one: a manifest or a configuration."""
        return self.blob(digest).read_bytes()

    def keep_blob(self, draft: Path, digest: str) -> Path:
        """Its content has been checked."""
        path = self.blob(digest)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        draft.rename(path)
        return path

    def write_blob(self, content: bytes, digest: str) -> None:
        """A document whose digest has been checked."""
        self.blob(digest).parent.mkdir(mode=0o700, exist_ok=True)
        self._write(self.blob(digest), content)

    # Layers

    def layer(self, diff_id: str) -> Layer | None:
        folder = self._layer_folder(diff_id)
        try:
            note: Any = json.loads((folder / _LAYER_NOTE).read_text())
            return Layer(diff_id, folder / _ROOT, tuple(note["implicit"]), int(note["size"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise errors.ProviderUnavailable(f"The layer {diff_id} in {folder} cannot be read: {error}") from None

    @contextlib.contextmanager
    def layer_draft(self) -> Iterator[Path]:
        """An empty directory for the files of a layer. It is locked, and removed unless it was kept."""
        draft = self.drafts / f"layer-{secrets.token_hex(8)}"
        with contextlib.ExitStack() as stack:
            with self.locked():  # until it is locked itself it looks abandoned
                draft.mkdir(mode=0o700)
                stack.enter_context(_locked(draft))
            stack.callback(remove, draft)
            (draft / _ROOT).mkdir(mode=0o755)
            yield draft / _ROOT

    def keep_layer(self, root: Path, made: UnpackedLayer) -> None:
        draft = root.parent
        note = {"implicit": made.implicit, "size": made.size, "inodes": made.inodes}
        (draft / _LAYER_NOTE).write_text(json.dumps(note))
        _sync(draft)  # after a loss of power a name must not lead to files without content
        try:
            draft.rename(self._layer_folder(made.diff_id))
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):  # another pull was quicker
                raise

    def _layer_folder(self, diff_id: str) -> Path:
        return self._layers / check_digest(diff_id).partition(":")[2]

    def own_layer(self, digest: str, version: int) -> Path:
        """For whoever makes sandboxes of the image of this digest; removed with it."""
        return self._own / f"{check_digest(digest).partition(':')[2]}-{version}"

    # Images

    def image(self, digest: str) -> Image:
        """By the digest of its manifest. Raises ImageNotFound if a part of it is missing."""
        try:
            manifest = read_manifest(self.read_blob(digest))
            if not isinstance(manifest, Manifest):
                raise errors.ImageInvalid(f"{digest} is an index, not an image.")
            config = ImageConfig.read(self.read_blob(manifest.config.digest))
        except FileNotFoundError:
            raise _incomplete(digest) from None
        layers = [self.layer(diff_id) for diff_id in config.diff_ids]
        if any(layer is None for layer in layers):
            raise _incomplete(digest)
        return Image(digest, manifest, config, tuple(layer for layer in layers if layer is not None))

    def find(self, reference: Reference) -> NamedImage | None:
        """Under exactly this name, or by the digest alone."""
        note = self._read_name(self._name_path(reference))
        if note is not None:
            return NamedImage(reference, self.image(note["digest"]), float(note["pulled_at"]))
        if reference.digest is not None:
            for named in self.names():
                if named[0].repository == reference.repository and named[1] == reference.digest:
                    return NamedImage(reference, self.image(reference.digest), named[2])
        return None

    def digest(self, reference: Reference) -> str | None:
        """That the name leads to now."""
        note = self._read_name(self._name_path(reference))
        return reference.digest if note is None else str(note["digest"])

    def require(self, reference: Reference) -> NamedImage:
        if (found := self.find(reference)) is None:
            raise errors.ImageNotFound(
                f"There is no image {reference.familiar!r} on this machine. Fetch it: paddock image pull "
                f"{reference.familiar}"
            )
        return found

    def names(self) -> list[tuple[Reference, str, float]]:
        """Every name, the digest that it leads to, and since when."""
        found = []
        for path in sorted(self._names.glob("*.json")):
            if (note := self._read_name(path)) is not None:
                found.append((Reference.parse(note["reference"]), note["digest"], float(note["pulled_at"])))
        return sorted(found, key=lambda each: str(each[0]))

    def name(self, reference: Reference, digest: str) -> None:
        """Called under a lease on all of its parts."""
        note = {"reference": str(reference), "digest": digest, "pulled_at": time.time()}
        self._write(self._name_path(reference), json.dumps(note).encode())

    def remove_name(self, reference: Reference) -> bool:
        with self.locked():
            try:
                self._name_path(reference).unlink()
            except FileNotFoundError:
                return False
            return True

    def _name_path(self, reference: Reference) -> Path:
        return self._names / f"{hashlib.sha256(str(reference).encode()).hexdigest()}.json"

    def _read_name(self, path: Path) -> dict[str, Any] | None:
        try:
            note: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except ValueError:
            raise errors.ProviderUnavailable(f"{path} cannot be read.") from None
        return note

    def _write(self, path: Path, content: bytes) -> None:
        """Under the lock, so that nobody takes the draft for an abandoned one."""
        draft = self.drafts / f"{secrets.token_hex(8)}.document"
        with self.locked():
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.rename(path)

    # What is in use

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """For moments only. Blocking."""
        with _locked(self.root):
            yield

    @contextlib.contextmanager
    def lease(self) -> Iterator[Lease]:
        path = self._leases / f"{secrets.token_hex(8)}.json"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield Lease(self, descriptor)
        finally:
            path.unlink(missing_ok=True)
            os.close(descriptor)

    def stand_on(self, folder: Path, image: Image) -> None:
        """Write down in the folder of a sandbox what must not be removed as long as this folder is there."""
        with self.locked():
            self.image(image.digest)  # it may just have been removed
            (folder / IN_USE).write_text(json.dumps({"digest": image.digest, "env": dict(image.config.env)}))

    def leased(self) -> set[str]:
        """What pulls in progress hold; leases of processes that are gone are removed. Under the lock."""
        held: set[str] = set()
        for path in self._leases.glob("*.json"):
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            try:
                if _try_lock(descriptor):
                    path.unlink(missing_ok=True)
                else:
                    held.update(json.loads(path.read_text() or "[]"))
            finally:
                os.close(descriptor)
        return held

    def all_blobs(self) -> Iterator[tuple[str, Path]]:
        for folder in self._blobs.iterdir():
            for path in folder.iterdir():
                yield f"{folder.name}:{path.name}", path

    def own_layers(self) -> Iterator[tuple[str, Path]]:
        for path in self._own.iterdir():
            yield f"sha256:{path.name.partition('-')[0]}", path

    def all_layers(self) -> Iterator[tuple[str, Path]]:
        for path in self._layers.iterdir():
            yield f"sha256:{path.name}", path


class Lease:
    """Digests of blobs and layers that nobody removes until this ends."""

    def __init__(self, store: ImageStore, descriptor: int) -> None:
        self._store = store
        self._descriptor = descriptor
        self._held: set[str] = set()

    def hold(self, digests: Collection[str]) -> None:
        """From now on what is there stays there."""
        self._held.update(digests)
        with self._store.locked():
            content = json.dumps(sorted(self._held)).encode()
            os.pwrite(self._descriptor, content, 0)  # it only grows
            os.ftruncate(self._descriptor, len(content))


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def try_lock(path: Path) -> int | None:
    """The descriptor of a draft that nobody works at; None where somebody does, or it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if _try_lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _sync(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
            raise OSError(ctypes.get_errno(), "syncfs")
    finally:
        os.close(descriptor)


def _incomplete(digest: str) -> errors.ImageNotFound:
    return errors.ImageNotFound(f"The image {digest} is not complete on this machine. Pull it again.")
