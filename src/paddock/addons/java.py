"""The add-on ``java``: Debian's JDK, the kernel for ``run_code`` in Java."""

from __future__ import annotations

import re
from pathlib import Path

from paddock import errors
from paddock.addons.debian import STEPS, make_links_relative, unpack_packages
from paddock.addons.progress import ProgressReporter
from paddock.addons.recipe import BuiltAddon, run

_PACKAGE = "default-jdk-headless"
_KEPT = re.compile(r"openjdk-\d+-(jdk|jre)-headless$")
_USELESS = re.compile(r"usr/share$|usr/lib/debug$|usr/lib/jvm/[^/]+/(jmods|man|demo)$")
_PROGRAMS = ("jar", "java", "javac", "jshell")
_CERTIFICATES = "lib/security/cacerts"
_HOST_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_IMPORT = """
import java.io.*;
import java.security.KeyStore;
import java.security.cert.*;

class Import {
    public static void main(String[] words) throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        int count = 0;
        try (InputStream bundle = new BufferedInputStream(new FileInputStream(words[0]))) {
            for (Certificate each : CertificateFactory.getInstance("X.509").generateCertificates(bundle))
                store.setCertificateEntry("ca" + count++, each);
        }
        try (OutputStream target = new FileOutputStream(words[1])) {
            store.store(target, "changeit".toCharArray());
        }
    }
}
"""
"""Debian's package generates Java's certificate store from the host's on installation. The password is Java's default.
"""


class Java:
    name = "java"
    summary = "A JDK: run_code in Java."
    steps = STEPS + 1
    cache_key: str | None = None
    """Not cached: the version is that of Debian today."""

    def make(self, folder: Path, say: ProgressReporter) -> BuiltAddon:
        root = folder / "root"
        found = unpack_packages((_PACKAGE,), root, say, kept=_KEPT.match, useless=_USELESS)
        make_links_relative(root)
        home = _home(root)
        (folder / "bin").mkdir()
        for name in _PROGRAMS:
            (folder / "bin" / name).symlink_to(Path("..", home.relative_to(folder), "bin", name))
        say.step("trying Java")
        _import_certificates(folder, home, say)
        run([folder / "bin/jshell", "--version"], folder, say)
        version = next(iter(found.values())).partition("-")[0]
        return BuiltAddon(version, {"JDK": version})


def _home(root: Path) -> Path:
    homes = [path.parents[1] for path in root.glob("usr/lib/jvm/*/bin/jshell") if not path.parents[1].is_symlink()]
    if len(homes) != 1:
        raise errors.AddonFailed("Debian's JDK holds no JShell where one was expected.")
    return homes[0]


def _import_certificates(folder: Path, home: Path, say: ProgressReporter) -> None:
    target = home / _CERTIFICATES
    target.unlink(missing_ok=True)
    if not _HOST_CERTIFICATES.is_file():
        say("no certificates: this server has no /etc/ssl/certs/ca-certificates.crt")
        return
    program = folder / "Import.java"
    program.write_text(_IMPORT)
    run([folder / "bin/java", program, _HOST_CERTIFICATES, target], folder, say)
    program.unlink()
