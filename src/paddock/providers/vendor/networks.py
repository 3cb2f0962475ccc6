"""Egress rules that no vendor's network settings can implement."""

from __future__ import annotations

from paddock import errors
from paddock.egress.addresses import closed_entry
from paddock.egress.policy import EgressPolicy
from paddock.egress.rules import Rule


def check_public(policy: EgressPolicy) -> None:
    """A private address would be in the vendor's network, and what it is there is unknown."""
    named = [*policy.private, *(text for text in policy.allow if closed_entry(Rule.parse(text)) is not None)]
    if named:
        raise errors.Unsupported(
            f"{', '.join(named[:5])}: private networks cannot be opened for a machine at a vendor, where they would be "
            "the vendor's own. Leave them out, or use a provider on your own machines."
        )
