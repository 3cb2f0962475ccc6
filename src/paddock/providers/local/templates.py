"""Templates: the read-only layers that a sandbox starts from. ``host`` needs nothing; others are directories or images.

A directory in ``<home>/templates/<name>`` is a root file system. It is never changed; what every sandbox needs and it
lacks (the user ``user``, ``/workspace``) comes from a small layer of its own on top, made when it is first used.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import threading
import time
from dataclasses import replace
from pathlib import Path

from paddock import errors
from paddock.images.store import ImageStore
from paddock.providers.local import host_root, packages, private_files
from paddock.providers.local.identity_layer import make_identity
from paddock.providers.local.image_templates import ImageTemplates
from paddock.providers.local.template import LocalTemplate, Overlay

HOST = "host"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_HIDDEN_GOOD_SECONDS = 60.0
_IDENTITY_FORMAT = 2
_hidden_at: dict[Path, float] = {}
"""When this process last looked for private files of the host, for each layer that hides them."""
_last_look: tuple[float, list[Path]] = (-math.inf, [])
"""When it began, and what was found. It reads the status of every file below ``/usr``: half a second on a processor."""
_looking = threading.Lock()


class LocalTemplates:
    def __init__(self, root: Path, made: Path, images: ImageStore, privileged: bool) -> None:
        self._root = root
        self._images = ImageTemplates(images, privileged)
        self._made = made
        self._privileged = privileged
        self._version = host_root.version()
        self._known: dict[str, LocalTemplate] = {}
        self._host_files: tuple[str, ...] = ()
        self._host_version = ""
        self._making_host = threading.Lock()

    def names(self) -> list[str]:
        """``host`` first: the default."""
        others = [path.name for path in self._root.iterdir() if _is_template(path)] if self._root.is_dir() else []
        directories = sorted(name for name in others if _NAME.fullmatch(name) and name != HOST)
        return [HOST, *directories, *self._images.names()]

    def has(self, template_id: str) -> bool:
        return template_id == HOST or self._is_directory(template_id) or self._images.has(template_id)

    def prepare(self, template_id: str, folder: Path) -> LocalTemplate:
        """For the sandbox of this folder."""
        if (template := self._images.of_sandbox(template_id, folder)) is not None:
            return template
        if template_id == HOST:
            with self._making_host:  # hundreds of files: of two machines that are started at once, one makes them
                return self._host_with_copies()
        if self._is_directory(template_id):
            if template_id not in self._known:
                self._known[template_id] = self._directory(template_id)
            return self._known[template_id]
        if (template := self._images.begin(template_id, folder)) is not None:
            return template
        raise errors.TemplateNotFound(
            f"There is no template {template_id!r}. There are: {', '.join(self.names())}. "
            f"`paddock template build debian` makes one, and `paddock image pull {template_id}` fetches an image."
        )

    def remove_unused(self) -> None:
        """What was made of the host as it was once. Only while nothing runs: sandboxes stand on these layers."""
        for path in self._made.glob("host-*"):
            if not path.name.endswith(self._version):
                shutil.rmtree(path)

    def hide_private_files(self, max_age_s: float = 0.0) -> None:
        """Those that the host has below ``/usr``: the layer that hides them may be older than they are. Where this
        process has looked for them within ``max_age_s``, what it found then is taken."""
        hidden = self._made / f"host-usr-{self._version}"
        if not self._privileged:
            return
        looked_at, found = _private_files_of_host(max_age_s)
        if hidden.is_dir():
            host_root.hide_more(hidden, Path("/usr"), found)
        else:
            host_root.make_hiding(hidden, Path("/usr"), found)
        _hidden_at[hidden] = max(looked_at, _hidden_at.get(hidden, -math.inf))

    def is_outdated(self, template_id: str, made_at: float, folder: Path) -> bool:
        """Whether something of the host has become private since a machine was made, which might still see it; or the
        name of its image leads to another one."""
        hidden = self._made / f"host-usr-{self._version}"
        if template_id == HOST:
            return hidden in _hidden_at and hidden.stat().st_mtime > made_at
        return self._images.is_outdated(template_id, folder)

    def _host_with_copies(self) -> LocalTemplate:
        """Made once for the host as it is: an upgrade of a library makes another one for those that start after it."""
        top, known = Path("/"), self._known.get(HOST)
        if known is not None and private_files.version(top, self._host_files) == self._host_version:
            return known  # to look for the files anew would take longer than all else
        own, shared = private_files.of_each_sandbox(top), private_files.of_all_sandboxes(top)
        version = private_files.version(top, (*own, *shared))
        copies = self._made / f"host-files-{version}-{self._version}"
        if not copies.is_dir():
            private_files.make(copies, top, shared)
        template = private_files.above(replace(self._host(), own_files=own), copies, shared)
        self._known[HOST], self._host_files, self._host_version = template, (*own, *shared), version
        return template

    def _host(self) -> LocalTemplate:
        made = self._made / f"host-etc-{self._version}"
        if not made.is_dir():
            host_root.make(made, self._privileged)
        system = [f"/{name}" for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32") if _is_folder(f"/{name}")]
        overlays = [Overlay("root", "/", (made,))]
        if self._privileged:
            hidden = self._made / f"host-usr-{self._version}"
            if not hidden.is_dir() or time.monotonic() - _hidden_at.get(hidden, -math.inf) > _HIDDEN_GOOD_SECONDS:
                self.hide_private_files(_HIDDEN_GOOD_SECONDS)
            overlays.append(Overlay("usr", "/usr", (hidden, Path("/usr"))))
            if Path("/var/lib/dpkg/status").is_file():
                overlays.append(Overlay("dpkg", "/var/lib/dpkg", (Path("/var/lib/dpkg"),)))
        else:
            system.append("/usr")
            if _is_folder("/usr/local"):
                own = self._made / f"host-local-{self._version}"
                if not own.is_dir():
                    packages.make_local(own, Path("/usr"))
                overlays.append(Overlay("local", "/usr/local", (own, Path("/usr/local"))))
        return LocalTemplate(HOST, tuple(overlays), tuple(system), Path("/"), _python(Path("/")))

    def _is_directory(self, template_id: str) -> bool:
        return _NAME.fullmatch(template_id) is not None and _is_template(self._root / template_id)

    def _directory(self, template_id: str) -> LocalTemplate:
        root = self._root / template_id
        if not self._privileged and root.stat().st_uid != os.geteuid():
            raise errors.ProviderRefused(
                f"The template {template_id!r} belongs to another user of this machine. "
                "Without root its files must belong to the user who runs Paddock."
            )
        identity = self._made / f"identity-{_IDENTITY_FORMAT}-{template_id}-{int(root.stat().st_mtime)}"
        if not identity.is_dir():
            make_identity(identity, root, self._privileged)
        own = private_files.of_each_sandbox(root)
        return LocalTemplate(template_id, (Overlay("root", "/", (identity, root)),), (), root, _python(root), own)


def _private_files_of_host(max_age_s: float) -> tuple[float, list[Path]]:
    """When it was looked for them, and which there were. Machines that are made at the same time share one look."""
    global _last_look
    wanted = time.monotonic() - max_age_s
    with _looking:
        if _last_look[0] < wanted:
            began = time.monotonic()
            _last_look = began, host_root.hidden_below(Path("/usr"))
        return _last_look


def _is_template(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(".")


def _is_folder(path: str) -> bool:
    return Path(path).is_dir() and not Path(path).is_symlink()


def _python(root: Path) -> str | None:
    binaries = root / "usr/bin"
    if (binaries / "python").exists() or (root / "usr/local/bin/python").exists():
        return None
    return "/usr/bin/python3" if (binaries / "python3").is_symlink() or (binaries / "python3").exists() else None
