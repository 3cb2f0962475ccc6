"""Installs the browser server in a sandbox, and finds Node.js, Playwright and Chromium there.

Programs on the template's PATH are preferred to those of the server's add-on. Everything goes through the Machine, so
it works on every provider whose template has the three.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from paddock import errors
from paddock.addons import FOLDER
from paddock.ids import new_process_id
from paddock.machine.base import DEFAULT_USER, Machine, ProcessSpec

_INSIDE = Path(__file__).with_name("inside")
_ADDON = f"{FOLDER}/browser"
_SECONDS = 30.0
_MIN_NODE = 20

_NODES = f'"$(command -v node)" {_ADDON}/bin/node'
_CHROMIUMS = f"chromium chromium-browser google-chrome google-chrome-stable {_ADDON}/bin/chromium"
_PLAYWRIGHT = f"""
for folder in {_ADDON}/node_modules /usr/local/lib/node_modules /usr/lib/node_modules; do
  for package in "$folder/playwright-core" "$folder/playwright/node_modules/playwright-core"; do
    [ -f "$package/package.json" ] && echo "playwright $package" && break 2
  done
done
"""
_PROBE = f"""
for node in {_NODES}; do
  [ -x "$node" ] || continue
  version=$("$node" -p 'process.versions.node.split(".")[0]' 2>/dev/null) || continue
  [ "$version" -ge {_MIN_NODE} ] && echo "node $node" && break
done
for name in {_CHROMIUMS}; do
  program=$(command -v "$name") && echo "chromium $program" && break
done
{_PLAYWRIGHT}
[ -f {_ADDON}/fonts.conf ] && echo "fonts {_ADDON}/fonts.conf"
exit 0
"""
PRESENCE = f"""
for node in {_NODES}; do [ -x "$node" ] && break; done
[ -x "$node" ] || exit 0
for name in {_CHROMIUMS}; do command -v "$name" >/dev/null && break; done
command -v "$name" >/dev/null || exit 0
[ -n "$({_PLAYWRIGHT})" ] && echo browser
exit 0
"""
"""Prints `browser` if all three seem to exist, without starting any: for lists of tools."""
_CALLED = {"node": f"Node.js {_MIN_NODE} or later", "chromium": "Chromium", "playwright": "Playwright"}
_FOUND = {*_CALLED, "fonts"}


@dataclass(frozen=True, slots=True)
class BrowserProgram:
    argv: tuple[str, ...]
    env: dict[str, str]


async def install(machine: Machine) -> BrowserProgram:
    """Install the browser server, and return its command line. Raises AddonMissing if a program is missing."""
    found = await _look(machine)
    if missing := [what for part, what in _CALLED.items() if part not in found]:
        raise errors.AddonMissing(
            f"This sandbox has no {' and no '.join(missing)}. Run `paddock addon install browser` on the server "
            "(`--full` for templates without Node.js), or use a template that has a browser.",
            details={"addon": "browser"},
        )
    fingerprint, files = _program()
    folder = f"{FOLDER}/browser-server/{fingerprint}"
    for name, content in files.items():
        await machine.write_file(f"{folder}/{name}", _whole(content), user="root")
    env = {"PADDOCK_CHROMIUM": found["chromium"], "PADDOCK_PLAYWRIGHT": found["playwright"]}
    if "fonts" in found:
        env["FONTCONFIG_FILE"] = found["fonts"]
    return BrowserProgram((found["node"], f"{folder}/main.js"), env)


async def _look(machine: Machine) -> dict[str, str]:
    argv = ["/bin/sh", "-c", _PROBE]
    spec = ProcessSpec(new_process_id(), argv, cwd="/", user=DEFAULT_USER, hard_timeout=_SECONDS, label="browser: look")
    ended, stdout, stderr = await machine.run(spec, _SECONDS + 5)
    if ended.exit_code != 0:
        said = stderr.data.decode(errors="replace").strip()[-500:]
        raise errors.ProviderRefused(f"The sandbox could not be searched for a browser: {said or ended.status.value}")
    lines = (line.partition(" ") for line in stdout.data.decode(errors="replace").splitlines())
    return {part: path for part, _, path in lines if part in _FOUND and path.startswith("/")}


@cache
def _program() -> tuple[str, dict[str, bytes]]:
    files = {path.name: path.read_bytes() for path in sorted(_INSIDE.iterdir()) if path.suffix in (".js", ".html")}
    seen = hashlib.sha256()
    for name, content in files.items():
        seen.update(f"{name}\n{len(content)}\n".encode() + content)
    return seen.hexdigest()[:16], files


async def _whole(content: bytes) -> AsyncIterator[bytes]:
    yield content
