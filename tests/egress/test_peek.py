"""Whom a client's first bytes name."""

from __future__ import annotations

import ssl

import pytest

from paddock import errors
from paddock.egress.peek import Incomplete, Peeked, read_name


def hello(name: str | None) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname = False
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def split_records(data: bytes, size: int) -> bytes:
    """The same hello in several records, as some clients send it to confuse whoever peeks."""
    body = data[5:]
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(data[:3] + len(part).to_bytes(2, "big") + part for part in parts)


def test_a_tls_hello_names_its_server() -> None:
    data = hello("www.example.org")
    assert read_name(data) == Peeked("www.example.org")
    assert read_name(split_records(data, 7)) == Peeked("www.example.org")
    assert read_name(hello(None)) == Peeked(None)


def test_a_hello_is_waited_for_byte_by_byte() -> None:
    data = hello("www.example.org")
    for end in range(len(data)):
        with pytest.raises(Incomplete):
            read_name(data[:end])


def test_a_hello_that_lies_about_its_lengths_names_nobody() -> None:
    data = hello("www.example.org")
    for at in range(9, len(data)):
        broken = data[:at] + b"\xff" + data[at + 1 :]
        try:
            found = read_name(broken)
        except (Incomplete, errors.MalformedRequest):
            continue
        assert found.name is None or isinstance(found.name, str)


def test_an_http_request_names_its_host() -> None:
    assert read_name(b"GET / HTTP/1.1\r\nHost: A.test:8080\r\n\r\n") == Peeked("a.test", http=True)
    assert read_name(b"GET / HTTP/1.0\r\n\r\n") == Peeked(None, http=True)
    for part in (b"G", b"GET", b"GET / HTTP/1.1\r\nHost: a.test\r\n"):
        with pytest.raises(Incomplete):
            read_name(part)
    for twice in (b"GET / HTTP/1.1\r\nHost: a.test\r\nHost: b.test\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n"):
        with pytest.raises(errors.MalformedRequest):
            read_name(twice)


@pytest.mark.parametrize(
    "data", [b"SSH-2.0-OpenSSH_9.2\r\n", b"\x00\x00\x00\x08\x04\xd2\x16/", b"\x16\x05\x00\x00\x01\x00"]
)
def test_anything_else_names_nobody(data: bytes) -> None:
    assert read_name(data) == Peeked()
