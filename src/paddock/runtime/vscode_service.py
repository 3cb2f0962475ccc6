"""VS Code as a service that every sandbox has: code-server, opened on the workspace.

It asks for no password of its own, because nobody reaches it but through the gateway, which does.
"""

from __future__ import annotations

from paddock import errors
from paddock.addons import FOLDER
from paddock.ids import new_process_id
from paddock.machine.base import DEFAULT_USER, WORKSPACE, Machine, ProcessSpec
from paddock.runtime.service_launch import ServiceLaunch

_SECONDS = 30.0
_DATA = "/home/user/.local/share/code-server"
_LOOK = 'command -v code-server || { [ -x "$0" ] && echo "$0"; }; exit 0'
_ADDON = f"{FOLDER}/vscode/bin/code-server"
_OPTIONS = (
    "--auth=none",
    "--disable-telemetry",
    "--disable-update-check",
    "--disable-workspace-trust",
    "--disable-getting-started-override",
    f"--user-data-dir={_DATA}",
    f"--extensions-dir={_DATA}/extensions",
)


class VsCodeService:
    title = "VS Code"

    def __init__(self, port: int) -> None:
        self.port = port

    async def launch(self, machine: Machine) -> ServiceLaunch:
        program = await _look(machine)
        return ServiceLaunch(
            name="vscode",
            port=self.port,
            argv=[program, *_OPTIONS, f"--bind-addr=127.0.0.1:{self.port}", WORKSPACE],
            env={"VSCODE_PROXY_URI": ""},
            ready_path="/healthz",
            ready_timeout=120.0,
        )


async def _look(machine: Machine) -> str:
    """What the template has comes before the add-on."""
    argv = ["/bin/sh", "-c", _LOOK, _ADDON]
    spec = ProcessSpec(new_process_id(), argv, cwd="/", user=DEFAULT_USER, hard_timeout=_SECONDS, label="vscode: look")
    _, stdout, _ = await machine.run(spec, _SECONDS + 5)
    found = stdout.data.decode(errors="replace").strip()
    if not found.startswith("/"):
        raise errors.AddonMissing(
            "This sandbox has no VS Code. Run `paddock addon install vscode` on the server, or use a template that has "
            "code-server.",
            details={"addon": "vscode"},
        )
    return found
