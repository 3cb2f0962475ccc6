"""What a sandbox may connect to: a mode, and allow and deny lists. Deny takes precedence."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from paddock import errors
from paddock.egress.rules import Rule
from paddock.http1.hosts import Address

MOST_RULES = 1000


class EgressMode(StrEnum):
    NONE = "none"
    """No connections."""
    PROXY = "proxy"
    """No route out; an HTTP and CONNECT proxy inside carries what the lists allow."""
    FULL = "full"
    """TCP connections of all programs are carried, to what the lists allow."""


@dataclass(frozen=True, slots=True)
class EgressPolicy:
    mode: EgressMode = EgressMode.PROXY
    allow: tuple[str, ...] = ()
    """Empty: everything public is allowed."""
    deny: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    """Private networks, and names that may resolve into them, which an admin has opened for this sandbox. They are
    allowed regardless of ``allow``; ``deny`` still takes precedence."""
    _allow: tuple[Rule, ...] = field(init=False, repr=False, compare=False, default=())
    _deny: tuple[Rule, ...] = field(init=False, repr=False, compare=False, default=())
    _private: tuple[Rule, ...] = field(init=False, repr=False, compare=False, default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "_allow", _parsed(self.allow))
        object.__setattr__(self, "_deny", _parsed(self.deny))
        object.__setattr__(self, "_private", _parsed(self.private))
        if any(rule.everything for rule in self._private):
            raise errors.Invalid("The list 'private' names networks and domains, one by one; '*' is not one.")

    def to_json(self) -> dict[str, Any]:
        """``private`` is present only if an admin opened something: policies stored by older versions open nothing."""
        found: dict[str, Any] = {"mode": self.mode.value, "allow": list(self.allow), "deny": list(self.deny)}
        return found | {"private": list(self.private)} if self.private else found

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> Self:
        try:
            mode = EgressMode(given.get("mode", EgressMode.PROXY))
        except ValueError as trouble:
            known = ", ".join(EgressMode)
            raise errors.Invalid(f"{given['mode']!r} is not an egress mode; there are: {known}.") from trouble
        return cls(mode, _texts(given, "allow"), _texts(given, "deny"), _texts(given, "private"))

    @property
    def has_names(self) -> bool:
        """Whether any rule is about a domain, so that an address alone does not decide."""
        return any(rule.domain is not None for rule in (*self._allow, *self._deny, *self._private))

    @property
    def opens_names(self) -> bool:
        """Whether a name can open a private address."""
        return any(rule.domain is not None for rule in self._private)

    def refusal(self, names: Collection[str], address: Address, port: int) -> str | None:
        """Why this connection is refused, or None. ``names`` are the known names of the address."""
        if self.mode is EgressMode.NONE:
            return "this sandbox has no egress"
        for rule in self._deny:
            if rule.covers_port(port) and (rule.covers_address(address) or any(map(rule.covers_name, names))):
                return f"it is denied by the rule {rule.text}"
        if not self._allow:
            return None
        for rule in (*self._allow, *self._private):
            if rule.covers_port(port) and (rule.covers_address(address) or any(map(rule.covers_name, names))):
                return None
        return "it is not in the allow list of this sandbox"

    def name_refusal(self, name: str, port: int | None = None) -> str | None:
        """Why a name need not even be resolved, or None. A port of None is not known yet.

        If the allow list has domains, this name must be among them: resolving arbitrary names would let data out
        through DNS queries. With addresses only, the decision is made after the name is resolved.
        """
        if self.mode is EgressMode.NONE:
            return "this sandbox has no egress"
        for rule in self._deny:
            if rule.covers_port(port) and rule.covers_name(name):
                return f"it is denied by the rule {rule.text}"
        if all(rule.network is not None for rule in self._allow):
            return None
        rules = (*self._allow, *self._private)
        if any(rule.covers_name(name) and (port is None or rule.covers_port(port)) for rule in rules):
            return None
        return "it is not in the allow list of this sandbox"

    def allows_address(self, address: Address, port: int) -> bool:
        """Whether an address rule of the allow list covers this address, so that no name is needed."""
        rules = (rule for rule in (*self._allow, *self._private) if rule.network is not None)
        return any(rule.covers_address(address) and rule.covers_port(port) for rule in rules)

    def opens(self, address: Address, names: Collection[str], port: int | None) -> bool:
        """Whether an admin has opened this private address: by itself, or by a name that was resolved to it."""
        return any(
            (port is None or rule.covers_port(port))
            and (rule.covers_address(address) if rule.network is not None else any(map(rule.covers_name, names)))
            for rule in self._private
        )


def _parsed(texts: tuple[str, ...]) -> tuple[Rule, ...]:
    if len(texts) > MOST_RULES:
        raise errors.Invalid(f"An egress list has at most {MOST_RULES} entries; this one has {len(texts)}.")
    return tuple(Rule.parse(text) for text in texts)


def _texts(given: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = given.get(key, ())
    if isinstance(value, str) or not isinstance(value, Collection):
        raise errors.Invalid(f"The egress list {key!r} must be a list of texts.")
    return tuple(value)
