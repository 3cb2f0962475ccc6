"""Templates: the read-only layers that a sandbox starts from. ``host`` needs nothing; others are directories.

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
from paddock.providers.local import host_root, packages, private_files
from paddock.providers.local.made_aside import made_aside
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
    def __init__(self, root: Path, made: Path, privileged: bool) -> None:
        self._root = root
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
        return [HOST, *sorted(name for name in others if _NAME.fullmatch(name) and name != HOST)]

    def prepare(self, template_id: str) -> LocalTemplate:
        if template_id == HOST:
            with self._making_host:  # hundreds of files: of two machines that are started at once, one makes them
                return self._host_with_copies()
        if (known := self._known.get(template_id)) is not None:
            return known
        if _NAME.fullmatch(template_id) and _is_template(self._root / template_id):
            template = self._directory(template_id)
        else:
            raise errors.TemplateNotFound(
                f"There is no template {template_id!r}. There are: {', '.join(self.names())}. "
                "`paddock template build debian` makes one."
            )
        self._known[template_id] = template
        return template

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

    def is_outdated(self, template_id: str, made_at: float) -> bool:
        """Whether something of the host has become private since a machine was made, which might still see it."""
        hidden = self._made / f"host-usr-{self._version}"
        return template_id == HOST and hidden in _hidden_at and hidden.stat().st_mtime > made_at

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


def make_identity(identity: Path, root: Path, privileged: bool) -> None:
    """What a sandbox needs and a root file system may lack."""
    with made_aside(identity) as draft:
        for name in ("etc", "proc", "sys", "dev", "run", "workspace", f"home/{host_root.USER}"):
            (draft / name).mkdir(mode=0o755, parents=True)
        (draft / "tmp").mkdir(mode=0o755)
        (draft / "tmp").chmod(0o1777)
        user, number = host_root.USER, host_root.USER_ID
        etc = draft / "etc"
        passwd = _with_entry(root / "etc/passwd", user, f"{user}:x:{number}:{number}:{user}:/home/{user}:/bin/bash")
        (etc / "passwd").write_text(passwd)
        (etc / "group").write_text(_with_entry(root / "etc/group", user, f"{user}:x:{number}:"))
        host_root.write_network_files(etc)
        packages.configure(etc, root / "etc")
        if (root / "etc/apt").is_dir():
            (etc / "apt/apt.conf.d").mkdir(parents=True)
            (etc / "apt/apt.conf.d/99paddock").write_text('APT::Sandbox::User "root";\n')
        if privileged:
            for path in (draft / "workspace", draft / "home" / user):
                os.chown(path, number, number)


def _with_entry(path: Path, name: str, entry: str) -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        lines = ["root:x:0:0:root:/root:/bin/sh"] if path.name == "passwd" else ["root:x:0:"]
    number = entry.split(":")[2]
    kept = [line for line in lines if line.split(":")[0] != name and line.split(":")[2:3] != [number]]
    return "\n".join([*kept, entry]) + "\n"


def _is_template(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(".")


def _is_folder(path: str) -> bool:
    return Path(path).is_dir() and not Path(path).is_symlink()


def _python(root: Path) -> str | None:
    binaries = root / "usr/bin"
    if (binaries / "python").exists() or (root / "usr/local/bin/python").exists():
        return None
    return "/usr/bin/python3" if (binaries / "python3").is_symlink() or (binaries / "python3").exists() else None
