"""DNS messages: the part of RFC 1035 needed by a relay that answers only address queries."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address

from paddock.http1.hosts import Address

A, AAAA, SVCB, HTTPS = 1, 28, 64, 65
INTERNET = 1
TTL = 30
MOST_ANSWERS = 16
"""Fits a datagram of 512 bytes, whatever the name."""

_HEADER = struct.Struct("!HHHHHH")
_IS_ANSWER, _OPCODE, _RECURSION_DESIRED, _RECURSION_AVAILABLE = 0x8000, 0x7800, 0x0100, 0x0080


class DnsCode(IntEnum):
    OK = 0
    MALFORMED = 1
    FAILED = 2
    NO_SUCH_NAME = 3
    NOT_IMPLEMENTED = 4
    REFUSED = 5


@dataclass(frozen=True, slots=True)
class Question:
    id: int
    flags: int
    name: str
    """As queried, without the trailing dot. Not validated."""
    kind: int
    net: int
    raw: bytes

    @property
    def is_plain(self) -> bool:
        return self.flags & _OPCODE == 0 and self.net == INTERNET


def read_question(data: bytes) -> Question | None:
    """None for data that is not a query and gets no response."""
    if len(data) < _HEADER.size:
        return None
    number, flags, questions, _, _, _ = _HEADER.unpack_from(data)
    if flags & _IS_ANSWER or questions != 1:
        return None
    labels: list[str] = []
    at = _HEADER.size
    try:
        while size := data[at]:
            # Nothing precedes the question, so a compression pointer (0xC0) is invalid here.
            if size > 63 or len(labels) > 127:
                return None
            labels.append(data[at + 1 : at + 1 + size].decode("ascii"))
            at += 1 + size
        kind, net = struct.unpack_from("!HH", data, at + 1)
    except (IndexError, UnicodeDecodeError, struct.error):
        return None
    return Question(number, flags, ".".join(labels), kind, net, data[_HEADER.size : at + 5])


def write_answer(question: Question, code: DnsCode, addresses: Sequence[Address] = ()) -> bytes:
    flags = _IS_ANSWER | _RECURSION_AVAILABLE | (question.flags & (_OPCODE | _RECURSION_DESIRED)) | code
    given = addresses[:MOST_ANSWERS]
    head = _HEADER.pack(question.id, flags, 1, len(given), 0, 0)
    return head + question.raw + b"".join(_record(address) for address in given)


def _record(address: Address) -> bytes:
    kind = A if isinstance(address, IPv4Address) else AAAA
    data = address.packed
    # 0xC00C points to the name in the question.
    return struct.pack("!HHHIH", 0xC00C, kind, INTERNET, TTL, len(data)) + data
