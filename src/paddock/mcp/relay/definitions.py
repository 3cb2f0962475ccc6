"""How one server is started or reached, with ``${NAME}`` replaced by variables of the sandbox's environment."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from paddock import errors, json_limits, paths
from paddock.machine.base import DEFAULT_USER, WORKSPACE
from paddock.models.mcp import McpDocument, McpServer, McpTransport
from paddock.tools.agents import HOMES

_INSTALLED = HOMES + 'command -v "$1" >/dev/null || { echo "$1 is not installed here." >&2; exit 127; }; '
# A Codex without this command takes its name for a prompt, and gives no useful error.
_HAS_SERVER = (
    '"$@" --help 2>/dev/null | grep -q "codex mcp-server" || { echo "$(codex --version) has no MCP server: 0.154.0 '
    'took it out. Install @openai/codex@0.153.4, or use the tool codex, which needs none." >&2; exit 1; }; '
)
_RUN = 'exec "$@"'
PRESETS: dict[str, tuple[str, ...]] = {
    "claude": ("/bin/sh", "-c", _INSTALLED + _RUN, "claude", "claude", "mcp", "serve"),
    "codex": ("/bin/sh", "-c", _INSTALLED + _HAS_SERVER + _RUN, "codex", "codex", "mcp-server"),
}
FILE = ".mcp.json"
"""In the workspace."""

_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
"""Matches after the ``${``."""
_SECRET_NAME = re.compile(r"key|token|secret|passw|auth|credential", re.IGNORECASE)
_HIDDEN = "***"
MAX_FILLED = 256 * 1024
"""Maximum characters of a server after substitution: a short text can repeat a long variable many times."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A server's definition after substitution. Holds secrets: must not be shown or logged."""

    transport: McpTransport
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = WORKSPACE
    user: str = DEFAULT_USER
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Identifies the definition: if it changes, it is another server."""
        said = [self.transport.value, self.argv, sorted(self.env.items()), self.cwd, self.user, self.url]
        return hashlib.sha256(json.dumps([*said, sorted(self.headers.items())]).encode()).hexdigest()


def define(
    server: McpServer, env: Mapping[str, str], *, workspace: str = WORKSPACE, user: str = DEFAULT_USER
) -> Definition:
    """Substitute variables. Raises Invalid if one has no value, since half an address or an empty secret is useless."""
    left = MAX_FILLED

    def counted(text: str) -> str:
        nonlocal left
        left -= len(text)
        if left < 0:
            raise errors.Invalid(
                f"With its variables filled in, this server is over {MAX_FILLED} characters. Put what is long into a "
                "file of the sandbox."
            )
        return text

    def filled(text: str) -> str:
        return _replace_variables(counted(text), lambda found: counted(_value(found, env)))

    def each(values: Mapping[str, str]) -> dict[str, str]:
        return {name: filled(value) for name, value in values.items()}

    if server.transport is not McpTransport.STDIO:
        return Definition(server.transport, url=filled(server.address or ""), headers=each(server.headers))
    argv = PRESETS[server.preset] if server.preset else (filled(server.command or ""), *map(filled, server.args))
    return Definition(
        server.transport,
        argv=argv,
        env=each(server.env),
        cwd=paths.absolute(filled(server.cwd or workspace), workspace=workspace),
        user=user,
    )


def read_document(text: bytes, where: str = FILE) -> dict[str, McpServer]:
    """The servers that a document defines. Raises Invalid with its first error."""
    json_limits.check(text)
    try:
        return McpDocument.model_validate_json(text).servers
    except ValidationError as problem:
        first = problem.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise errors.Invalid(f"{where} is not right: {place + ': ' if place else ''}{first['msg']}") from None


def masked(server: McpServer) -> dict[str, Any]:
    """For display: possible secrets are hidden; a ``${NAME}`` that stands for one is not."""
    args = [_hide_argument(arg, server.args[number - 1] if number else "") for number, arg in enumerate(server.args)]
    return {
        "type": server.transport,
        "preset": server.preset,
        "command": server.command,
        "args": args,
        "env": {name: _hide(value) for name, value in server.env.items()},
        "cwd": server.cwd,
        "url": None if server.address is None else _hide_in_url(server.address),
        "headers": {name: _hide(value) for name, value in server.headers.items()},
        "disabled": server.disabled,
    }


def _replace_variables(text: str, value: Callable[[re.Match[str]], str]) -> str:
    """Searches once per closing brace, however many openings precede it, so the run time is linear."""
    done: list[str] = []
    at, begin = 0, text.find("${")
    while begin >= 0 and (end := text.find("}", begin)) >= 0:
        while 0 <= begin < end:
            if (found := _VARIABLE.match(text, begin + 2, end + 1)) is not None:
                done += [text[at:begin], value(found)]
                at = end + 1
                break
            begin = text.find("${", begin + 2, end)
        begin = text.find("${", end)
    return "".join([*done, text[at:]])


def _value(found: re.Match[str], env: Mapping[str, str]) -> str:
    name, default = found[1], found[2]
    value = env.get(name) or default
    if value is None:
        raise errors.Invalid(f"The sandbox's environment has no {name}, which this server is defined with.")
    return value


def _hide(value: str) -> str:
    """Shows only what cannot contain a secret: variables, and the scheme of an authorization header."""
    rest = _replace_variables(value, lambda found: "") if ":-" not in value else value
    return value if rest.strip() in ("", "Bearer", "Basic", "token") and rest != value else _HIDDEN if value else ""


def _hide_argument(arg: str, before: str) -> str:
    name, equals, value = arg.partition("=")
    if equals and _SECRET_NAME.search(name):
        return f"{name}={_hide(value)}"
    return _hide(arg) if before.startswith("-") and "=" not in before and _SECRET_NAME.search(before) else arg


def _hide_in_url(url: str) -> str:
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    authority = f"{_HIDDEN}@{authority.rpartition('@')[2]}" if "@" in authority else authority
    path, question, query = path.partition("?")
    return f"{scheme}://{authority}{slash}{path}{question}{_hide(query)}"
