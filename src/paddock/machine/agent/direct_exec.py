"""Whether a command may be run without its shell: only if the environment does not affect how a shell would run it."""

from __future__ import annotations

import re
from collections.abc import Mapping

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


def undisturbed(environment: Mapping[str, str]) -> bool:
    """False if a variable would make bash do something, or bash would not pass it on unchanged."""
    for name, value in environment.items():
        own = name in _BASH_NAMES or name.startswith(_BASH_PREFIXES) or not _NAME.fullmatch(name)
        if own and (name, value) not in _HARMLESS:
            return False
    return True
