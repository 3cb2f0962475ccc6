"""The browser as a service built into every sandbox."""

from __future__ import annotations

from paddock.browser import PORT, installation
from paddock.machine.base import Machine
from paddock.runtime.service_launch import ServiceLaunch


class BrowserService:
    title = "The browser"
    port = PORT

    async def launch(self, machine: Machine) -> ServiceLaunch:
        program = await installation.install(machine)
        return ServiceLaunch(
            name="browser",
            port=PORT,
            argv=program.argv,
            env=program.env,
            ready_path="/health",
            ready_timeout=60.0,
        )
