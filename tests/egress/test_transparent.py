"""Full egress: every TCP connection of a namespace is judged and carried, whoever opens it; nothing else leaves."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from ipaddress import ip_address

import pytest

from paddock.egress import gate as gate_module
from paddock.egress.addresses import PrivateAccess
from paddock.egress.dial import Dialled, dial
from paddock.egress.dns import DnsRelay
from paddock.egress.gate import EgressGate
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.egress.records import EgressLedger
from paddock.egress.traffic import Limits
from paddock.egress.transparent import NAME_SERVER, TransparentProxy, ruleset
from paddock.http1.hosts import Address
from tests.egress.conftest import Serve
from tests.egress.namespaces import Namespace, new_namespace
from tests.egress.outside import LOOPBACK, Names
from tests.egress.sites import echo, web
from tests.support.waiting import until

TCP_PORT, DNS_PORT = 3129, 3153
PUBLIC4, PUBLIC6 = "93.184.216.34", "2606:2800:220:1::1"

Carry = Callable[..., Awaitable[EgressGate]]


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    for tool in ("nft", "ip"):
        if shutil.which(tool, path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
            pytest.skip(f"needs {tool}")
    with new_namespace() as namespace:
        yield namespace


@pytest.fixture
async def routed(namespace: Namespace) -> Namespace:
    for family in ("-4", "-6"):
        done = await namespace.run("ip", family, "route", "add", "local", "default", "dev", "lo")
        assert done.returncode == 0, done.stderr
    loaded = await namespace.run("nft", "-f", "-", stdin=ruleset(TCP_PORT, DNS_PORT))
    if loaded.returncode != 0:
        pytest.skip(f"this kernel takes no such rules: {loaded.stderr.splitlines()[0]}")
    return namespace


@pytest.fixture
async def dialled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The loopback plays the part of the Internet: where the host would connect to, and connects to instead."""
    meant: list[str] = []

    async def to_loopback(addresses: Sequence[Address], port: int, seconds: float) -> Dialled:
        meant.append(str(addresses[0]))
        _, sock = await dial([ip_address("127.0.0.1")], port, seconds)
        return addresses[0], sock

    monkeypatch.setattr(gate_module, "dial", to_loopback)
    return meant


@pytest.fixture
async def carry(routed: Namespace) -> AsyncIterator[Carry]:
    parts: list[TransparentProxy | DnsRelay] = []

    async def start(
        policy: EgressPolicy, names: Names | None = None, reachable: Sequence[str] = LOOPBACK
    ) -> EgressGate:
        sockets = await routed.listen(
            *(("tcp", address, TCP_PORT) for address in ("127.0.0.1", "::1")),
            *(("tcp", address, DNS_PORT) for address in ("127.0.0.1", "::1")),
            *(("udp", address, DNS_PORT) for address in ("127.0.0.1", "::1")),
        )
        gate = EgressGate(
            policy, reach=PrivateAccess(reachable=reachable), resolve=names or Names(), ledger=EgressLedger()
        )
        limits = Limits(peek_seconds=0.3)
        parts.append(TransparentProxy(sockets[:2], gate, limits))
        parts.append(DnsRelay(sockets[4:], sockets[2:4], gate, limits))
        for part in parts:
            part.start()
        return gate

    yield start
    for part in parts:
        await part.close()


def full(*allow: str, deny: Sequence[str] = ()) -> EgressPolicy:
    return EgressPolicy(EgressMode.FULL, allow, tuple(deny))


TALK = """
import socket, json
said = []
for host, port in json.loads({targets!r}):
    try:
        with socket.create_connection((host, port), 5) as s:
            s.sendall(b'ping'); s.shutdown(socket.SHUT_WR)
            got = b''
            while more := s.recv(100): got += more
            said.append(got.decode())
    # A reset may come before our own end, or between it and the answer.
    except OSError as trouble: said.append('reset' if trouble.errno in (32, 104, 107) else trouble.errno)
print(json.dumps(said))
"""


async def talk(namespace: Namespace, *targets: tuple[str, int]) -> list[object]:
    answer: list[object] = json.loads(await namespace.python(TALK.format(targets=json.dumps(targets))))
    return answer


async def test_a_connection_to_any_address_is_carried_there(
    routed: Namespace, carry: Carry, serve: Serve, dialled: list[str]
) -> None:
    server = await serve(echo)
    gate = await carry(full())
    assert await talk(routed, (PUBLIC4, server.port), (PUBLIC6, server.port)) == ["ping|end", "ping|end"]
    assert dialled == [PUBLIC4, PUBLIC6]
    await until(lambda: len(gate.ledger.latest) == 2)
    assert [(one.host, one.port, one.bytes_up, one.bytes_down) for one in gate.ledger.latest] == [
        (PUBLIC4, server.port, 4, 8),
        (PUBLIC6, server.port, 4, 8),
    ]


async def test_the_host_and_what_is_near_it_are_out_of_reach(
    routed: Namespace, carry: Carry, serve: Serve, dialled: list[str]
) -> None:
    server = await serve(echo)
    gate = await carry(full("*", "0.0.0.0/0", "::/0"), reachable=())
    own = await asyncio.to_thread(_own_addresses)
    near = ["169.254.169.254", "10.0.0.1", "fe80::1%lo", "fd00:ec2::254", "64:ff9b::7f00:1", "0.0.0.0", *own]
    answers = await talk(routed, *((address, server.port) for address in near))
    assert all(answer == "reset" or isinstance(answer, int) for answer in answers), answers
    # Addressed by what it listens on, the listener itself is the loopback, too.
    assert await talk(routed, ("127.0.0.1", TCP_PORT), ("::1", TCP_PORT)) == ["reset", "reset"]
    assert dialled == [] and server.accepted == []
    assert gate.ledger.totals.denied >= 2 + len(own)


async def test_address_rules_decide_without_waiting_for_a_name(
    routed: Namespace, carry: Carry, serve: Serve, dialled: list[str]
) -> None:
    server = await serve(echo)
    await carry(full(f"{PUBLIC4}:{server.port}", deny=["2606::/16"]))
    assert await talk(routed, (PUBLIC4, server.port), ("93.184.216.35", server.port), (PUBLIC6, server.port)) == [
        "ping|end",
        "reset",
        "reset",
    ]


async def test_a_name_in_http_is_followed_to_where_it_really_leads(
    routed: Namespace, carry: Carry, serve: Serve, dialled: list[str]
) -> None:
    server = await serve(web)
    names = Names()
    names.say("good.test", [PUBLIC4])
    gate = await carry(full("good.test"), names)

    async def curl(name: str, address: str) -> str:
        where = f"{name}:{server.port}:{address}"
        argv = ("curl", "-s", "--max-time", "10", "-w", " %{http_code}", "--resolve", where)
        return (await routed.run(*argv, f"http://{name}:{server.port}/x")).stdout

    assert await curl("good.test", PUBLIC4) == "you asked for /x 200"
    # An allowed name does not open another's address: the connection goes to the name's own.
    assert await curl("good.test", "6.6.6.6") == "you asked for /x 200"
    assert dialled == [PUBLIC4, PUBLIC4]
    assert (await curl("evil.test", PUBLIC4)).endswith(" 403")
    await until(lambda: len(gate.ledger.latest) == 3)
    assert [record.host for record in gate.ledger.latest] == ["good.test", "good.test", "evil.test"]


async def test_an_address_that_is_allowed_needs_no_name_but_a_denied_name_stays_denied(
    routed: Namespace, carry: Carry, serve: Serve, dialled: list[str]
) -> None:
    server = await serve(web)
    await carry(full("good.test", PUBLIC4, deny=["evil.test"]))
    for name, code in (("unknown.test", "200"), ("evil.test", "403")):
        where = f"{name}:{server.port}:{PUBLIC4}"
        argv = ("curl", "-s", "--max-time", "10", "-o", "/dev/null", "-w", "%{http_code}", "--resolve", where)
        assert (await routed.run(*argv, f"http://{name}:{server.port}/x")).stdout == code
    assert dialled == [PUBLIC4]


async def test_a_name_in_tls_decides(routed: Namespace, carry: Carry, serve: Serve, dialled: list[str]) -> None:
    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x15\x03\x03\x00\x02\x02\x28")  # a fatal alert: we were reached
        await writer.drain()

    server = await serve(plain)
    names = Names()
    names.say("good.test", [PUBLIC4])
    await carry(full("good.test"), names)
    code = (
        "import socket, ssl\nfor name in ('good.test', 'evil.test'):\n"
        "    c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE\n"
        f"    s = socket.create_connection(({PUBLIC4!r}, {server.port}), 5)\n"
        "    try: c.wrap_socket(s, server_hostname=name)\n"
        "    except OSError as trouble: print(type(trouble).__name__)\n"
    )
    assert (await routed.python(code)).split() == ["SSLError", "ConnectionResetError"]
    assert dialled == [PUBLIC4]


async def test_a_protocol_that_names_nobody_is_judged_by_the_name_that_was_looked_up(
    routed: Namespace, carry: Carry, serve: Serve, dialled: list[str]
) -> None:
    """As SSH and databases, where the server speaks first."""
    server = await serve(echo)
    names = Names()
    names.say("git.test", [PUBLIC4])
    names.say("other.test", [PUBLIC4])
    await carry(full("git.test"), names)
    assert await talk(routed, (PUBLIC4, server.port)) == ["reset"]
    assert await _look_up(routed, "git.test", NAME_SERVER) == PUBLIC4
    assert await talk(routed, (PUBLIC4, server.port)) == ["ping|end"]


async def test_whoever_is_asked_for_a_name_the_relay_answers(routed: Namespace, carry: Carry) -> None:
    names = Names()
    names.say("good.test", [PUBLIC4, "10.0.0.1"])
    await carry(full("good.test"), names, reachable=())
    for server in (NAME_SERVER, "8.8.8.8", "2001:4860:4860::8888"):
        assert await _look_up(routed, "good.test", server) == PUBLIC4
    assert await _look_up(routed, "evil.test", "1.1.1.1") == "code 3"
    assert names.asked == ["good.test"] * 3


async def test_nothing_but_tcp_and_dns_leaves(routed: Namespace, carry: Carry) -> None:
    await carry(full())
    tried = await routed.python(
        "import socket\n"
        "for family, host in ((2, '8.8.8.8'), (10, '2606::1')):\n"
        "    s = socket.socket(family, socket.SOCK_DGRAM)\n"
        "    try: s.sendto(b'quic', (host, 443)); print('sent')\n"
        "    except OSError as trouble: print(trouble.errno)\n"
    )
    assert tried.split() == ["1", "1"]


async def test_the_sandboxes_own_loopback_works(routed: Namespace, carry: Carry) -> None:
    await carry(full("nothing.test"))
    code = (
        "import socket\nfor family, host in ((2, '127.0.0.1'), (10, '::1'), (2, '127.0.0.9')):\n"
        "    l = socket.socket(family); l.bind((host, 8000)); l.listen()\n"
        "    c = socket.create_connection((host, 8000), 5); l.accept()[0].sendall(b'here'); print(c.recv(4).decode())\n"
        "u = socket.socket(2, 2); u.bind(('127.0.0.1', 53)); u.connect(('127.0.0.1', 53))\n"
        "u.settimeout(5); u.send(b'own')\n"
        "print(u.recv(9).decode())\n"
    )
    assert (await routed.python(code)).split() == ["here", "here", "here", "own"]


async def test_an_update_cuts_what_is_open(routed: Namespace, carry: Carry, serve: Serve, dialled: list[str]) -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    server = await serve(hold)
    gate = await carry(full())
    talking = asyncio.create_task(talk(routed, (PUBLIC4, server.port)))
    await until(lambda: gate.open_connections == 1)
    gate.update(full(deny=[PUBLIC4]))
    assert await talking == ["reset"]
    assert gate.ledger.latest[0].reason.startswith("cut by a change of the policy")


async def _look_up(namespace: Namespace, name: str, server: str) -> str:
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    asked = b"\0\7\1\0\0\1\0\0\0\0\0\0" + labels + b"\0\0\1\0\1"
    family = 10 if ":" in server else 2
    return await namespace.python(
        f"import socket\ns = socket.socket({family}, socket.SOCK_DGRAM); s.settimeout(5)\n"
        f"s.connect(({server!r}, 53)); s.send({asked!r}); a = s.recv(600)\n"
        "print(socket.inet_ntoa(a[-4:]) if a[7] else f'code {a[3] & 15}')\n"
    )


def _own_addresses() -> list[str]:
    from paddock.egress.interfaces import read_own_addresses

    networks = [one for one in read_own_addresses() if one.num_addresses == 1]
    addresses = (one.network_address for one in networks)
    return [str(one) for one in addresses if not (one.is_loopback or one.is_link_local or one.is_multicast)]
