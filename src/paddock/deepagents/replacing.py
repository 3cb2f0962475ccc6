"""Exact replacement in a text, whatever its line endings."""

from __future__ import annotations


class NotReplaced(Exception):
    """The reason, in deepagents' words."""


def replace(text: str, old: str, new: str, *, everywhere: bool) -> tuple[str, int]:
    """The new text, and how often ``old`` was in the old one.

    Models see ``\\n`` only. So what is not found as it was given is looked for in the other style, and what takes its
    place gets the style of the place.
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
