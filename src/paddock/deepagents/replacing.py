"""Exact text replacement, independent of line endings."""

from __future__ import annotations


class NotReplaced(Exception):
    """The reason, in deepagents' wording."""


def replace(text: str, old: str, new: str, *, everywhere: bool) -> tuple[str, int]:
    """The new text, and the number of occurrences of ``old``.

    Models see only ``\n``. Text that does not match is searched again with the other line ending, and the replacement
    is converted to the line ending of its place.
    """
    plain_old, plain_new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    styles = (
        (old, new),
        (plain_old.replace("\n", "\r\n"), plain_new.replace("\n", "\r\n")),
        (plain_old, plain_new),
    )
    for wanted, instead in styles:
        if count := text.count(wanted):
            if count > 1 and not everywhere:
                raise NotReplaced(
                    f"Error: String '{old}' appears multiple times. Use replace_all=True to replace all occurrences."
                )
            return text.replace(wanted, instead), count
    raise NotReplaced(f"Error: String not found in file: '{old}'")
