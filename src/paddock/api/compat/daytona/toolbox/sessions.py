"""Sessions: a persistent shell, and the commands run in it.

The shell is a process of the sandbox, and the data of its commands is stored in files in the user's home: the command,
both streams, the exit code. So they survive a restart of the server without rows in the database. A session exists as
long as its directory and process are known; after its shell has ended (for example by ``exit 3``) it can still be read
but runs no more commands.
"""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import quote, unquote

from paddock import errors
from paddock.api.compat.daytona.errors import DAEMON, DaytonaError
from paddock.api.compat.daytona.toolbox.inside import BASH, ToolboxContext
from paddock.api.compat.daytona.toolbox.output import MAX_OUTPUT, json_text, leading_rest
from paddock.machine.base import FileType, OutputChunk, ProcessInfo, ProcessStatus, Stream
from paddock.runtime.output import cut_note

_MAX_ID = 80
_COPIES_OF_COMMAND = 3
_PIECE = 1 << 20
_MAX_LINE = 8192
_POLL_SECONDS = (0.02, 0.25)
_INPUT_SECONDS = 30.0
# The shell reads the next command's number from descriptor 9, and reports ended commands on 8. Only commands that may
# get input have a pipe.
_SHELL = r"""
exec 9<&0 8>&1 </dev/null
while IFS=' ' read -r -u 9 __how __where; do
  if [ "$__how" = open ]; then
    mkfifo "$__where/input"
    . "$__where/command" <>"$__where/input" >>"$__where/stdout" 2>>"$__where/stderr" 8>&- 9<&-
  else
    . "$__where/command" </dev/null >>"$__where/stdout" 2>>"$__where/stderr" 8>&- 9<&-
  fi
  printf '%s' "$?" >"$__where/exit"
  printf '%s\n' "$__where" >&8
done
"""
_FEED = r"""
for _ in {1..200}; do [ -p "$0" ] && break; sleep 0.05; done
text=$(cat; printf x)
if [ -n "$1" ]; then printf '%s' "${text%x}" >>"$1"; fi
printf '%s' "${text%x}" >"$0"
"""


@dataclass(frozen=True, slots=True)
class Command:
    command_id: str
    text: str
    exit_code: int | None

    def shown(self) -> dict[str, object]:
        found: dict[str, object] = {"id": self.command_id, "command": self.text}
        return found if self.exit_code is None else {**found, "exitCode": self.exit_code}


@dataclass(frozen=True, slots=True)
class Logs:
    """The latest part of each stream, after a note about what is missing."""

    stdout: bytes
    stderr: bytes

    async def fields(self) -> bytes:
        """As fields of a JSON object."""
        stdout, stderr = await json_text(self.stdout), await json_text(self.stderr)
        return b'"output":%b%b,"stdout":%b,"stderr":%b' % (stdout[:-1], stderr[1:], stdout, stderr)


class ShellSession:
    """An existing session. ``shell`` is its process at the time of the lookup."""

    def __init__(self, inside: ToolboxContext, session_id: str, shell: ProcessInfo) -> None:
        self.session_id = session_id
        self.shell = shell
        self._inside = inside
        self._folder = _folder(inside, session_id)

    async def commands(self) -> list[Command]:
        """In the order in which they were sent. Memory is reserved while they are read, because the sandbox controls
        their number."""
        entries = await self._inside.machine.list_directory(self._folder, 2, user=self._inside.user)
        sent = sorted((each for each in entries if each.name == "command"), key=lambda each: each.modified_at)
        found: list[Command] = []
        size = 0
        for each in sent:
            found.append(await self.command(each.path.split("/")[-2]))
            size += len(found[-1].text)
            self._inside.caller.holding.reserve(_COPIES_OF_COMMAND * size)
        return found

    async def command(self, command_id: str) -> Command:
        if not _is_command_id(command_id):
            raise _no_command(command_id)
        where = f"{self._folder}/{command_id}"
        text = await self._inside.read(f"{where}/command")
        if text is None:
            raise _no_command(command_id)
        code = await self._exit_code(where)
        return Command(command_id, text.decode(errors="replace").removesuffix("\n"), code)

    async def run(self, text: str, *, wait: bool, quiet: bool) -> str:
        """Run a command and return its id; with ``wait``, return when it has ended."""
        if not self.shell.running:
            raise DaytonaError(410, f"session {self.session_id} has ended", "SESSION_ENDED", DAEMON)
        machine, command_id = self._inside.machine, str(uuid.uuid4())
        where = f"{self._folder}/{command_id}"
        await self._inside.write(f"{where}/command", text.encode(errors="replace") + b"\n")
        if quiet:
            await self._inside.write(f"{where}/quiet", b"")
        line = f"{'closed' if wait else 'open'} {where}\n"
        try:
            await machine.write_stdin(self.shell.process_id, line.encode())
        except errors.ProcessEnded:
            raise DaytonaError(410, f"session {self.session_id} has ended", "SESSION_ENDED", DAEMON) from None
        if wait:
            await self._ended(where)
        return command_id

    async def logs(self, command_id: str, limit: int = MAX_OUTPUT) -> Logs:
        """The latest bytes of each stream, up to this number."""
        await self.command(command_id)
        where = f"{self._folder}/{command_id}"
        return Logs(await self._latest(where, Stream.STDOUT, limit), await self._latest(where, Stream.STDERR, limit))

    async def follow(self, command_id: str) -> AsyncGenerator[OutputChunk, None]:
        """The command's output from the beginning until it has ended."""
        await self.command(command_id)
        where = f"{self._folder}/{command_id}"
        offsets = {Stream.STDOUT: 0, Stream.STDERR: 0}
        shortest, longest = _POLL_SECONDS
        pause = shortest
        while True:
            over = await self._exit_code(where) is not None
            news = False
            for stream, offset in list(offsets.items()):
                while data := await self._piece(f"{where}/{stream.value}", offset):
                    news = True
                    yield OutputChunk(stream, offset, data)
                    offset += len(data)
                offsets[stream] = offset
            if over:
                return
            pause = shortest if news else min(longest, pause * 1.5)
            await asyncio.sleep(pause)

    async def send(self, command_id: str, text: str) -> None:
        """Write a line to the command's input. It also appears in the log, unless that was disabled."""
        if (await self.command(command_id)).exit_code is not None:
            told = f"command {command_id} has already completed"
            raise DaytonaError(410, told, "COMMAND_ALREADY_COMPLETED", DAEMON)
        where, machine = f"{self._folder}/{command_id}", self._inside.machine
        quiet = await self._inside.read(f"{where}/quiet") is not None
        argv = [BASH, "-c", _FEED, f"{where}/input", "" if quiet else f"{where}/stdout"]
        spec = self._inside.spec(argv, label="session input", stdin=True, hard_timeout=_INPUT_SECONDS)
        await machine.spawn(spec)
        await machine.write_stdin(spec.process_id, (text if text.endswith("\n") else text + "\n").encode())
        await machine.close_stdin(spec.process_id)
        if (await machine.wait(spec.process_id, _INPUT_SECONDS)).exit_code != 0:
            raise DaytonaError(400, "the command does not read any input", source=DAEMON)

    async def delete(self) -> None:
        with suppress(errors.ProcessEnded, errors.ProcessNotFound):
            await self._inside.machine.signal(self.shell.process_id, signal.SIGKILL)
            await self._inside.machine.wait(self.shell.process_id, 10)
        with suppress(errors.PathNotFound):
            await self._inside.machine.remove(self._folder, recursive=True, user=self._inside.user)

    async def _ended(self, where: str) -> None:
        """Waits for the shell's reports of ended commands, or its own end."""
        heard = b""
        chunks = self._inside.machine.follow(self.shell.process_id, self.shell.stdout_size, self.shell.stderr_size)
        try:
            async for chunk in chunks:
                heard += chunk.data
                if f"{where}\n".encode() in heard:
                    return
                heard = heard[-_MAX_LINE:]
        finally:
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    async def _exit_code(self, where: str) -> int | None:
        """None while it runs. If the command ended the shell, it is the shell's."""
        if (code := await self._said(where)) is not None:
            return code
        shell = await self._inside.machine.process(self.shell.process_id)
        if shell.running:
            return None
        if (code := await self._said(where)) is not None:
            return code
        return -1 if shell.exit_code is None else shell.exit_code

    async def _said(self, where: str) -> int | None:
        said = await self._inside.read(f"{where}/exit", 8)
        return int(said) if said and said.isdigit() else None

    async def _latest(self, where: str, stream: Stream, limit: int) -> bytes:
        path, user = f"{where}/{stream.value}", self._inside.user
        try:
            missing = max(0, (await self._inside.machine.stat(path, user=user)).size - limit)
        except errors.PathNotFound:
            return b""
        data = await self._inside.read(path, limit, offset=missing) or b""
        broken = leading_rest(data) if missing else 0
        return cut_note(stream, missing + broken, len(data) - broken) + data[broken:]

    async def _piece(self, path: str, offset: int) -> bytes:
        data = bytearray()
        with suppress(errors.PathNotFound):
            async for chunk in self._inside.machine.read_file(path, offset, _PIECE, user=self._inside.user):
                data += chunk
        return bytes(data)


async def create(inside: ToolboxContext, session_id: str) -> None:
    if not session_id or any(sign in session_id for sign in "/\0") or len(session_id) > _MAX_ID:
        raise DaytonaError(400, f"a session id has 1 to {_MAX_ID} characters, none of them a slash", source=DAEMON)
    if await _find(inside, session_id) is not None:
        raise DaytonaError(409, f"session {session_id} already exists", "SESSION_ALREADY_EXISTS", DAEMON)
    folder = _folder(inside, session_id)
    with suppress(errors.PathNotFound):  # a shell that ended when the sandbox was stopped
        await inside.machine.remove(folder, recursive=True, user=inside.user)
    spec = inside.spec([BASH, "-c", _SHELL], label=f"session {session_id}", stdin=True)
    await inside.write(f"{folder}/process", spec.process_id.encode())
    await inside.machine.spawn(spec)


async def get(inside: ToolboxContext, session_id: str) -> ShellSession:
    found = await _find(inside, session_id)
    if found is None:
        raise DaytonaError(404, f"session {session_id[:200]} not found", "PROCESS_NOT_FOUND", DAEMON)
    return found


async def every(inside: ToolboxContext) -> list[ShellSession]:
    try:
        entries = await inside.machine.list_directory(_root(inside), 1, user=inside.user)
    except errors.PathNotFound:
        return []
    names = [unquote(entry.name) for entry in entries if entry.type is FileType.DIRECTORY]
    found = [await _find(inside, name) for name in names]
    return sorted((each for each in found if each is not None), key=lambda each: each.shell.started_at)


async def _find(inside: ToolboxContext, session_id: str) -> ShellSession | None:
    if not session_id or "\0" in session_id or len(session_id) > _MAX_ID:
        return None
    process_id = await inside.read(f"{_folder(inside, session_id)}/process", 100)
    if process_id is None:
        return None
    try:
        shell = await inside.machine.process(process_id.decode(errors="replace"))
    except (errors.ProcessNotFound, errors.Invalid):
        return None
    return None if shell.status is ProcessStatus.LOST else ShellSession(inside, session_id, shell)


def _root(inside: ToolboxContext) -> str:
    return f"{inside.home}/.daytona/sessions"


def _folder(inside: ToolboxContext, session_id: str) -> str:
    # "." is not a directory name of its own, and ".." leads out of the directory.
    return f"{_root(inside)}/{quote(session_id, safe='').replace('.', '%2E')}"


def _is_command_id(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def _no_command(command_id: str) -> DaytonaError:
    return DaytonaError(404, f"command {command_id[:200]} not found", "PROCESS_NOT_FOUND", DAEMON)
