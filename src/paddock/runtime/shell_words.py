"""Commands are lines for a shell, and many of them need none: plain words can be run as they are, in half the time.

A line is plain where bash would do nothing with it but cut it into words, take the quotes away, and become the program
of the first one. Whatever might mean more than that to any bash, in any setting, is left to bash; so is every line
that merely looks strange.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

SHELL = ("/bin/bash", "-c")

_LONGEST = 8192
_PLAIN = r"[A-Za-z0-9_./,:+@%-]"
_QUOTED = r"'[\t\n -&(-~]*'|\"[\t\n #%-\[\]-_a-~]*\""
"""Printable, and without what means more in double quotes: dollar, backquote, backslash, exclamation mark."""
_FIRST = re.compile(rf"(?:{_PLAIN}+)")
_WORD = re.compile(rf"(?:[A-Za-z0-9_./,:+@%=-]|{_QUOTED})+")
_PIECE = re.compile(rf"{_QUOTED}|[^'\"]+")
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
_OWN = frozenset([*_RESERVED.split(), *_BUILTINS.split()])
"""What bash does itself, in every version up to 5.3."""


def words_of(command: str) -> Sequence[str]:
    """The words of a plain line, of which the first is a program; none where the line needs a shell."""
    line = command.strip(" \t\n")
    first = _FIRST.match(line) if len(line) <= _LONGEST else None
    if first is None or first[0] in _OWN or first[0].startswith("%"):
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
    return "".join(piece[1:-1] if piece[0] in "'\"" else piece for piece in _PIECE.findall(word))
