"""Installs what a lock file names, and says how far it has come: pip alone is silent for minutes, or says too much.

On a terminal one line is written over and over; elsewhere there is a line for every tenth package. Everything that pip
says goes to a log, which is named where something fails. Without a network that is said, in one sentence.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from pip._vendor.packaging.requirements import InvalidRequirement, Requirement

_PIP = (
    "install",
    "--disable-pip-version-check",
    "--no-input",
    "--no-color",
    "--progress-bar",
    "off",
    "--require-hashes",
    "--no-compile",  # much of what is installed is never imported, and its bytecode is half of its size
)
_PACKAGE = re.compile(
    r"(?:Collecting |Requirement already satisfied: |Processing (?:\S*/)?)([A-Za-z0-9._]+(?:-[A-Za-z_]+)*)"
)
_NO_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeout|ReadTimeout|ProxyError|Max retries exceeded|"
    r"Connection (?:refused|reset|broken|aborted)|Network is unreachable|Temporary failure in name resolution|"
    r"Retrying \("
)
_EVERY = 10


def main(lock: Path, log: Path) -> int:
    waiting = _names(lock)
    total = len(waiting)
    # Few retries: where there is no network, it should be said soon.
    command = [sys.executable, "-m", "pip", *_PIP, "--retries", "2", "-r", str(lock)]
    said: list[str] = []
    with (
        log.open("w") as file,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as pip,
    ):
        for line in pip.stdout or ():
            file.write(line)
            said.append(line)
            found = _PACKAGE.match(line)
            if found and (name := _plain(found[1])) in waiting:
                waiting.remove(name)
                _tell(total - len(waiting), total, name)
            elif line.startswith("Installing collected packages"):
                _tell(total, total, "unpacking them")
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
    if pip.returncode:
        _explain(said, log)
    return pip.returncode


def _names(lock: Path) -> set[str]:
    """Of the packages that this machine needs."""
    names = set()
    for line in lock.read_text().splitlines():
        try:
            requirement = Requirement(line.rstrip("\\ ")) if line[:1].isalnum() else None
        except InvalidRequirement:
            continue
        if requirement and (requirement.marker is None or requirement.marker.evaluate()):
            names.add(_plain(requirement.name))
    return names


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _tell(number: int, total: int, what: str) -> None:
    text = f"paddock:   {number} of {total}: {what}"
    if sys.stderr.isatty():
        width = shutil.get_terminal_size().columns
        sys.stderr.write(f"\r\033[K{text[: width - 1]}")
    elif number % _EVERY == 0 or number == total:
        sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _explain(said: list[str], log: Path) -> None:
    if any(_NO_NETWORK.search(line) for line in said):
        reason = (
            "the packages cannot be fetched, because the package index does not answer. Is this machine on the "
            "network? Behind a proxy, set HTTPS_PROXY; for an index of your own, PIP_INDEX_URL."
        )
    else:
        errors = [line.strip() for line in said if line.startswith("ERROR")] or [line.strip() for line in said[-3:]]
        reason = f"pip could not install the packages: {' '.join(errors)[:600]}"
    sys.stderr.write(f"paddock: {reason} What pip said is in {log}.\n")


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]), Path(sys.argv[2])))
