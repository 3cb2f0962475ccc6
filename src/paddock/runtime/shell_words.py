"""Splits simple shell commands into arguments, so that they run without a shell, in half the time.

A command is simple if bash would only split it into words, remove the quotes and exec the first word. Anything that
might mean more to any bash, with any settings, is left to bash, as is anything unusual.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

SHELL = ("/bin/bash", "-c")

_MAX_COMMAND_LENGTH = 8192
_PLAIN = r"[A-Za-z0-9_./,:+@%-]"
_QUOTED = r"'[\t\n -&(-~]*'|\"[\t\n #%-\[\]-_a-~]*\""
"""Printable characters without those that are special in double quotes: dollar, backquote, backslash, exclamation
mark."""
_FIRST = re.compile(rf"(?:{_PLAIN}+)")
_WORD = re.compile(rf"(?:[A-Za-z0-9_./,:+@%=-]|{_QUOTED})+")
_QUOTED_OR_PLAIN = re.compile(rf"{_QUOTED}|[^'\"]+")
_BLANKS = re.compile(r"[ \t]+")

_RESERVED = """
! { } [[ ]] case coproc do done elif else esac fi for function if in select then time until while
"""
_BUILTINS = """
. : [ alias bg bind break builtin caller cd command compgen complete compopt continue declare dirs disown echo enable
eval exec exit export false fc fg getopts hash help history jobs kill let local logout mapfile popd printf pushd pwd
read readarray readonly return set shift shopt source suspend test times trap true type typeset ulimit umask unalias
unset wait
"""
_BASH_WORDS = frozenset([*_RESERVED.split(), *_BUILTINS.split()])
"""Reserved words and builtins of bash, in every version up to 5.3."""


def words_of(command: str) -> Sequence[str]:
    """The arguments of a simple command, the first being the program; empty if the command needs a shell."""
    line = command.strip(" \t\n")
    first = _FIRST.match(line) if len(line) <= _MAX_COMMAND_LENGTH else None
    if first is None or first[0] in _BASH_WORDS or first[0].startswith("%"):
        return ()
    words, at = [first[0]], first.end()
    while at < len(line):
        blanks = _BLANKS.match(line, at)
        word = _WORD.match(line, blanks.end()) if blanks else None
        if word is None:
            return ()
        words.append(_unquoted(word[0]))
        at = word.end()
    return words


def _unquoted(word: str) -> str:
    if "'" not in word and '"' not in word:
        return word
    return "".join(piece[1:-1] if piece[0] in "'\"" else piece for piece in _QUOTED_OR_PLAIN.findall(word))
