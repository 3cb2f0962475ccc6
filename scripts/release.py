"""Builds what a release consists of into ``dist/``, and tries it: ``make release``.

Built from the commit, not from the files that lie around it: two server wheels (x86-64 and arm64, their programs
compiled by zig), the client's wheel, the source distribution and the checksums. Then each wheel is installed in clean
environments and used (``tests/packaging``). Nothing is published: ``.github/workflows/release.yml`` does that with what
was tried.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
ARCHITECTURES = ("x86_64", "aarch64")


def main() -> int:
    version = _version()
    if problem := _not_ready(version):
        _say(problem)
        return 1
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="paddock-release-") as folder:
        tree = Path(folder)
        packed = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", tree], input=packed, check=True)
        for architecture in ARCHITECTURES:
            _say(f"building the server for {architecture}")
            _build(tree, "wheel", PADDOCK_ARCHITECTURE=architecture)
        _say("building the client and the source distribution")
        _build(tree / "client", "wheel")
        _build(tree, "sdist")
    for file in sorted(DIST.iterdir()):
        _say(f"  {file.name}: {file.stat().st_size / 1e6:.1f} MB")
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(DIST.iterdir()))
    (DIST / "SHA256SUMS").write_text(sums)
    _say("trying them in clean environments (some minutes)")
    environment = {**os.environ, "PADDOCK_TEST_DIST": str(DIST), "PADDOCK_TEST_ALL": "1"}
    tests = [sys.executable, "-m", "pytest", "-q", "tests/packaging", *sys.argv[1:]]
    if subprocess.run(tests, cwd=ROOT, env=environment, check=False).returncode:
        _say("do not publish these")
        return 1
    _say(f"{version} is built and tried, and lies in dist/")
    return 0


def _version() -> str:
    """It is written in one place only."""
    return re.findall(r'^__version__ = "(.+)"$', (ROOT / "src/paddock/__init__.py").read_text(), re.MULTILINE)[0]


def _not_ready(version: str) -> str | None:
    tag = os.environ.get("RELEASE_TAG")
    if tag and tag != f"v{version}":
        return f"the tag is {tag}, and the version in src/paddock/__init__.py is {version}: change one of them."
    if not re.search(rf"^## {re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE):
        return f"CHANGELOG.md has no section for {version}: add one."
    changed = subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True)
    if changed.stdout:
        return f"there are changes that are not committed, and would not be in it:\n{changed.stdout.rstrip()}"
    return None


def _build(folder: Path, target: str, **settings: str) -> None:
    committed = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    environment = {name: value for name, value in os.environ.items() if name != "PADDOCK_CC"}
    environment |= {"SOURCE_DATE_EPOCH": committed, **settings}
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", DIST],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        check=True,
    )


def _say(text: str) -> None:
    sys.stderr.write(f"paddock: {text}\n")


if __name__ == "__main__":
    raise SystemExit(main())
