"""Which tools an MCP client is shown: those that are installed, a small set, all, or those that it names.

Every tool stays callable whatever is shown: a model reads the list in each conversation, which costs tokens.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from paddock import errors
from paddock.tools.tool import Tool

DEFAULT, MINIMAL, FULL = "default", "minimal", "full"
PROFILES = (DEFAULT, MINIMAL, FULL)
MINIMAL_TOOLS = frozenset(
    ("read_file", "write_file", "edit_file", "list_directory", "search_files", "run_command", "task_output")
)
GROUPS = {"shell": ("commands", "shells"), "code": ("python",), "web": ("network", "browser")}
"""Aliases of kits that users try first."""
USERS = "mcp"
"""The tools of the user's own MCP servers."""
_MAX_WORDS = 100


@dataclass(frozen=True, slots=True)
class Selection:
    words: tuple[str, ...] = (DEFAULT,)

    @classmethod
    def parse(cls, text: str) -> Selection:
        """Parse ``files,shell``: profiles, kits, tool names, patterns with ``*``; a leading ``-`` excludes."""
        words = tuple(dict.fromkeys(word for part in text.split(",") if (word := part.strip().lower())))
        if len(words) > _MAX_WORDS:
            raise errors.Invalid(f"`tools` may name {_MAX_WORDS} things.")
        if all(word.startswith("-") for word in words):
            words = (DEFAULT, *words)
        return cls(words)

    @property
    def needs_look(self) -> bool:
        """Whether the selection depends on what is installed."""
        return DEFAULT in self.words

    def of(self, tools: Sequence[Tool], not_installed: Collection[str] = ()) -> list[Tool]:
        """The selected tools. Raises if a word matches none."""
        wanted: set[str] = set()
        for word in self.words:
            name = word.removeprefix("-")
            found = {tool.name for tool in tools if _means(name, tool)}
            if name == DEFAULT:
                found -= set(not_installed)
            if not found and name not in (*PROFILES, USERS) and not name.startswith("mcp_"):
                raise errors.Invalid(_unknown(name, tools))
            wanted = wanted - found if word.startswith("-") else wanted | found
        return [tool for tool in tools if tool.name in wanted]


def _means(word: str, tool: Tool) -> bool:
    users = tool.kit.startswith(f"{USERS}: ")
    if word in (DEFAULT, FULL):
        return True
    if word == MINIMAL:
        return users or tool.name in MINIMAL_TOOLS
    if word == USERS:
        return users
    names = (tool.name.lower(), tool.langchain_name.lower())
    return tool.kit in GROUPS.get(word, (word,)) or any(fnmatchcase(name, word) for name in names)


def _unknown(word: str, tools: Sequence[Tool]) -> str:
    kits = dict.fromkeys(tool.kit for tool in tools if ": " not in tool.kit)
    return (
        f"`tools` names {word[:80]!r}, which is no profile, kit or tool. Profiles: {', '.join(PROFILES)}. "
        f"Kits: {', '.join([*kits, *GROUPS, USERS])}. Or names of tools, also with * in them."
    )
