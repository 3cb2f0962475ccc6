"""The provider ``daytona``: machines at Daytona, or at whatever speaks its protocol, through Daytona's own SDK."""

from __future__ import annotations

from importlib.util import find_spec

from paddock.clock import Clock
from paddock.distribution import install_command
from paddock.machine.base import OutputLimits
from paddock.providers.vendor.provider import VendorProvider
from paddock.settings import Settings


def problem(settings: Settings) -> str | None:
    """What is missing before it can even be tried."""
    if find_spec("daytona") is None:
        command = install_command("daytona")
        return f"The provider daytona needs Daytona's SDK, which is not installed. Install it: {command}"
    if not settings.daytona_api_key.get_secret_value():
        return "The provider daytona needs a key: set DAYTONA_API_KEY to one of your Daytona account."
    return None


def provider(settings: Settings, clock: Clock) -> VendorProvider:
    from paddock.providers.daytona.vendor import DaytonaVendor  # the SDK, which nobody else shall have to load

    vendor = DaytonaVendor(
        settings.daytona_api_key.get_secret_value(),
        snapshot=settings.daytona_snapshot,
        api_url=settings.daytona_api_url or settings.daytona_server_url,
        target=settings.daytona_target,
    )
    return VendorProvider(
        vendor,
        settings.home / "daytona",
        clock,
        lease=settings.daytona_lease,
        installation=settings.installation,
        output=OutputLimits(settings.output_spool, settings.stall_timeout),
    )
