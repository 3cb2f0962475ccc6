"""Words for the tests of the tools: a sandbox from the side of a model that calls them."""

from __future__ import annotations

import secrets
from typing import Any

from paddock.accounts.accounts import Principal
from paddock.models import RunCommand
from paddock.server.context import ServerContext
from paddock.tools.context import Progress, ignore_progress
from paddock.tools.tool import ToolOutcome


class Workbench:
    def __init__(self, context: ServerContext, who: Principal, sandbox_id: str) -> None:
        self.context = context
        self.who = who
        self.sandbox_id = sandbox_id
        self.folder = f"/workspace/{secrets.token_hex(4)}"
        """What a test puts its files into."""

    def at(self, name: str) -> str:
        return f"{self.folder}/{name}"

    async def call(self, tool: str, /, heard: Progress = ignore_progress, **arguments: Any) -> ToolOutcome:
        return await self.context.tools.call(self.who, self.sandbox_id, tool, arguments, heard)

    async def does(self, tool: str, /, **arguments: Any) -> Any:
        """The data of a call that must succeed."""
        outcome = await self.call(tool, **arguments)
        assert not outcome.failed, outcome.text
        assert outcome.text
        assert outcome.data is not None
        return outcome.data

    async def fails(self, tool: str, /, **arguments: Any) -> str:
        """What is said by a call that must fail."""
        outcome = await self.call(tool, **arguments)
        assert outcome.failed, outcome.text
        assert outcome.data is None
        return outcome.text

    async def shell(self, command: str, user: str = "user") -> str:
        """What a command that must succeed prints."""
        asked = RunCommand(sandbox_id=self.sandbox_id, command=command, user=user)
        done = await self.context.commands.run(self.who, asked)
        assert done.exit_code == 0, f"{command!r} ended with {done.exit_code}: {done.output}"
        return done.stdout

    async def put(self, name: str, content: str) -> str:
        """A file in the folder of this test; answers with its path."""
        await self.does("write_file", path=self.at(name), content=content)
        return self.at(name)
