"""The engine's HTTP API, as far as sandboxes need it, and what its answers mean to us.

A definite *no* is :class:`~paddock.errors.ProviderRefused`; whatever leaves the outcome open (no answer, a broken
connection, an internal error) is :class:`~paddock.errors.ProviderUnavailable`.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from paddock import errors
from paddock.providers.docker.address import Address

OLDEST, NEWEST = (1, 41), (1, 47)
"""Of the API: Docker 20.10's, and the latest that this was written against. Engines answer all that lie between."""
_CONNECT_SECONDS = 5.0
_SECONDS = 60.0
_FULL = ("no space left on device", "disk quota exceeded")
_DEFINITE = (
    "oci runtime",
    "oci permission denied",
    "failed to create task",
    "failed to create shim",
    "unknown or invalid runtime",
    "bind source path does not exist",
    "executable file not found",
)
"""What an engine says with status 500 although it means no: the container was not started."""

_WRONG_STATE = ("container state improper", "cannot pause a stopped container")
"""What is a 409 in its meaning, and said with 500 by Podman, and by runc of a container that has just ended."""


class EngineNotFound(errors.NotFound):
    """The engine has no such container or image."""


class DockerEngine:
    def __init__(self, address: Address, *, seconds: float = _SECONDS) -> None:
        self.address = address
        self.version = OLDEST
        self.tls = address.context()
        self.thaw_first = False
        """Set where a runtime cannot end what is frozen."""
        # No connection is kept: one that outlived its engine would break the next request, and a new one costs nothing.
        self._client = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(
                uds=address.socket, verify=self.tls or True, limits=httpx.Limits(max_keepalive_connections=0)
            ),
            base_url=address.url,
            timeout=httpx.Timeout(seconds, connect=_CONNECT_SECONDS),
            trust_env=False,
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def negotiate(self) -> dict[str, Any]:
        """Agree on a version of the API. Raises where there is none, or no engine."""
        said = (await self._send("GET", "/version")).json()
        newest, oldest = _number(said.get("ApiVersion", "")), _number(said.get("MinAPIVersion", "1.24"))
        if newest < OLDEST or oldest > NEWEST:
            raise errors.ProviderRefused(
                f"The engine at {self.address} speaks versions {_text(oldest)} to {_text(newest)} of its API; Paddock "
                f"needs one of {_text(OLDEST)} (Docker 20.10) to {_text(NEWEST)}."
            )
        self.version = min(newest, NEWEST)
        return dict(said)

    async def info(self) -> dict[str, Any]:
        return dict(await self.ask("GET", "/info"))

    # Containers

    async def create(self, name: str, body: Mapping[str, Any]) -> None:
        await self.ask("POST", "/containers/create", params={"name": name}, body=body)

    async def start(self, name: str) -> None:
        await self.ask("POST", f"/containers/{name}/start")

    async def inspect(self, name: str, *, size: bool = False) -> dict[str, Any] | None:
        """None is definite: there is no such container."""
        try:
            return dict(await self.ask("GET", f"/containers/{name}/json", params={"size": int(size)}))
        except EngineNotFound:
            return None

    async def containers(self, label: str) -> list[dict[str, Any]]:
        """All with this label, whatever their state."""
        filters = json.dumps({"label": [label]})
        return list(await self.ask("GET", "/containers/json", params={"all": 1, "filters": filters}))

    async def pause(self, name: str) -> None:
        await self.ask("POST", f"/containers/{name}/pause")

    async def unpause(self, name: str) -> None:
        await self.ask("POST", f"/containers/{name}/unpause")

    async def kill(self, name: str) -> None:
        """Ended when this returns; one that has ended already is fine."""
        try:
            await self._end("POST", name, "/kill", {"signal": "KILL"})
        except errors.Conflict:
            return
        await self.ended(name)

    async def ended(self, name: str) -> int:
        """Waits for its end, and answers with its exit code."""
        said = await self.ask("POST", f"/containers/{name}/wait", params={"condition": "not-running"}, patient=True)
        return int(said.get("StatusCode", -1))

    async def update(self, name: str, limits: Mapping[str, Any]) -> None:
        await self.ask("POST", f"/containers/{name}/update", body=limits)

    async def remove(self, name: str) -> None:
        """With its processes and its volumes. One that is not there, or on its way out, is fine."""
        try:
            await self._end("DELETE", name, "", {"force": 1, "v": 1})
        except (EngineNotFound, errors.Conflict):
            if await self.inspect(name) is not None:
                await self.ask(
                    "POST",
                    f"/containers/{name}/wait",
                    params={"condition": "removed"},
                    patient=True,
                    missing_is_fine=True,
                )

    async def _end(self, method: str, name: str, what: str, params: Mapping[str, Any]) -> None:
        if self.thaw_first:
            with contextlib.suppress(EngineNotFound, errors.Conflict, errors.ProviderUnavailable):
                await self.unpause(name)
        await self.ask(method, f"/containers/{name}{what}", params=params)

    async def exec(self, name: str, words: Sequence[str]) -> str:
        """A program that is to run in it, with its input and output open. Answers with its number."""
        streams = {f"Attach{stream}": True for stream in ("Stdin", "Stdout", "Stderr")}
        body = {**streams, "Tty": False, "User": "0:0", "Cmd": list(words)}
        return str((await self.ask("POST", f"/containers/{name}/exec", body=body))["Id"])

    # Files, and where to keep them

    async def put(self, name: str, folder: str, archive: bytes) -> None:
        """Into a folder of a container, running or not."""
        path, params = self.path(f"/containers/{name}/archive"), {"path": folder}
        self._judge(await self._send("PUT", path, params=params, content=archive))

    async def has_file(self, name: str, path: str) -> bool:
        response = await self._send("HEAD", self.path(f"/containers/{name}/archive"), params={"path": path})
        if response.status_code == 404:
            return False
        self._judge(response)
        return True

    async def make_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """One that is there already is fine."""
        await self.ask("POST", "/volumes/create", body={"Name": name, "Labels": dict(labels)})

    async def has_volume(self, name: str) -> bool:
        try:
            await self.ask("GET", f"/volumes/{name}")
        except EngineNotFound:
            return False
        return True

    # Images

    async def image(self, name: str) -> dict[str, Any] | None:
        try:
            return dict(await self.ask("GET", f"/images/{name}/json"))
        except EngineNotFound:
            return None

    async def images(self) -> list[dict[str, Any]]:
        return list(await self.ask("GET", "/images/json"))

    async def pull(self, name: str) -> None:
        """The answer is a stream of reports; an error is one of them."""
        repository, tag = _split(name)
        response = await self._send(
            "POST", self.path("/images/create"), params={"fromImage": repository, "tag": tag}, patient=True
        )
        self._judge(response)
        for line in response.text.splitlines():
            if line.strip() and "error" in (report := json.loads(line)):
                raise errors.ProviderRefused(f"The image {name!r} could not be pulled: {report['error']}")

    # The wire

    async def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        patient: bool = False,
        missing_is_fine: bool = False,
    ) -> Any:
        """``patient``: the engine answers when something has happened, however long that takes."""
        response = await self._send(method, self.path(path), params=params, body=body, patient=patient)
        if missing_is_fine and response.status_code == 404:
            return {}
        self._judge(response)
        try:
            return response.json() if response.content else {}
        except ValueError as error:
            raise errors.ProviderUnavailable(f"The engine at {self.address} answered nonsense: {error}") from error

    def path(self, path: str) -> str:
        return f"/v{_text(self.version)}{path}"

    async def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        content: bytes | None = None,
        patient: bool = False,
    ) -> httpx.Response:
        given: dict[str, Any] = {"timeout": httpx.Timeout(None, connect=_CONNECT_SECONDS)} if patient else {}
        try:
            return await self._client.request(method, path, params=params, json=body, content=content, **given)
        except httpx.TimeoutException as error:
            raise errors.ProviderTimeout(f"The engine at {self.address} did not answer in time.") from error
        except (httpx.HTTPError, OSError) as error:
            raise errors.ProviderUnavailable(
                f"The engine at {self.address} does not answer ({error}). Is it running, and may this user reach it?"
            ) from error

    def _judge(self, response: httpx.Response) -> None:
        status = response.status_code
        if status < 400:
            return
        said = _message(response)
        if status == 404:
            raise EngineNotFound(said)
        lower = said.lower()
        if status == 409 or any(sign in lower for sign in _WRONG_STATE):
            raise errors.Conflict(said)
        if any(sign in lower for sign in _FULL):
            raise errors.ProviderRefused(f"The engine's disk is full: {said} Make room there (docker system prune).")
        if status < 500 or any(sign in lower for sign in _DEFINITE):
            raise errors.ProviderRefused(f"The engine refused: {said}")
        raise errors.ProviderUnavailable(f"The engine failed ({status}): {said}")


def _message(response: httpx.Response) -> str:
    try:
        said = response.json()["message"]
    except (ValueError, KeyError, TypeError):
        said = response.text
    return str(said).strip()[:500] or f"status {response.status_code}, without a word."


def _split(name: str) -> tuple[str, str]:
    """A name without a tag means ``latest``; one with a digest has it where the tag would be."""
    repository, at, digest = name.partition("@")
    if at:
        return repository, digest
    head, colon, tag = name.rpartition(":")
    return (head, tag) if colon and "/" not in tag else (name, "latest")


def _number(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)


def _text(number: tuple[int, int]) -> str:
    return f"{number[0]}.{number[1]}"
