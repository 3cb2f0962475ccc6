"""Templates that are container images: their layers, below one of our own with what every sandbox needs."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from paddock import errors
from paddock.images.reference import Reference
from paddock.images.store import Image, ImageStore, in_use
from paddock.images.tree import LayerTree
from paddock.providers.local.identity_layer import make_identity
from paddock.providers.local.template import SUDO, LocalTemplate, Overlay

_FORMAT = 1
_FILES = ("etc/passwd", "etc/group", "etc/pip.conf")
"""Of an image, that its own layer has to continue."""


class ImageTemplates:
    def __init__(self, store: ImageStore, privileged: bool) -> None:
        self._store = store
        self._privileged = privileged
        self._known: dict[str, LocalTemplate] = {}

    def names(self) -> list[str]:
        return [reference.familiar for reference, _, _ in self._store.names()]

    def has(self, template_id: str) -> bool:
        try:
            return self._store.find(Reference.parse(template_id)) is not None
        except (errors.ImageInvalid, errors.ImageNotFound):
            return False

    def of_sandbox(self, template_id: str, folder: Path) -> LocalTemplate | None:
        """The image that this sandbox was made of, whatever the name leads to by now. None: it was made of none."""
        known = in_use(folder)
        return None if known is None else self._template(template_id, self._store.image(known.digest))

    def begin(self, template_id: str, folder: Path) -> LocalTemplate | None:
        """For a new sandbox: the image of this name, which is not removed from now on. None: there is none."""
        try:
            found = self._store.find(Reference.parse(template_id))
        except errors.ImageInvalid:
            return None
        if found is None:
            return None
        self._store.stand_on(folder, found.image)
        return self._template(template_id, found.image)

    def is_outdated(self, template_id: str, folder: Path) -> bool:
        """Whether the name leads to another image than the one that a machine was made of in advance."""
        known = in_use(folder)
        return known is not None and known.digest != self._store.digest(Reference.parse(template_id))

    def _template(self, template_id: str, image: Image) -> LocalTemplate:
        known = self._known.get(image.digest)
        if known is None or not known.overlays[0].lowers[0].is_dir():  # it may have been removed and pulled again
            known = self._known[image.digest] = self._make(template_id, image)
        return known

    def _make(self, template_id: str, image: Image) -> LocalTemplate:
        tree = LayerTree(image.layers)
        own = self._store.own_layer(image.digest, _FORMAT)
        if not own.is_dir():
            _make_own_layer(own, tree, self._privileged)
        lowers = (own, *(layer.root for layer in reversed(image.layers)))
        sudo = tuple(path for path in SUDO if tree.find(path) is not None)
        return LocalTemplate(template_id, (Overlay("root", "/", lowers),), (), None, _python(tree), sudo=sudo)


def _make_own_layer(own: Path, tree: LayerTree, privileged: bool) -> None:
    """Continues what the image has of the files that it replaces, whichever layers these are in."""
    with tempfile.TemporaryDirectory() as folder:
        seen = Path(folder)
        pythons = [name for name in tree.names("etc") if name.startswith("python3")]
        for path in (*_FILES, *(f"etc/{name}/sitecustomize.py" for name in pythons)):
            if (text := tree.text(path)) is not None:
                (seen / path).parent.mkdir(parents=True, exist_ok=True)
                (seen / path).write_text(text)
        if tree.find("etc/apt") is not None:
            (seen / "etc/apt").mkdir(parents=True)
        make_identity(own, seen, privileged, lambda draft: _restore_attributes(draft, tree, privileged))


def _restore_attributes(draft: Path, tree: LayerTree, privileged: bool) -> None:
    """Of directories that a layer has only because of what it has in them: the topmost one's attributes are seen."""
    for path, status in sorted(tree.hidden_attributes(), key=lambda found: found[0]):
        place = draft
        for part in path.split("/"):
            place = place / part
            if place.is_dir():
                continue
            above = tree.find(str(place.relative_to(draft)))
            if above is None:
                break
            _make_like(place, above.lstat(), privileged)
        _make_like(place, status, privileged)


def _make_like(place: Path, status: os.stat_result, privileged: bool) -> None:
    place.mkdir(exist_ok=True)
    if privileged:
        os.chown(place, status.st_uid, status.st_gid)
    place.chmod(stat.S_IMODE(status.st_mode))
    os.utime(place, ns=(status.st_atime_ns, status.st_mtime_ns))


def _python(tree: LayerTree) -> str | None:
    """As what ``python`` is found, where there is only ``python3``."""
    if any(tree.find(path) is not None for path in ("usr/bin/python", "usr/local/bin/python")):
        return None
    return "/usr/bin/python3" if tree.find("usr/bin/python3") is not None else None
