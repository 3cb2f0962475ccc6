"""The rules: what they cover, what is no rule, which of them wins."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from paddock import errors
from paddock.egress.policy import EgressMode, EgressPolicy
from paddock.egress.rules import Rule
from paddock.http1.hosts import parse_host

SOMEWHERE = ip_address("93.184.216.34")


def test_a_policy_survives_json() -> None:
    policy = EgressPolicy(EgressMode.FULL, ("example.org", "*.example.org:443"), ("10.0.0.0/8",))
    assert EgressPolicy.from_json(policy.to_json()) == policy
    assert EgressPolicy.from_json({}) == EgressPolicy()


@pytest.mark.parametrize(
    ("rule", "covered", "not_covered"),
    [
        ("example.org", ["example.org"], ["a.example.org", "example.org.evil.test", "notexample.org"]),
        ("*.example.org", ["a.example.org", "b.a.example.org"], ["example.org", "notexample.org", "aexample.org"]),
        (".example.org", ["example.org", "a.example.org"], ["notexample.org"]),
        ("EXAMPLE.org.", ["example.org"], ["org"]),
        ("bücher.test", ["xn--bcher-kva.test"], ["bucher.test"]),
        ("*", ["anything.test"], []),
        ("10.0.0.0/8", [], ["10.0.0.1.test"]),
    ],
)
def test_which_names_a_rule_covers(rule: str, covered: list[str], not_covered: list[str]) -> None:
    parsed = Rule.parse(rule)
    assert all(parsed.covers_name(name) for name in covered)
    assert not any(parsed.covers_name(name) for name in not_covered)


@pytest.mark.parametrize(
    ("rule", "covered", "not_covered"),
    [
        ("93.184.216.34", ["93.184.216.34"], ["93.184.216.35", "::5db8:d822"]),
        ("93.184.216.0/24", ["93.184.216.255"], ["93.184.217.0"]),
        ("2606:2800::/32", ["2606:2800::1"], ["2606:2801::1", "93.184.216.34"]),
        ("[2606:2800::1]", ["2606:2800::1"], ["2606:2800::2"]),
        ("::ffff:93.184.216.34", ["93.184.216.34"], ["93.184.216.35"]),
        ("*", ["93.184.216.34", "2606::1"], []),
        ("example.org", [], ["93.184.216.34"]),
    ],
)
def test_which_addresses_a_rule_covers(rule: str, covered: list[str], not_covered: list[str]) -> None:
    parsed = Rule.parse(rule)
    assert all(parsed.covers_address(ip_address(text)) for text in covered)
    assert not any(parsed.covers_address(ip_address(text)) for text in not_covered)


@pytest.mark.parametrize(
    "rule", ["a.test:443", "*:443", "1.2.3.4:443", "1.2.3.0/24:443", "[::1]:443", "[2606::/16]:443"]
)
def test_a_rule_with_a_port_is_about_that_port(rule: str) -> None:
    parsed = Rule.parse(rule)
    assert parsed.covers_port(443) and not parsed.covers_port(80)


@pytest.mark.parametrize(
    "rule",
    [
        *("", " a.test", "a b.test", "https://a.test", "a.test/path", "a.*.test", "**.test", "*a.test", "a..test"),
        *("a.test:0", "a.test:99999", "a.test:http", "1.2.3.4.5", "256.1.1.1", "10.0.0.1/8", "10.0.0.0/33", "0x7f.1"),
        *("2130706433", "127.1", "[::1", "[::1]443", "fe80::1%eth0", "-a.test", "a" * 64 + ".test", "x" * 301, None, 7),
    ],
)
def test_what_is_no_rule_is_refused_with_its_reason(rule: object) -> None:
    with pytest.raises(errors.Invalid, match="is not an egress rule: "):
        EgressPolicy(allow=(rule,))  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [{"mode": "open"}, {"allow": "a.test"}, {"deny": 7}, {"allow": ["a.test"] * 1001}])
def test_what_is_no_policy_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(errors.Invalid):
        EgressPolicy.from_json(given)


def test_an_empty_allow_list_allows_everything_and_deny_wins() -> None:
    assert EgressPolicy().refusal(["a.test"], SOMEWHERE, 80) is None
    policy = EgressPolicy(allow=(".a.test",), deny=("evil.a.test", "*:25", "93.184.216.0/24:22"))
    assert policy.refusal(["a.test"], SOMEWHERE, 80) is None
    assert policy.refusal(["evil.a.test"], SOMEWHERE, 80) == "it is denied by the rule evil.a.test"
    assert policy.refusal(["a.test"], SOMEWHERE, 25) == "it is denied by the rule *:25"
    assert policy.refusal(["a.test"], SOMEWHERE, 22) == "it is denied by the rule 93.184.216.0/24:22"
    assert policy.refusal(["b.test"], SOMEWHERE, 80) == "it is not in the allow list of this sandbox"
    assert policy.refusal([], SOMEWHERE, 80) == "it is not in the allow list of this sandbox"


def test_mode_none_allows_nothing() -> None:
    policy = EgressPolicy(EgressMode.NONE, allow=("*",))
    assert policy.refusal(["a.test"], SOMEWHERE, 80) and policy.name_refusal("a.test")


def test_a_name_is_resolved_only_where_the_answer_could_matter() -> None:
    names_only = EgressPolicy(allow=("a.test:443",))
    assert names_only.name_refusal("a.test", 443) is None
    assert names_only.name_refusal("a.test", 80) is not None
    assert names_only.name_refusal("a.test") is None
    assert names_only.name_refusal("secret.b.test", 443) is not None
    assert EgressPolicy(allow=("a.test", "10.0.0.0/8")).name_refusal("b.test", 443) is not None
    assert EgressPolicy(allow=("a.test", "*:80")).name_refusal("b.test", 80) is None
    assert EgressPolicy(allow=("0.0.0.0/0:443",)).name_refusal("b.test", 443) is None
    assert EgressPolicy(deny=("a.test:25",)).name_refusal("a.test") is None
    assert EgressPolicy(deny=("a.test",)).name_refusal("a.test") is not None


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        *((text, "127.0.0.1") for text in ("0x7f.1", "2130706433", "127.1", "0177.0.0.1", "127.0.0.1.", "0x7F000001")),
        *((text, "127.0.0.1") for text in ("１２７.０.０.１", "127。0。0。1", "::ffff:127.0.0.1", "[::ffff:7f00:1]")),
        ("0", "0.0.0.0"),
        ("[::1]", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
    ],
)
def test_every_spelling_of_an_address_is_that_address(text: str, meant: str) -> None:
    assert parse_host(text) == ip_address(meant)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("EXAMPLE.Org.", "example.org"), ("bücher.test", "xn--bcher-kva.test"), ("ｅｘａｍｐｌｅ.org", "example.org")],
)
def test_every_spelling_of_a_name_is_that_name(text: str, meant: str) -> None:
    assert parse_host(text) == meant


@pytest.mark.parametrize(
    "text",
    ["", ".", "a..b", "a b", "a/b", "a@b", "a%2eb", "fe80::1%lo", "1.2.3.4.5", "08", "256.1", "a\x00b", "é" * 300],
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(errors.MalformedRequest):
        parse_host(text)
