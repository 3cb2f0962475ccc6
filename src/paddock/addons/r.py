"""The add-on ``r``: Debian's R with IRkernel, the kernel for ``run_code`` in R."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from paddock import errors
from paddock.addons.debian import STEPS, make_links_relative, unpack_packages
from paddock.addons.progress import ProgressReporter
from paddock.addons.recipe import BuiltAddon, run

_PACKAGES = ("r-base-core", "r-cran-irkernel")
_KEPT = re.compile(r"lib|r-|zlib1g$|fontconfig-config$|fonts-dejavu-core$")
# The C library must be the sandbox's own. The other packages are programs and their dependencies.
_LEFT = re.compile(r"libc6$|libc-bin$|.*-bin$|libpaper-utils$|libselinux1$|libmount1$|libblkid1$")
_USELESS = re.compile(r"usr/(bin|sbin)$|usr/share/(doc|man|locale|lintian|bug|icons|applications|X11)$|var$")
_HOME = "usr/lib/R"
_MOVED = {
    "R_HOME_DIR=/usr/lib/R\n": 'R_HOME_DIR=$(dirname "$(dirname "$(readlink -f "$0")")")\n',
    "=/usr/share/R/": '="${R_HOME_DIR}"/../../share/R/',
}
"""Replacements in R's start script, which contains absolute paths."""
_LIBRARIES = """
_paddock_root=${R_HOME}/../../..
for _paddock_part in "${_paddock_root}/usr/lib/"*-linux-gnu; do
  LD_LIBRARY_PATH="${LD_LIBRARY_PATH}:${_paddock_part}/blas:${_paddock_part}/lapack:${_paddock_part}"
done
for _paddock_part in "${_paddock_root}/lib/"*-linux-gnu; do
  LD_LIBRARY_PATH="${LD_LIBRARY_PATH}:${_paddock_part}"
done
export LD_LIBRARY_PATH
[ -e /etc/fonts/fonts.conf ] || export FONTCONFIG_FILE="${_paddock_root}/fonts.conf"
"""
_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
  <dir prefix="relative">usr/share/fonts</dir>
  <include ignore_missing="yes" prefix="relative">etc/fonts/conf.d</include>
  <cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
"""
_TRY = 'library(IRkernel); invisible(svd(diag(2))); png(tempfile(fileext = ".png")); plot(1); invisible(dev.off())'


class R:
    name = "r"
    summary = "R with IRkernel: run_code in R."
    steps = STEPS + 1
    cache_key: str | None = None
    """Not cached: the version is that of Debian today."""

    def make(self, folder: Path, say: ProgressReporter) -> BuiltAddon:
        root = folder / "root"
        found = unpack_packages(_PACKAGES, root, say, kept=_is_kept, useless=_USELESS)
        _move(root)
        (folder / "bin").mkdir()
        (folder / "bin/R").symlink_to(f"../root/{_HOME}/bin/R")
        say.step("trying R")
        run([folder / "bin/R", "--slave", "--vanilla", "-e", _TRY], folder, say)
        version, kernel = (found[name].partition("-")[0] for name in _PACKAGES)
        return BuiltAddon(f"{version}-irkernel-{kernel}", {"R": version, "IRkernel": kernel})


def _is_kept(name: str) -> bool:
    return _KEPT.match(name) is not None and _LEFT.match(name) is None


def _move(root: Path) -> None:
    """Make R relocatable: it is built for ``/usr/lib/R``."""
    shutil.copy(root / _HOME / "etc/Renviron.ucf", root / "etc/R/Renviron")  # done by Debian's package on installation
    make_links_relative(root)
    start = root / _HOME / "bin/R"
    text = start.read_text()
    for before, after in _MOVED.items():
        if before not in text:
            raise errors.AddonFailed(f"The start script of this Debian's R is not supported: no {before.strip()!r}.")
        text = text.replace(before, after)
    start.write_text(text)
    paths = root / "etc/R/ldpaths"
    paths.write_text(paths.read_text() + _LIBRARIES)
    (root / "fonts.conf").write_text(_FONTS)
