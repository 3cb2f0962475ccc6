"""What runs in a sandbox, read from /proc with nothing but a shell and grep."""

from __future__ import annotations

import re
from ipaddress import IPv6Address

from pydantic import BaseModel, Field

from paddock.tools import running
from paddock.tools.bench import Bench
from paddock.tools.tool import ToolFailed

_LISTEN = "0A"

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
exit 0
"""


class Process(BaseModel):
    pid: int
    ppid: int
    uid: int | None
    state: str = Field(description="R runs, S and D wait, T is stopped, Z has ended.")
    memory: int = Field(description="Resident, in bytes.")
    cpu_seconds: float
    command: str


class Listening(BaseModel):
    port: int
    address: str
    process: str | None = None
    pid: int | None = None


async def processes(bench: Bench) -> list[Process]:
    """By pid, without those that only looked."""
    ran = await running.run(bench, ["/bin/sh", "-c", _PROCESSES], what="process_list")
    facts, stats, owners, lines = (ran.out.split("\036") + [""] * 4)[:4]
    numbers = [int(number) for number in facts.split()[:2] if number.isdecimal() and len(number) < 10]
    if len(numbers) < 2:
        raise ToolFailed(f"The processes could not be read: {ran.err.strip()[:300] or 'the shell said nothing'}")
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
                Process(
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


async def listening(bench: Bench) -> list[Listening]:
    """By port; one that listens on several addresses is named once."""
    ran = await running.run(bench, ["/bin/sh", "-c", _LISTENING], what="port_list")
    sockets, files, names = (ran.out.split("\036") + [""] * 3)[:3]
    holders: dict[str, int] = {}
    pid = 0
    for line in files.splitlines():
        if found := re.match(r"/proc/(\d+)/fd:", line):
            pid = int(found[1])
        elif found := re.search(r"socket:\[(\d+)\]", line):
            holders.setdefault(found[1], pid)
    called = {int(number): name for number, name in re.findall(r"^/proc/(\d+)/comm:(.*)$", names, re.MULTILINE)}
    ports: dict[int, Listening] = {}
    for line in sockets.splitlines():
        fields = line.split()
        if len(fields) < 10 or fields[3] != _LISTEN:
            continue
        address, _, number = fields[1].rpartition(":")
        holder = holders.get(fields[9])
        port = int(number, 16)
        process = None if holder is None else called.get(holder)
        ports.setdefault(port, Listening(port=port, address=_address(address), process=process, pid=holder))
    return sorted(ports.values(), key=lambda each: each.port)


def _address(digits: str) -> str:
    """The kernel prints each 32 bits in the order of the machine's bytes: little-endian wherever Paddock runs."""
    data = b"".join(bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8))
    if len(data) == 4:
        return ".".join(map(str, data))
    found = IPv6Address(data)
    return str(found.ipv4_mapped or found)


def _family(listed: list[Process], pid: int | None) -> set[int]:
    """A process and all below it."""
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
