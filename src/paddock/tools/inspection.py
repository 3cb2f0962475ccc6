"""Processes and ports of a sandbox, read from /proc with only a shell and grep."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from ipaddress import IPv6Address

from pydantic import BaseModel, Field

from paddock.addons import FOLDER
from paddock.tools import running
from paddock.tools.context import ToolContext
from paddock.tools.tool import ToolFailed

_LISTEN = "0A"
_AGENT_PORTS = frozenset({53, 3128})
"""Name server and proxy; the port of MCP is a setting."""
_SERVICE = re.escape(FOLDER) + r"/(?:addons/)?(interpreter|browser-server|vscode)/"
_KERNEL = "kernel"
_MIN_EPHEMERAL_PORT = 32768

_PROCESSES = r"""
cd /proc || exit 1
getconf CLK_TCK 2>/dev/null || echo 100
getconf PAGESIZE 2>/dev/null || echo 4096
printf '\036'; grep -s '' [0-9]*/stat
printf '\036'; grep -s '^Uid:' [0-9]*/status
printf '\036'; grep -saz '' [0-9]*/cmdline
exit 0
"""

_LISTENING = r"""
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null
printf '\036'
ls -l /proc/[0-9]*/fd 2>/dev/null
printf '\036'
grep -s '' /proc/[0-9]*/comm
printf '\036'
grep -saz '' /proc/[0-9]*/cmdline
exit 0
"""


class ProcessRow(BaseModel):
    pid: int
    ppid: int
    uid: int | None
    state: str = Field(description="R runs, S and D wait, T is stopped, Z has ended.")
    memory: int = Field(description="Resident, in bytes.")
    cpu_seconds: float
    command: str


class ListeningPort(BaseModel):
    port: int
    address: str
    process: str | None = None
    pid: int | None = None
    own: bool = False
    """Whether the port belongs to Paddock: its proxy, MCP, interpreter, browser, VS Code."""


async def processes(ctx: ToolContext) -> list[ProcessRow]:
    """Processes by pid, without those of this query."""
    ran = await running.run(ctx, ["/bin/sh", "-c", _PROCESSES], what="process_list")
    facts, stats, owners, lines = (ran.out.split("\036") + [""] * 4)[:4]
    numbers = [int(number) for number in facts.split()[:2] if number.isdecimal() and len(number) < 10]
    if len(numbers) < 2:
        raise ToolFailed(f"The processes could not be read: {ran.err.strip()[:300] or 'the shell printed nothing'}")
    ticks, page = numbers
    uids = {int(pid): int(uid) for pid, uid in re.findall(r"^(\d+)/status:Uid:\s+(\d+)", owners, re.MULTILINE)}
    words: dict[int, list[str]] = {}
    for part in lines.split("\0"):
        if found := re.match(r"(\d+)/cmdline:(.*)", part, re.DOTALL):
            words.setdefault(int(found[1]), []).append(found[2])
    listed = []
    for line in stats.splitlines():
        if found := re.match(r"(\d+)/stat:\d+ \((.*)\) (\S) (.*)", line):
            pid, fields = int(found[1]), found[4].split()
            listed.append(
                ProcessRow(
                    pid=pid,
                    ppid=int(fields[0]),
                    uid=uids.get(pid),
                    state=found[3],
                    memory=int(fields[20]) * page,
                    cpu_seconds=(int(fields[10]) + int(fields[11])) / ticks,
                    command=" ".join(words.get(pid, [])).strip() or f"[{found[2]}]",
                )
            )
    mine = _family(listed, ran.info.pid)
    return sorted((each for each in listed if each.pid not in mine), key=lambda each: each.pid)


async def listening(ctx: ToolContext) -> list[ListeningPort]:
    """Listening ports by number; one on several addresses is listed once."""
    ran = await running.run(ctx, ["/bin/sh", "-c", _LISTENING], what="port_list")
    sockets, files, names, lines = (ran.out.split("\036") + [""] * 4)[:4]
    holders: dict[str, int] = {}
    pid = 0
    for line in files.splitlines():
        if found := re.match(r"/proc/(\d+)/fd:", line):
            pid = int(found[1])
        elif found := re.search(r"socket:\[(\d+)\]", line):
            holders.setdefault(found[1], pid)
    called = {int(number): name for number, name in re.findall(r"^/proc/(\d+)/comm:(.*)$", names, re.MULTILINE)}
    services, of_agent = _services(lines), _AGENT_PORTS | {ctx.mcp_port}
    ports: dict[int, ListeningPort] = {}
    for line in sockets.splitlines():
        fields = line.split()
        if len(fields) < 10 or fields[3] != _LISTEN:
            continue
        address, _, number = fields[1].rpartition(":")
        holder = holders.get(fields[9])
        port = int(number, 16)
        process = None if holder is None else called.get(holder)
        found_at = ListeningPort(port=port, address=_address(address), process=process, pid=holder)
        ports.setdefault(port, found_at.model_copy(update={"own": _is_own(found_at, services, of_agent)}))
    return sorted(ports.values(), key=lambda each: each.port)


def _services(lines: str) -> dict[int, str]:
    """Which of Paddock's services a process belongs to, by its directory below /opt/paddock."""
    found: dict[int, str] = {}
    for pid, word in re.findall(r"(?:^|\0)(\d+)/cmdline:([^\0]*)", lines.replace("/proc/", "")):
        if program := re.match(_SERVICE, word):
            found.setdefault(int(pid), program[1])
        elif word == "fork_server" and int(pid) in found:
            found[int(pid)] = _KERNEL
    return found


def _is_own(port: ListeningPort, services: Mapping[int, str], of_agent: Collection[int]) -> bool:
    if port.pid is None:  # held by the agent, whose descriptors a user cannot read
        return port.port in of_agent
    service = services.get(port.pid)
    if service == _KERNEL:  # runs the user's code, which may listen on ports; the others are IPython's own
        return port.port >= _MIN_EPHEMERAL_PORT and port.address == "127.0.0.1"
    return service is not None


def _address(digits: str) -> str:
    """The kernel prints each 32 bits in host byte order: little-endian on all supported architectures."""
    data = b"".join(bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8))
    if len(data) == 4:
        return ".".join(map(str, data))
    found = IPv6Address(data)
    return str(found.ipv4_mapped or found)


def _family(listed: list[ProcessRow], pid: int | None) -> set[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for each in listed:
        children.setdefault(each.ppid, []).append(each.pid)
    family: set[int] = set()
    found = [] if pid is None else [pid]
    while found:
        each_pid = found.pop()
        if each_pid not in family:
            family.add(each_pid)
            found += children.get(each_pid, [])
    return family
