"""Ports: sockets made inside and handed out."""

from __future__ import annotations

import errno
import os
import socket
import struct

import pytest

from tests.agent import client as wire
from tests.agent.client import Client
from tests.agent.conftest import Running
from tests.agent.test_files import number_of
from tests.support.waiting import PATIENCE_S


def ask_socket(client: Client, kind: int, port: int) -> socket.socket:
    frame = client.ask(kind, struct.pack("<H", port))
    assert frame.type == wire.SOCKET and frame.payload == b"" and frame.fd is not None
    made = socket.socket(fileno=frame.fd)
    made.settimeout(PATIENCE_S)
    return made


def reserved_port() -> socket.socket:
    """Bound to 127.0.0.1 and not listening. Agents dial there first: where another process had this port there, an
    agent that is to find ``::1`` would reach that process."""
    reserved = socket.socket()
    reserved.bind(("127.0.0.1", 0))
    return reserved


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_port_is_reached_on_either_loopback(client: Client, family: int) -> None:
    with reserved_port() as taken:
        port = taken.getsockname()[1]
        try:
            listener = taken if family == socket.AF_INET else socket.create_server(("::1", port), family=family)
        except OSError:
            pytest.skip("no such loopback here")
        with listener:
            listener.listen()
            listener.settimeout(PATIENCE_S)
            with ask_socket(client, wire.DIAL, port) as dialled:
                accepted, _ = listener.accept()
                with accepted:
                    accepted.settimeout(PATIENCE_S)
                    dialled.sendall(b"hello")
                    assert accepted.recv(5) == b"hello"


def test_a_port_where_nothing_listens_says_so(client: Client) -> None:
    with reserved_port() as taken:
        port = struct.pack("<H", taken.getsockname()[1])
        assert number_of(client.ask, wire.DIAL, port) == errno.ECONNREFUSED
    for kind in (wire.DIAL, wire.LISTEN):
        assert number_of(client.ask, kind, struct.pack("<H", 0)) == errno.EINVAL


def test_a_dial_that_hangs_is_nobodys_trouble_and_can_be_cancelled(client: Client) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        requests = [client.send(wire.DIAL, struct.pack("<H", port)) for _ in range(8)]
        assert client.ask(wire.PING).type == wire.OK
        for request in requests:
            client.send(wire.CANCEL, struct.pack("<I", request))
        kinds = []
        for request in requests:
            frame = client.next(request)
            kinds.append(frame.type)
            if frame.fd is not None:
                os.close(frame.fd)
        assert kinds[-1] == wire.ERROR


def test_a_listener_is_kept_and_given_again(client: Client, agent: Running) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ask_socket(client, wire.LISTEN, port) as first, ask_socket(agent.connect(), wire.LISTEN, port) as second:
        assert first.getsockname() == second.getsockname() == ("127.0.0.1", port)
        with socket.create_connection(("127.0.0.1", port)):
            second.setblocking(True)
            second.accept()[0].close()
    client.close()
    with ask_socket(agent.connect(), wire.LISTEN, port) as third, socket.create_connection(("127.0.0.1", port)):
        third.setblocking(True)
        third.accept()[0].close()


def test_a_taken_port_cannot_be_listened_on(client: Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert number_of(client.ask, wire.LISTEN, struct.pack("<H", port)) == errno.EADDRINUSE


def test_descriptors_are_not_kept(client: Client, agent: Running) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        port = listener.getsockname()[1]
        ask_socket(client, wire.DIAL, port).close()
        client.ask(wire.PING)
        before = agent.descriptors()
        for _ in range(50):
            ask_socket(client, wire.DIAL, port).close()
            listener.accept()[0].close()
        client.ask(wire.PING)
        assert agent.descriptors() == before


@pytest.mark.parametrize("kind", [0, 1, 2, 3])
def test_each_kind_of_listener_is_one_of_its_own(client: Client, agent: Running, kind: int) -> None:
    family, address = (socket.AF_INET6, "::1") if kind & 1 else (socket.AF_INET, "127.0.0.1")
    datagrams = bool(kind & 2)
    try:
        with socket.socket(family, socket.SOCK_DGRAM if datagrams else socket.SOCK_STREAM) as free:
            free.bind((address, 0))
            port = free.getsockname()[1]
    except OSError:
        pytest.skip("no such loopback here")
    made = []
    for other in (client, agent.connect()):
        frame = other.ask(wire.LISTEN_ON, struct.pack("<HB", port, kind))
        assert frame.fd is not None
        made.append(socket.socket(fileno=frame.fd))
    first, second = made
    with first, second, socket.socket(family, first.type) as caller:
        assert first.getsockname() == second.getsockname() and first.getsockname()[:2] == (address, port)
        caller.connect((address, port))
        second.setblocking(True)
        if datagrams:
            caller.send(b"hello")
            assert second.recv(9) == b"hello"
        else:
            second.accept()[0].close()


def test_an_unknown_kind_of_listener_is_refused(client: Client) -> None:
    assert number_of(client.ask, wire.LISTEN_ON, struct.pack("<HB", 4711, 4)) == errno.EINVAL
