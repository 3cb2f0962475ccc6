"""The add-on ``browser``: Playwright, fonts for all scripts, and Chromium if the host has none that sandboxes can
see."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from paddock import errors
from paddock.addons import debian, npm
from paddock.addons.debian import unpack_packages
from paddock.addons.progress import ProgressReporter
from paddock.addons.recipe import BuiltAddon

_PACKAGES = ("chromium",)
_FONT_PACKAGES = ("fonts-liberation", "fonts-noto-color-emoji", "fonts-wqy-zenhei")
"""Latin, Greek and Cyrillic; emoji; Chinese, Japanese and Korean in a package a seventh the size of Noto's."""
_FONTS_REVISION = "fonts1"
"""Part of the add-on's version, so that versions built before the fonts are replaced."""
_KEPT = re.compile(r"lib|chromium|fontconfig-config|zlib1g")
# The C library must be the sandbox's own, because it must match the loader. The other packages are for programs besides
# the browser.
_LEFT = re.compile(
    r"libc6$|libc-bin|libcrypt1|libpam|libperl|.*-perl$|libllvm|libz3|libgl1-mesa|libglx-mesa|libsystemd-shared"
    r"|libcryptsetup|libdevmapper|libkmod|libsemanage|libgtk-3-common|libsensors|libc-l10n"
)
_USELESS = re.compile(
    r"usr/share/(doc|man|locale|lintian|bug|icons|applications|info|menu|appdata)$|var$|etc/(pulse|dconf)$"
)
_START = """#!/bin/sh
# Debian's Chromium where it was unpacked, with its own libraries before the sandbox's.
here=$(dirname "$(readlink -f "$0")")/../chromium
libraries=$here/usr/lib/@TRIPLET@
export LD_LIBRARY_PATH="$libraries:$libraries/pulseaudio:$libraries/nss${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export FONTCONFIG_FILE="${FONTCONFIG_FILE:-$here/../fonts.conf}"
exec "$here/usr/lib/chromium/chromium" "$@"
"""
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <include ignore_missing="yes">/etc/fonts/fonts.conf</include>
  <dir>/usr/share/fonts</dir>
  <dir prefix="relative">fonts/usr/share/fonts</dir>
  <include ignore_missing="yes" prefix="relative">chromium/etc/fonts/conf.d</include>
  <cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
"""
_TRIPLETS = {"x64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}
_SYSTEM = "/usr/local/bin:/usr/bin:/bin"


class Browser:
    name = "browser"
    summary = "Chromium, driven by Playwright: the browser_* tools and their live view."
    cache_key: str | None = None
    """Not cached: Chromium's version is that of Debian today."""

    def __init__(self, *, full: bool = False) -> None:
        """``full``: include Chromium and Node.js even if the host has them, for templates without them."""
        self._full = full

    @property
    def steps(self) -> int:
        """npm; then fonts, and Chromium with a test run, if Debian packages are available."""
        if not debian.available():
            return 1
        return 1 + debian.STEPS + (debian.STEPS + 1 if self._own_chromium else 0)

    @property
    def _own_chromium(self) -> bool:
        return self._full or shutil.which("chromium", path=_SYSTEM) is None

    def make(self, folder: Path, say: ProgressReporter) -> BuiltAddon:
        own_node = self._full or shutil.which("node", path=_SYSTEM) is None
        own_chromium = self._own_chromium
        npm.install(self.name, folder, say, own_node=own_node)
        shutil.rmtree(folder / "node_modules/playwright-core/lib/vite", ignore_errors=True)  # the trace viewer
        playwright = npm.version(folder, "playwright-core")
        fonts = self._fonts(folder, say)
        version, parts = f"{playwright}-{_FONTS_REVISION}", {"playwright": playwright, "fonts": fonts}
        if not own_chromium:
            return BuiltAddon(version, {**parts, "chromium": "the host's"})
        chromium = self._chromium(folder, say)
        return BuiltAddon(f"{version}-chromium-{chromium}", {**parts, "chromium": chromium})

    def _fonts(self, folder: Path, say: ProgressReporter) -> str:
        """Install fonts, so that screenshots show pages in any script regardless of the host's or template's fonts."""
        (folder / "fonts.conf").write_text(_FONTS)
        if not debian.available():
            say("no fonts for Chinese, Japanese, Korean and emoji: they come from Debian, which this server is not")
            return "the host's"
        found = unpack_packages(
            _FONT_PACKAGES, folder / "fonts", say, kept=_FONT_PACKAGES.__contains__, useless=_USELESS
        )
        return ", ".join(f"{name} {found[name]}" for name in _FONT_PACKAGES)

    def _chromium(self, folder: Path, say: ProgressReporter) -> str:
        target = folder / "chromium"
        found = unpack_packages(_PACKAGES, target, say, kept=_is_kept, useless=_USELESS)
        if not (target / "usr/lib/chromium/chromium").is_file():
            raise errors.AddonFailed(
                "The package `chromium` of this system holds no browser (Ubuntu's is a snap). Install Chromium as "
                "/usr/bin/chromium on the server, or use a template that has it; then install the add-on again."
            )
        (folder / "bin").mkdir(exist_ok=True)
        start = folder / "bin/chromium"
        start.write_text(_START.replace("@TRIPLET@", _TRIPLETS[npm.machine()]))
        start.chmod(0o755)
        _try(start, say)
        return found["chromium"].partition("-")[0]


def _is_kept(name: str) -> bool:
    return _KEPT.match(name) is not None and _LEFT.match(name) is None


def _try(start: Path, say: ProgressReporter) -> None:
    """Start Chromium once, so that a missing library is found here and not in a sandbox."""
    say.step("trying Chromium")
    done = subprocess.run([start, "--version"], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise errors.AddonFailed(f"Chromium was unpacked and does not start: {done.stderr.strip()[-500:]}")
