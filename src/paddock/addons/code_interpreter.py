"""The add-on ``code-interpreter``: common Python packages for data analysis, like those in E2B's template.

They are wheels from PyPI for the sandboxes' Python, in a directory at the end of its path, so packages of the user or
the template take precedence.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

from paddock import errors
from paddock.addons.progress import ProgressReporter
from paddock.addons.recipe import BuiltAddon, run

PACKAGES = (
    "numpy",
    "pandas",
    "matplotlib",
    "scikit-learn",
    "scipy",
    "seaborn",
    "scikit-image",
    "sympy",
    "plotly",
    "pillow",
    "requests",
    "beautifulsoup4",
    "lxml",
    "openpyxl",
    "xlrd",
    "python-docx",
    "pytest",
    "pytz",
    "tqdm",
)
_TOLD = ("numpy", "pandas", "matplotlib", "scikit-learn", "scipy")
_PYTHON = "/usr/bin/python3"
_ASK = "import sys, sysconfig; print('%d.%d' % sys.version_info[:2], sysconfig.get_config_var('SOABI'))"
_QUIET = ("--no-input", "--disable-pip-version-check", "--progress-bar=off", "--no-warn-script-location")
_GLIBC = ("2_17", "2_28")
_TRY = "import numpy, pandas, matplotlib, sklearn, scipy, seaborn, PIL, lxml"


@dataclass(frozen=True, slots=True)
class _Python:
    version: str
    abi: str


class CodeInterpreter:
    name = "code-interpreter"
    summary = "numpy, pandas, matplotlib, scikit-learn and others, for run_code and every Python of a sandbox."
    steps = 2
    cache_key: str | None = None
    """Not cached: pip has its own cache, and installs the newest versions."""

    def make(self, folder: Path, say: ProgressReporter) -> BuiltAddon:
        python = _of_sandboxes()
        target = folder / "lib" / python.abi
        say.step("getting packages from PyPI")
        run([*_pip(python), *_QUIET, "--only-binary=:all:", "--target", target, *PACKAGES], folder, say)
        say.step("trying them")
        run([_PYTHON, "-E", "-s", "-c", f"import sys; sys.path.append(sys.argv[1]); {_TRY}", target], folder, say)
        found = list(distributions(path=[str(target)]))
        versions = {each.name.lower(): each.version for each in found}
        parts = {name: versions[name] for name in _TOLD if name in versions}
        return BuiltAddon(f"python{python.version}-{_digest(found)}", parts)


def _of_sandboxes() -> _Python:
    """The Python of template ``host``, and of templates built from the same release."""
    try:
        done = subprocess.run([_PYTHON, "-E", "-s", "-c", _ASK], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise errors.Unsupported(
            f"This needs {_PYTHON} on the server, for whose version the packages are (Debian and Ubuntu: apt install "
            "python3)."
        ) from None
    version, abi = done.stdout.split()
    return _Python(version, abi)


def _pip(python: _Python) -> list[str]:
    """The pip of the sandboxes' Python, or the server's with the target platform as options."""
    for program, options in ((_PYTHON, []), (sys.executable, _for(python))):
        tried = subprocess.run([program, "-m", "pip", "--version"], capture_output=True, check=False)
        if tried.returncode == 0:
            return [program, "-m", "pip", "install", *options]
    raise errors.Unsupported("This needs pip on the server (Debian and Ubuntu: apt install python3-pip).")


def _for(python: _Python) -> list[str]:
    platforms = [f"--platform=manylinux_{glibc}_{platform.machine()}" for glibc in _GLIBC]
    return [f"--python-version={python.version}", "--implementation=cp", *platforms]


def _digest(found: list[Distribution]) -> str:
    names = sorted(f"{each.name}=={each.version}" for each in found)
    return hashlib.sha256("\n".join(names).encode()).hexdigest()[:10]
