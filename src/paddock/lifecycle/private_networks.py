"""Who may open private networks for a sandbox: only the operator, by a setting or as an admin.

A sandbox's ``private`` list holds what an admin has opened for it. Members choose among public destinations, and may
keep or narrow what an admin opened: a member's new ``allow`` list keeps only those openings that it names again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from paddock.accounts.accounts import Principal
from paddock.egress.addresses import ClosedEntry, closed_entry
from paddock.egress.policy import EgressPolicy
from paddock.egress.rules import Rule
from paddock.errors import Forbidden, Invalid
from paddock.models import EgressRules
from paddock.settings import Settings


def opened(who: Principal, before: EgressPolicy, rules: EgressRules, settings: Settings) -> tuple[str, ...]:
    """The sandbox's private openings once these rules apply. Raises Forbidden for those that this caller may
    not open."""
    reachable = _reachable(settings.egress_reachable)
    allow = _private_of("allow", rules.allow or (), reachable, is_admin=who.is_admin)
    private = _private_of("private", rules.private or (), reachable, is_admin=who.is_admin)
    if who.is_admin:
        return _by_admin(before, rules, allow, private)
    return _by_member(before, rules, [*allow, *private])


def _by_admin(
    before: EgressPolicy, rules: EgressRules, allow: Sequence[Rule], private: Sequence[Rule]
) -> tuple[str, ...]:
    named = [rule.text for rule in allow]
    if rules.private is not None:
        kept = [rule.text for rule in private]
    elif rules.allow is not None:
        kept = [
            text for text in before.private if text not in before.allow
        ]  # openings of the old list are dropped with it
    else:
        kept = list(before.private)
    return tuple(dict.fromkeys([*kept, *named]))


def _by_member(before: EgressPolicy, rules: EgressRules, asked: Sequence[Rule]) -> tuple[str, ...]:
    present = [Rule.parse(text) for text in before.private]
    wrong = [rule for rule in asked if not any(own.includes(rule) for own in present)]
    if wrong:
        raise _refused(wrong)
    if rules.allow is None and rules.private is None:
        return before.private
    again = [Rule.parse(text) for text in (*(rules.allow or ()), *(rules.private or ()))]
    kept = [rule.text for rule in again if any(own.includes(rule) for own in present)]
    return tuple(dict.fromkeys(kept))


def _private_of(field: str, texts: Iterable[str], reachable: Sequence[Rule], *, is_admin: bool) -> list[Rule]:
    """The rules that need an opening. ``reachable``: what the server's settings open to every sandbox."""
    found: list[Rule] = []
    for rule in map(Rule.parse, texts):
        kind = closed_entry(rule, reachable)
        if kind is ClosedEntry.NEVER:
            raise Forbidden(
                f"{rule.text!r} is the host itself, metadata of a cloud or a reserved range. Only the operator can "
                "open it, for all sandboxes, with PADDOCK_EGRESS_REACHABLE.",
                details={"field": field, "entries": [rule.text]},
            )
        if field == "private":
            alone = closed_entry(rule)
            if rule.domain is None and alone is not None and kind is None:
                continue  # open to every sandbox by the server's settings
            if rule.domain is None and alone is not ClosedEntry.PRIVATE:
                raise Invalid(
                    f"{rule.text!r} is not a private network. Name private networks and domains one by one.",
                    details={"field": field},
                )
            if rule.domain is not None and not any(own.includes(rule) for own in reachable):
                kind = ClosedEntry.PRIVATE
        if kind is ClosedEntry.AROUND_PRIVATE and not is_admin:
            raise _refused([rule])
        if kind is ClosedEntry.PRIVATE:
            found.append(rule)
    return found


def _refused(rules: Sequence[Rule]) -> Forbidden:
    texts = [rule.text for rule in rules]
    return Forbidden(
        f"{', '.join(texts[:5])}: private networks are the operator's to open. An admin can open them for this "
        "sandbox, or PADDOCK_EGRESS_REACHABLE for all of them. '*' or an empty list means everything public.",
        details={"field": "allow", "entries": texts[:20]},
    )


@lru_cache(maxsize=4)
def _reachable(texts: tuple[str, ...]) -> tuple[Rule, ...]:
    return tuple(Rule.parse(text) for text in texts)
