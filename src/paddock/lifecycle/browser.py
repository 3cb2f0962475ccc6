"""The browser as a service that every sandbox has."""

from __future__ import annotations

from paddock.browser import PORT, installation
from paddock.lifecycle.launching import Launch
from paddock.machine.base import Machine


class BrowserService:
    title = "The browser"
    port = PORT

    async def launch(self, machine: Machine) -> Launch:
        brought = await installation.bring(machine)
        return Launch(
            name="browser",
            port=PORT,
            argv=brought.argv,
            env=brought.env,
            ready_path="/health",
            ready_timeout=60.0,
        )
