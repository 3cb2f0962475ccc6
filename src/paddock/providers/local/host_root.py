"""The root of template ``host``: a small tree beside the host's ``/usr``, with nothing of its secrets.

Only what is named here is taken from the host's ``/etc``, and of that only what every user of the host may read. Human
users, host name, network, keys, credentials and services of the host stay outside.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from paddock import __version__
from paddock.providers.local import packages
from paddock.providers.local.made_aside import made_aside

_FORMAT = 3
USER, USER_ID = "user", 1000
HOSTNAME = "sandbox"
# fmt: off
_ETC = [
    "X11", "adduser.conf", "alternatives", "bash.bashrc", "bash_completion.d", "ca-certificates",
    "ca-certificates.conf", "chromium", "chromium.d", "debconf.conf", "debian_version", "deluser.conf", "dpkg",
    "fonts", "gai.conf", "host.conf", "inputrc", "issue", "issue.net", "java-11-openjdk", "java-17-openjdk",
    "java-21-openjdk", "java-25-openjdk", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "locale.alias",
    "localtime", "login.defs", "lsb-release", "magic", "magic.mime", "mime.types", "mke2fs.conf", "nanorc",
    "networks", "nsswitch.conf", "os-release", "pam.conf", "pam.d", "perl", "pki", "profile", "profile.d",
    "protocols", "python3", "rpc", "security", "services", "shells", "skel", "ssl/certs", "ssl/openssl.cnf",
    "terminfo", "timezone", "vim", "xattr.conf", "xdg/mimeapps.list", "xml",
]
_APT = ["apt/apt.conf.d", "apt/keyrings", "apt/preferences.d", "apt/trusted.gpg.d", "apt/trusted.gpg"]
_SOURCES = ["apt/sources.list", "apt/sources.list.d"]
_CREDENTIALS = re.compile(rb"://[^/\s]*@")
_TOP = ["etc", "home", "mnt", "opt", "proc", "run", "srv", "sys", "dev", "tmp", "var", "workspace", "usr", "media"]
_VAR = [
    "cache/apt/archives/partial", "lib/apt/lists/partial", "lib/dpkg", "lib/misc", "local", "log", "mail",
    "opt", "spool", "tmp",
]
# fmt: on
_OPEN_FOLDER = stat.S_IROTH | stat.S_IXOTH
_HUMAN = range(1000, 65_534)


def make(root: Path, privileged: bool) -> Path:
    """The whole tree. Files of ``user`` have its id where we may give it to them."""
    with made_aside(root) as draft:
        _fill(draft, privileged)
    return root


def _fill(draft: Path, privileged: bool) -> None:
    for name in _TOP:
        _folder(draft / name, 0o755)
    _system_links(draft)
    _etc(draft / "etc")
    for name in _VAR:
        _folder(draft / "var" / name, 0o755)
    _link("/run", draft / "var/run")
    _link("/run/lock", draft / "var/lock")
    for path in (draft / "tmp", draft / "var/tmp"):
        path.chmod(0o1777)
    _folder(draft / "root", 0o700)
    _dot_files(draft / "root")
    _folder(draft / "home" / USER, 0o755)
    _dot_files(draft / "home" / USER)
    if privileged:
        _give(draft / "workspace", USER_ID)
        _give(draft / "home" / USER, USER_ID)


def version() -> str:
    """Another one when Paddock, or what is taken from the host, has changed."""
    seen = hashlib.sha256(f"{__version__} {_FORMAT}".encode())
    for path in (
        "/etc",
        "/usr",
        "/usr/bin",
        *(f"/etc/{name}" for name in (*_ETC, *_APT, *_SOURCES, "passwd", "group")),
    ):
        with contextlib.suppress(OSError):
            seen.update(f"{path} {os.stat(path).st_mtime_ns}".encode())  # noqa: PTH116
    return seen.hexdigest()[:16]


def hidden_below(top: Path) -> list[Path]:
    """What not every user of the host may read: through an id-mapped mount the sandbox's root could.

    There may be hundreds of thousands of files: nothing is made of one that is open to all."""
    found: list[Path] = []
    folders = [str(top)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        continue
                    mode = entry.stat(follow_symlinks=False).st_mode
                    if stat.S_ISDIR(mode):
                        if mode & _OPEN_FOLDER == _OPEN_FOLDER:
                            folders.append(entry.path)
                        else:
                            found.append(Path(entry.path))
                    elif not mode & stat.S_IROTH and not _only_executable(mode):
                        found.append(Path(entry.path))
        except (FileNotFoundError, PermissionError):
            continue
    return found


def make_hiding(root: Path, top: Path, hidden: Iterable[Path]) -> Path:
    """A layer that hides those files: overlayfs takes a device 0/0 to mean that there is nothing."""
    with made_aside(root) as draft:
        for path in hidden:
            place = draft / path.relative_to(top)
            place.parent.mkdir(parents=True, exist_ok=True)
            os.mknod(place, stat.S_IFCHR, os.makedev(0, 0))
        for folder in (path for path in draft.rglob("*") if path.is_dir()):
            shutil.copystat(top / folder.relative_to(draft), folder)  # a directory in two layers is the upper one's
        shutil.copystat(top, draft)
    return root


def hide_more(root: Path, top: Path, hidden: Iterable[Path]) -> None:
    """Add to such a layer what has become private since it was made. Sandboxes that start from now on do not see it.

    The layer's own time says when something was added.
    """
    for path in hidden:
        place = root / path.relative_to(top)
        with contextlib.suppress(NotADirectoryError, FileExistsError):  # hidden already, or just now by another server
            _make_folders(place.parent, root, top)
            if place.is_dir():  # for something in it; now it is itself what not everybody may read
                shutil.rmtree(place)
            os.mknod(place, stat.S_IFCHR, os.makedev(0, 0))
            os.utime(root)


def _make_folders(folder: Path, root: Path, top: Path) -> None:
    missing = [one for one in (folder, *folder.parents) if one.is_relative_to(root) and not one.exists()]
    for one in reversed(missing):
        one.mkdir()
        shutil.copystat(top / one.relative_to(root), one)


def _only_executable(mode: int) -> bool:
    """A setuid program that others may run but not read holds no secret."""
    return stat.S_ISREG(mode) and bool(mode & stat.S_IXOTH)


def _system_links(root: Path) -> None:
    """``/bin`` and friends as the host has them; those that are directories there are mounted later."""
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        host = Path("/", name)
        if host.is_symlink():
            _link(str(host.readlink()), root / name)
        elif host.is_dir():
            _folder(root / name, 0o755)


def _etc(etc: Path) -> None:
    host = Path("/etc")
    names = [*_ETC, *_APT, *(path.name for path in host.glob("python3.*"))]
    for name in names:
        _copy_public(host / name, etc / name)
    for name in _SOURCES:
        _copy_public(host / name, etc / name, without_credentials=True)
    user = f"{USER}:x:{USER_ID}:{USER_ID}:{USER}:/home/{USER}:/bin/bash"
    _write(etc / "passwd", _users(host / "passwd", ["root:x:0:0:root:/root:/bin/bash", user], emptied=4))
    _write(etc / "group", _users(host / "group", ["root:x:0:", f"{USER}:x:{USER_ID}:"], emptied=3))
    _write(etc / "shadow", f"root:*:19000:0:99999:7:::\n{USER}:*:19000:0:99999:7:::\n", 0o640)
    write_network_files(etc)
    _write(etc / "machine-id", "")
    _write(etc / "fstab", "")
    _link("/proc/self/mounts", etc / "mtab")
    packages.configure(etc)
    if (etc / "apt").is_dir():
        _folder(etc / "apt/apt.conf.d", 0o755)
        # Its own sandbox user cannot reach the proxy's settings, and there is nothing left to protect here.
        _write(etc / "apt/apt.conf.d/99paddock", 'APT::Sandbox::User "root";\n')


def _users(host: Path, own: Sequence[str], emptied: int) -> str:
    """Entries of the host's system users or groups, without what stands in one field, below our own."""
    lines = list(own)
    for line in _lines(host):
        fields = line.split(":")
        if len(fields) == own[0].count(":") + 1 and fields[0] not in ("root", USER) and int(fields[2]) not in _HUMAN:
            lines.append(":".join([*fields[:emptied], "", *fields[emptied + 1 :]]))
    return "\n".join(lines) + "\n"


def write_network_files(etc: Path) -> None:
    _write(etc / "hostname", f"{HOSTNAME}\n")
    _write(etc / "hosts", f"127.0.0.1\tlocalhost {HOSTNAME}\n::1\tlocalhost ip6-localhost ip6-loopback\n")
    _write(etc / "resolv.conf", "nameserver 127.0.0.53\noptions timeout:2 attempts:1\n")


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _copy_public(source: Path, target: Path, without_credentials: bool = False) -> None:
    if source.is_symlink():
        _link(str(source.readlink()), target)
        return
    try:
        mode = source.lstat().st_mode
    except OSError:
        return
    if not mode & stat.S_IROTH:
        return
    if stat.S_ISDIR(mode):
        _folder(target, 0o755)
        for entry in sorted(source.iterdir()):
            _copy_public(entry, target / entry.name, without_credentials)
    elif stat.S_ISREG(mode):
        content = source.read_bytes()
        if without_credentials and _CREDENTIALS.search(content):
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(stat.S_IMODE(mode) & 0o755 | 0o644)


def _dot_files(home: Path) -> None:
    for name in (".bashrc", ".profile"):
        _copy_public(Path("/etc/skel", name), home / name)


def _give(path: Path, owner: int) -> None:
    os.chown(path, owner, owner)
    if path.is_dir():
        for entry in path.iterdir():
            os.lchown(entry, owner, owner)


def _folder(path: Path, mode: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)


def _link(text: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(text)


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.write_text(text)
    path.chmod(mode)
