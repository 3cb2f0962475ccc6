"""The way out of a sandbox, end to end, in its three modes: what is allowed arrives, nothing else is even dialled."""

from __future__ import annotations

import asyncio
import shutil
import socket

import pytest

from paddock import errors
from paddock.egress.policy import EgressMode, EgressPolicy
from tests.local.outside import LISTENING, Outside, connect, fetch
from tests.local.place import Inside, Place
from tests.support.waiting import PATIENCE_S, until

NFT = shutil.which("nft", path="/usr/local/sbin:/usr/sbin:/sbin:/usr/bin")
needs_nft = pytest.mark.skipif(NFT is None, reason="full egress needs nft, and is refused without it")
FORBIDDEN = {
    "the loopback": "127.0.0.1",
    "another loopback": LISTENING,
    "the metadata service": "169.254.169.254",
    "a link-local address": "169.254.1.1",
    "a private address": "10.1.2.3",
    "nowhere": "0.0.0.0",
    "loopback of IPv6": "::1",
    "link-local of IPv6": "fe80::1",
    "metadata of IPv6": "fd00:ec2::254",
    "loopback as IPv6": "::ffff:127.0.0.1",
    "multicast": "224.0.0.1",
}


def policy(mode: EgressMode, allow: tuple[str, ...] = (), deny: tuple[str, ...] = ()) -> EgressPolicy:
    return EgressPolicy(mode, allow, deny)


def own_addresses() -> list[str]:
    """Of this host, as seen from outside of it."""
    found = []
    for family, target in ((socket.AF_INET, "198.51.100.1"), (socket.AF_INET6, "2001:db8::1")):
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((target, 9))  # of a datagram socket: only chooses an address, sends nothing
                found.append(probe.getsockname()[0])
            except OSError:
                continue
    return found


def in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address


@pytest.mark.parametrize(
    "url", ["http://open.test/", "http://six.test/", "http://198.51.100.7/", "http://[2001:db8::7]/"]
)
async def test_a_proxy_carries_what_is_not_forbidden(connected: Place, url: str) -> None:
    inside = await connected.create(egress=policy(EgressMode.PROXY))
    assert await inside.says(fetch(url)) == "hello"
    if shutil.which("curl", path="/usr/bin"):
        assert await inside.says(f"curl -sS -g '{url}'") == "hello"


async def test_a_proxy_carries_any_protocol_by_connect(connected: Place) -> None:
    inside = await connected.create(egress=policy(EgressMode.PROXY))
    code = (
        "import socket; s = socket.create_connection(('127.0.0.1', 3128)); "
        "s.sendall(b'CONNECT open.test:443 HTTP/1.1\\r\\nHost: open.test\\r\\n\\r\\n'); print(s.recv(99).split()[1]); "
        "s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n'); print(s.makefile().read().rpartition('\\n')[2])"
    )
    assert await inside.says(f'python3 -c "{code}"') == "b'200'\nhello"


async def test_without_the_proxy_there_is_no_way(connected: Place, outside: Outside) -> None:
    inside = await connected.create(egress=policy(EgressMode.PROXY))
    for host in ("198.51.100.7", "2001:db8::7", "open.test"):
        assert (await inside.run(connect(host, 80))).code != 0
    assert outside.dialled == []


@pytest.mark.parametrize("mode", [EgressMode.PROXY, pytest.param(EgressMode.FULL, marks=needs_nft)])
async def test_only_what_is_on_the_list_is_reached(connected: Place, outside: Outside, mode: EgressMode) -> None:
    inside = await connected.create(egress=policy(mode, allow=("open.test",)))
    assert await inside.says(fetch("http://open.test/")) == "hello"
    outside.dialled.clear()
    for url in ("http://other.test/", "http://198.51.100.8/", "http://six.test/"):
        assert (await inside.run(fetch(url))).code != 0
    assert outside.dialled == []


@pytest.mark.parametrize("mode", [EgressMode.PROXY, pytest.param(EgressMode.FULL, marks=needs_nft)])
async def test_what_is_denied_is_not_reached_by_name_nor_by_address(
    connected: Place, outside: Outside, mode: EgressMode
) -> None:
    inside = await connected.create(egress=policy(mode, deny=("other.test", "198.51.100.8/32", "2001:db8::/32")))
    for url in ("http://other.test/", "http://198.51.100.8/", "http://six.test/", "http://[2001:db8::7]/"):
        assert (await inside.run(fetch(url))).code != 0
    assert outside.dialled == []
    assert await inside.says(fetch("http://open.test/")) == "hello"
    assert await inside.says(fetch("http://both.test/")) == "hello"
    assert {address for address, _ in outside.dialled} == {"198.51.100.7"}


@pytest.mark.parametrize("mode", [EgressMode.PROXY, pytest.param(EgressMode.FULL, marks=needs_nft)])
async def test_the_host_and_its_neighbourhood_are_out_of_reach(
    connected: Place, outside: Outside, mode: EgressMode
) -> None:
    """By name and by number, however the sandbox asks; even a policy that allows everything opens none of it."""
    inside = await connected.create(egress=policy(mode, allow=("*", "0.0.0.0/0", "::/0")))
    forbidden = [*FORBIDDEN.values(), *own_addresses()]
    outside.names |= {f"evil{number}.test": [address] for number, address in enumerate(forbidden)}
    urls = [f"http://evil{number}.test:{outside.port}/" for number in range(len(forbidden))]
    urls += [f"http://{in_url(address)}:{outside.port}/" for address in forbidden]
    await inside.put("/workspace/urls", "\n".join(urls))
    await inside.put("/workspace/ask.py", ASK)
    direct = await inside.says("python3 ask.py < urls")
    assert direct == ""
    if mode is EgressMode.PROXY:
        assert await inside.says("no_proxy= NO_PROXY= python3 ask.py < urls") == ""
    assert outside.dialled == []
    outside.names["rebound.test"] = ["198.51.100.7"]
    assert await inside.says(fetch("http://rebound.test/")) == "hello"
    outside.names["rebound.test"] = [LISTENING]
    assert (await inside.run(fetch(f"http://rebound.test:{outside.port}/"))).code != 0
    assert outside.dialled == [("198.51.100.7", 80)]


ASK = """
import sys, urllib.request
for url in sys.stdin.read().split():
    try:
        print(url, urllib.request.urlopen(url, timeout=3).read())
    except OSError:
        pass
"""


async def test_without_egress_there_is_nothing_at_all(connected: Place, outside: Outside) -> None:
    inside = await connected.create(egress=policy(EgressMode.NONE))
    assert "proxy" not in (await inside.says("env")).lower()
    for script in (fetch("http://open.test/"), fetch("http://198.51.100.7/"), connect("198.51.100.7", 80)):
        assert (await inside.run(script)).code != 0
    for port in (3128, 3129, 3153):
        assert (await inside.run(connect("127.0.0.1", port))).code != 0
    assert (await inside.run("getent hosts open.test")).code != 0
    assert outside.dialled == []
    assert await inside.says("cut -d: -f1 /proc/net/dev | tail -n +3 | tr -d ' '") == "lo"


@needs_nft
@pytest.mark.parametrize("host", ["open.test", "six.test", "both.test", "198.51.100.7", "2001:db8::7"])
async def test_full_egress_carries_programs_that_know_no_proxy(connected: Place, host: str) -> None:
    inside = await connected.create(egress=policy(EgressMode.FULL))
    assert "proxy" not in (await inside.says("env")).lower()
    assert await inside.says(connect(host, 80)) == "hello"
    assert await inside.says(f"sudo {connect(host, 8080)}") == "hello"


@needs_nft
async def test_full_egress_answers_for_names_and_carries_no_datagrams(connected: Place, outside: Outside) -> None:
    inside = await connected.create(egress=policy(EgressMode.FULL, deny=("other.test",)))
    assert "198.51.100.7" in await inside.says("getent hosts open.test")
    assert "2001:db8::7" in await inside.says("getent hosts six.test")
    assert (await inside.run("getent hosts nowhere.test")).code != 0
    assert (await inside.run("getent hosts other.test")).code != 0
    udp = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x', ('198.51.100.7', 9))"
    await inside.run(f'python3 -c "{udp}"')
    assert outside.dialled == []


@needs_nft
async def test_the_rules_of_full_egress_cannot_be_changed_from_inside(connected: Place, outside: Outside) -> None:
    inside = await connected.create(egress=policy(EgressMode.FULL, allow=("open.test",)))
    for attempt in (f"{NFT} flush ruleset", "ip route del local default", "ip link set lo down", "ip addr flush lo"):
        assert (await inside.run(attempt, user="root")).code != 0
    assert await inside.says(connect("open.test", 80)) == "hello"
    outside.dialled.clear()
    assert (await inside.run(connect("198.51.100.8", 80))).text == ""
    assert outside.dialled == []


@pytest.mark.parametrize("mode", [EgressMode.PROXY, pytest.param(EgressMode.FULL, marks=needs_nft)])
async def test_a_change_of_the_policy_holds_at_once_and_cuts_what_it_forbids(
    connected: Place, mode: EgressMode
) -> None:
    inside = await connected.create(egress=policy(mode))
    held = await inside.start(
        'python3 -uc \'import urllib.request as u\nwith u.urlopen("http://other.test/hold", timeout=60) as r:\n'
        "    print(r.readline())\n    print(r.read())'; echo over"
    )
    await inside.until(held, b"held")
    await connected.provider.set_egress(inside.sandbox_id, policy(mode, allow=("open.test",)))
    await inside.finish(held)
    assert (await inside.run(fetch("http://other.test/"))).code != 0
    assert await inside.says(fetch("http://open.test/")) == "hello"
    await connected.provider.set_egress(inside.sandbox_id, policy(mode))
    assert await inside.says(fetch("http://other.test/")) == "hello"


async def test_the_mode_stays_as_it_was_made(connected: Place) -> None:
    inside = await connected.create(egress=policy(EgressMode.PROXY))
    with pytest.raises(errors.Invalid):
        await connected.provider.set_egress(inside.sandbox_id, policy(EgressMode.NONE))
    with pytest.raises(errors.SandboxNotFound):
        await connected.provider.set_egress("nobody_0", policy(EgressMode.PROXY))


@pytest.mark.parametrize("mode", [EgressMode.PROXY, pytest.param(EgressMode.FULL, marks=needs_nft)])
async def test_every_connection_is_counted_the_refused_ones_too(connected: Place, mode: EgressMode) -> None:
    inside = await connected.create(egress=policy(mode, deny=("other.test", "198.51.100.8/32")))
    await inside.says(fetch("http://open.test/"))
    await inside.run(fetch("http://198.51.100.8/"))

    async def report() -> tuple[int, int]:
        totals = (await connected.provider.egress(inside.sandbox_id)).totals
        return totals.connections, totals.denied

    async with asyncio.timeout(PATIENCE_S):
        while await report() != (2, 1):
            await asyncio.sleep(0.01)
    found = await connected.provider.egress(inside.sandbox_id)
    assert found.totals.bytes_up > 20 and found.totals.bytes_down > 40
    assert [(one.port, one.allowed) for one in found.latest] == [(80, True), (80, False)]
    assert found.latest[0].address == "198.51.100.7" and found.latest[1].reason


async def test_a_policy_that_was_changed_is_kept_over_a_restart_and_a_start_from_the_files(connected: Place) -> None:
    inside = await connected.create(egress=policy(EgressMode.PROXY))
    await connected.provider.set_egress(inside.sandbox_id, policy(EgressMode.PROXY, allow=("open.test",)))
    await connected.restart()
    again = await connected.inside(inside.sandbox_id)
    assert (await again.run(fetch("http://other.test/"))).code != 0
    await connected.end(inside.sandbox_id)
    await connected.provider.resume(inside.sandbox_id)
    third = await connected.inside(inside.sandbox_id)
    assert (await third.run(fetch("http://other.test/"))).code != 0
    assert await third.says(fetch("http://open.test/")) == "hello"


async def test_the_ports_of_the_way_out_are_taken_before_anything_of_the_users_runs(connected: Place) -> None:
    inside: Inside = await connected.create(egress=policy(EgressMode.PROXY))
    assert (await inside.run("python3 -c \"import socket; socket.create_server(('127.0.0.1', 3128))\"")).code != 0
    await connected.provider.delete(inside.sandbox_id)
    await until(lambda: not connected.folder(inside.sandbox_id).exists())
