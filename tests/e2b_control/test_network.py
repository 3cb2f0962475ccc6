"""E2B's network lists, and the policy that they become."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from paddock.api.compat.e2b.control.network import NetworkLists, lists_of, rules_of
from paddock.api.compat.e2b.control.requests import Network
from paddock.api.compat.e2b.errors import E2BError
from paddock.egress.policy import EgressMode, EgressPolicy
from tests.e2b_control.conftest import Control, refused

EVERYTHING = "0.0.0.0/0"


def policy(allow: list[str] | None = None, deny: list[str] | None = None, internet: bool | None = None) -> EgressPolicy:
    rules = rules_of(lists_of(Network(allow_out=allow, deny_out=deny), internet))
    return EgressPolicy(EgressMode.PROXY, tuple(rules.allow or ()), tuple(rules.deny or ()))


def lets(found: EgressPolicy, address: str, name: str | None = None) -> bool:
    return found.refusal([name] if name else [], ip_address(address), 443) is None


class TestMapping:
    def test_nothing_said_is_everything_allowed(self) -> None:
        assert lets(policy(), "8.8.8.8")
        assert lets(policy(allow=["1.1.1.1"]), "8.8.8.8")

    def test_what_is_denied_is_denied_and_nothing_else(self) -> None:
        found = policy(deny=["8.8.8.8", "9.0.0.0/8"])
        assert not lets(found, "8.8.8.8")
        assert not lets(found, "9.1.2.3")
        assert lets(found, "8.8.4.4")

    def test_allow_wins_over_deny(self) -> None:
        found = policy(allow=["9.1.0.0/16", "9.2.3.4"], deny=["9.0.0.0/8"])
        assert lets(found, "9.1.77.1")
        assert lets(found, "9.2.3.4")
        assert not lets(found, "9.2.3.5")
        assert lets(found, "10.0.0.1")

    def test_allow_wins_where_both_are_the_same_and_where_it_is_the_larger(self) -> None:
        assert lets(policy(allow=["9.0.0.0/8"], deny=["9.0.0.0/8"]), "9.1.1.1")
        assert lets(policy(allow=["9.0.0.0/7"], deny=["9.0.0.0/8"]), "9.1.1.1")
        assert lets(policy(allow=[EVERYTHING], deny=[EVERYTHING]), "9.1.1.1")

    @pytest.mark.parametrize("internet", [None, False])
    def test_all_denied_but_what_is_allowed(self, internet: bool | None) -> None:
        deny = [] if internet is False else [EVERYTHING]
        found = policy(allow=["1.1.1.1", "9.9.9.9/8"], deny=deny, internet=internet)
        assert lets(found, "1.1.1.1")
        assert lets(found, "9.1.1.1")
        assert not lets(found, "8.8.8.8")
        assert not lets(found, "2001:4860:4860::8888")

    @pytest.mark.parametrize("internet", [None, False])
    def test_all_denied(self, internet: bool | None) -> None:
        found = policy(deny=[] if internet is False else [EVERYTHING], internet=internet)
        assert not lets(found, "8.8.8.8")
        assert not lets(found, "2001:4860:4860::8888")

    def test_domains_are_allowed_by_name(self) -> None:
        found = policy(allow=["example.org", "*.example.com"], deny=[EVERYTHING])
        assert lets(found, "8.8.8.8", "example.org")
        assert lets(found, "8.8.8.8", "www.example.com")
        assert not lets(found, "8.8.8.8", "example.net")

    def test_too_many_pieces_are_refused(self) -> None:
        allow = [f"9.{n // 250}.{n % 250}.7" for n in range(400)]
        with pytest.raises(E2BError, match="more than 512"):
            policy(allow=allow, deny=["9.0.0.0/8"])

    def test_lists_are_kept_as_they_were_said(self) -> None:
        lists = NetworkLists(("a.example",), (EVERYTHING,), False)
        assert NetworkLists.from_json(lists.to_json()) == lists


@pytest.mark.parametrize(
    ("network", "message"),
    [
        (
            {"allowOut": ["example.org"]},
            "When specifying allowed domains in allow out, you must include 'ALL_TRAFFIC' in deny out to block all "
            "other traffic.",
        ),
        ({"denyOut": ["example.org"]}, "invalid denied CIDR example.org"),
        ({"denyOut": ["1.2.3.4/99"]}, "invalid denied CIDR 1.2.3.4/99"),
        ({"allowOut": ["bad name!"], "denyOut": [EVERYTHING]}, "invalid allowed address bad name!"),
        ({"rules": {"example.org": [{"transform": {"headers": {"a": "b"}}}]}}, "Network transform rules are"),
        ({"egressProxy": {"address": "proxy:1080"}}, "An egress proxy of your own is not available"),
        ({"dnsServers": ["9.9.9.9"]}, "DNS servers of your own are not available"),
        ({"httpsPorts": [8443]}, "HTTPS ports other than 443 are not available"),
        ({"maskRequestHost": "ho st"}, "mask request host is not valid: ho st"),
        ({"maskRequestHost": "höst"}, "is not ASCII. Please use ASCII characters only."),
        ({"maskRequestHost": "a\r\nb"}, "mask request host is not valid"),
        ({"allowOut": "1.1.1.1"}, "network.allowOut"),
    ],
)
async def test_what_the_network_cannot_be(control: Control, network: dict[str, Any], message: str) -> None:
    refused(await control.create(network=network), 400, message)
    assert await control.world.machines() == {}


async def test_without_internet_nothing_goes_out(control: Control) -> None:
    key = await control.new(allow_internet_access=False)
    assert (await control.info(key))["allowInternetAccess"] is False
    assert (await control.world.row(await control.sandbox_id(key))).egress["deny"] == ["*"]


async def test_an_update_replaces_everything(control: Control) -> None:
    key = await control.new(network={"denyOut": ["9.9.9.9"], "allowPublicTraffic": False})
    sandbox_id = await control.sandbox_id(key)

    async def put(**body: Any) -> dict[str, Any]:
        answer = await control.http.put(f"/sandboxes/{key}/network", json=body)
        assert (answer.status_code, answer.headers["content-length"]) == (204, "0")
        report = await control.world.context.confinement.egress(control.who, sandbox_id)
        assert report.policy.to_json() == (await control.world.row(sandbox_id)).egress
        network: dict[str, Any] = (await control.info(key))["network"]
        return network

    assert await put(allowOut=["example.org"], denyOut=[EVERYTHING]) == {
        "allowPublicTraffic": False,
        "allowOut": ["example.org"],
        "denyOut": [EVERYTHING],
    }
    assert (await control.world.row(sandbox_id)).egress["allow"] == ["example.org"]
    assert await put(allow_internet_access=False) == {"allowPublicTraffic": False}
    assert (await control.info(key))["allowInternetAccess"] is False
    assert await put() == {"allowPublicTraffic": False}
    row = await control.world.row(sandbox_id)
    assert (row.egress["allow"], row.egress["deny"]) == ([], [])


async def test_an_update_that_cannot_be_changes_nothing(control: Control) -> None:
    key = await control.new(network={"denyOut": ["9.9.9.9"]})
    answer = await control.http.put(f"/sandboxes/{key}/network", json={"allowOut": ["example.org"]})
    refused(answer, 400, "When specifying allowed domains")
    assert (await control.info(key))["network"]["denyOut"] == ["9.9.9.9"]
    refused(await control.http.put("/sandboxes/i0/network", json={}), 404, "doesn't exist")


async def test_lists_that_were_set_natively_are_shown_in_e2b_words(control: Control) -> None:
    seen = await control.world.create(control.who, egress={"mode": "proxy", "allow": ["example.org"]})
    network = (await control.info(seen.sandbox.key))["network"]
    assert (network["allowOut"], network["denyOut"]) == (["example.org"], [EVERYTHING])
