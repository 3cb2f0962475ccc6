"""The provider ``e2b``: machines at E2B, or at whatever speaks its protocol, through E2B's own SDK."""

from __future__ import annotations

from importlib.util import find_spec

from paddock.clock import Clock
from paddock.distribution import install_command
from paddock.machine.base import OutputLimits
from paddock.providers.vendor.provider import VendorProvider
from paddock.settings import Settings


def problem(settings: Settings) -> str | None:
    """What is missing before it can even be tried."""
    if find_spec("e2b") is None:
        return f"The provider e2b needs E2B's SDK, which is not installed. Install it: {install_command('e2b')}"
    if not settings.e2b_api_key.get_secret_value():
        return "The provider e2b needs a key: set E2B_API_KEY to one of your E2B account."
    return None


def provider(settings: Settings, clock: Clock) -> VendorProvider:
    from paddock.providers.e2b.vendor import E2BVendor  # the SDK, which nobody else shall have to load

    vendor = E2BVendor(
        settings.e2b_api_key.get_secret_value(),
        template=settings.e2b_template_id,
        at_end=settings.e2b_backstop,
        api_url=settings.e2b_api_url,
        sandbox_url=settings.e2b_sandbox_url,
        domain=settings.e2b_domain,
    )
    return VendorProvider(
        vendor,
        settings.home / "e2b",
        clock,
        lease=settings.e2b_timeout,
        installation=settings.installation,
        output=OutputLimits(settings.output_spool, settings.stall_timeout),
    )
