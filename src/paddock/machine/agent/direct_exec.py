"""Whether words may be run without the shell that they are meant for: only where its environment asks nothing of it."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_BEGINNINGS = ("BASH", "COMP_", "LC_", "READLINE_", "SSH")
_MEANINGFUL = """
_ CDPATH CHILD_MAX COLUMNS COMPREPLY COPROC DIRSTACK EMACS ENV EPOCHREALTIME EPOCHSECONDS EUID EXECIGNORE FIGNORE
FUNCNAME FUNCNEST GLOBIGNORE GLOBSORT GROUPS HISTCMD HOSTNAME HOSTTYPE IFS INSIDE_EMACS LANG LANGUAGE LINENO LINES
MACHTYPE MAPFILE OLDPWD OPTARG OPTERR OPTIND OSTYPE PIPESTATUS POSIXLY_CORRECT POSIX_PEDANTIC PPID PS4 PWD RANDOM REPLY
SECONDS SHELLOPTS SHLVL SRANDOM TEXTDOMAIN TEXTDOMAINDIR TIMEFORMAT UID
"""
_OWN = frozenset(_MEANINGFUL.split())
_HARMLESS = {(name, value) for name in ("LANG", "LC_ALL", "LC_CTYPE") for value in ("C", "C.UTF-8", "POSIX")}
"""Locales that are always there, about which bash says nothing."""


def undisturbed(environment: Mapping[str, str]) -> bool:
    """False where a variable would make bash do something, or would not be handed on by it just as it is."""
    for name, value in environment.items():
        own = name in _OWN or name.startswith(_BEGINNINGS) or not _NAME.fullmatch(name)
        if own and (name, value) not in _HARMLESS:
            return False
    return True
