"""Services built into every sandbox: the browser, and VS Code."""

from __future__ import annotations

from paddock import errors
from paddock.addons import FOLDER
from paddock.browser import PORT, installation
from paddock.ids import new_process_id
from paddock.machine.base import DEFAULT_USER, WORKSPACE, Machine, ProcessSpec
from paddock.runtime.service_launch import ServiceLaunch

_FIND_TIMEOUT_S = 30.0
_DATA = "/home/user/.local/share/code-server"
_FIND_SCRIPT = 'command -v code-server || { [ -x "$0" ] && echo "$0"; }; exit 0'
_ADDON_PATH = f"{FOLDER}/vscode/bin/code-server"
_OPTIONS = (
    "--auth=none",
    "--disable-telemetry",
    "--disable-update-check",
    "--disable-workspace-trust",
    "--disable-getting-started-override",
    f"--user-data-dir={_DATA}",
    f"--extensions-dir={_DATA}/extensions",
)


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


class VsCodeService:
    """code-server, opened on the workspace. It has no password of its own: it is reachable only through the gateway,
    which authenticates."""

    title = "VS Code"

    def __init__(self, port: int) -> None:
        self.port = port

    async def launch(self, machine: Machine) -> ServiceLaunch:
        program = await _find_program(machine)
        return ServiceLaunch(
            name="vscode",
            port=self.port,
            argv=[program, *_OPTIONS, f"--bind-addr=127.0.0.1:{self.port}", WORKSPACE],
            env={"VSCODE_PROXY_URI": ""},
            ready_path="/healthz",
            ready_timeout=120.0,
        )


async def _find_program(machine: Machine) -> str:
    """Path of code-server: that of the template if there is one, else of the add-on."""
    argv = ["/bin/sh", "-c", _FIND_SCRIPT, _ADDON_PATH]
    spec = ProcessSpec(
        new_process_id(), argv, cwd="/", user=DEFAULT_USER, hard_timeout=_FIND_TIMEOUT_S, label="vscode: look"
    )
    _, stdout, _ = await machine.run(spec, _FIND_TIMEOUT_S + 5)
    found = stdout.data.decode(errors="replace").strip()
    if not found.startswith("/"):
        raise errors.AddonMissing(
            "This sandbox has no VS Code. Run `paddock addon install vscode` on the server, or use a template that has "
            "code-server.",
            details={"addon": "vscode"},
        )
    return found
