"""Environment variables of commands: those that every command gets, and those that would change how a shell runs it."""

from __future__ import annotations

import re
from collections.abc import Mapping

NPM_CONFIG = "/etc/paddock/npmrc"
"""Sets npm's prefix to ``~/.local``. Not set by ``NPM_CONFIG_PREFIX``, because nvm refuses to work with it."""
USER_PATH = "~/.local/bin"
"""Part of ``PATH``: the agent replaces ``~`` by the home directory of the process's user."""

# A sandbox is disposable, so the system Python that PEP 668 protects needs no protection in it.
_ALL = {"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_ROOT_USER_ACTION": "ignore", "UV_BREAK_SYSTEM_PACKAGES": "1"}
_ROOT = ("root", "0")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_BASH_PREFIXES = ("BASH", "COMP_", "LC_", "READLINE_", "SSH")
_BASH_NAMES_TEXT = """
_ CDPATH CHILD_MAX COLUMNS COMPREPLY COPROC DIRSTACK EMACS ENV EPOCHREALTIME EPOCHSECONDS EUID EXECIGNORE FIGNORE
FUNCNAME FUNCNEST GLOBIGNORE GLOBSORT GROUPS HISTCMD HOSTNAME HOSTTYPE IFS INSIDE_EMACS LANG LANGUAGE LINENO LINES
MACHTYPE MAPFILE OLDPWD OPTARG OPTERR OPTIND OSTYPE PIPESTATUS POSIXLY_CORRECT POSIX_PEDANTIC PPID PS4 PWD RANDOM REPLY
SECONDS SHELLOPTS SHLVL SRANDOM TEXTDOMAIN TEXTDOMAINDIR TIMEFORMAT UID
"""
_BASH_NAMES = frozenset(_BASH_NAMES_TEXT.split())
_HARMLESS = {(name, value) for name in ("LANG", "LC_ALL", "LC_CTYPE") for value in ("C", "C.UTF-8", "POSIX")}
"""Locales that always exist, so that bash prints no warning."""


def package_variables(user: str) -> Mapping[str, str]:
    """With these, package managers install for the calling user. Root installs system-wide, and needs no prefix."""
    return _ALL if user in _ROOT else {**_ALL, "NPM_CONFIG_GLOBALCONFIG": NPM_CONFIG}


def undisturbed(environment: Mapping[str, str]) -> bool:
    """Whether a command may be run without its shell: no variable makes bash do something, and bash would pass them
    on unchanged."""
    for name, value in environment.items():
        own = name in _BASH_NAMES or name.startswith(_BASH_PREFIXES) or not _NAME.fullmatch(name)
        if own and (name, value) not in _HARMLESS:
            return False
    return True
