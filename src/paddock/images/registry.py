"""Speaks the OCI distribution protocol with registries: signs in, reads manifests, downloads blobs."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

import httpx

from paddock import errors
from paddock.images.manifest import ACCEPTED, MAX_DOCUMENT_BYTES, Descriptor
from paddock.images.reference import Reference
from paddock.images.registries import Endpoint, Registries
from paddock.images.registry_auth import RegistryAuth

_CONNECT_TIMEOUT_S = 20.0
_STALL_TIMEOUT_S = 60.0
_MIN_BYTES_PER_STALL_TIMEOUT = 64 << 10
_CHUNK = 1 << 20
_MAX_REDIRECTS = 5
_TRIES = 4
_TRANSIENT = (408, 429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class Document:
    """A manifest or an index, as its registry keeps it."""

    content: bytes
    media_type: str
    digest: str


class RegistryClient:
    """For one pull: what it learns about sign-in and working endpoints is forgotten with it."""

    def __init__(self, registries: Registries, *, stall_timeout: float = _STALL_TIMEOUT_S) -> None:
        self._registries = registries
        self._stall_timeout = stall_timeout
        self._clients: dict[str, httpx.AsyncClient] = {}
        self._auth = RegistryAuth(registries)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        for client in self._clients.values():
            await client.aclose()

    async def manifest(self, reference: Reference, descriptor: Descriptor | None = None) -> Document:
        """What the reference names; with ``descriptor`` the manifest that an index named, of exactly this digest."""
        wanted = descriptor.digest if descriptor else reference.wanted
        headers = {"Accept": ", ".join(ACCEPTED)}
        for endpoint in self._registries.endpoints(reference.registry):
            try:
                path = f"/v2/{reference.repository}/manifests/{wanted}"
                async with self._get(endpoint, reference, path, headers) as answer:
                    content = await self._small(answer)
                digest = _checked(content, wanted, answer.headers.get("docker-content-digest"))
                return Document(content, answer.headers.get("content-type", ""), digest)
            except errors.PaddockError:
                if endpoint.mirrored is None:
                    raise
        raise errors.InternalError("A registry has no endpoint.")  # the last endpoint always raises or answers

    async def blob(self, reference: Reference, descriptor: Descriptor, begin: int) -> AsyncIterator[bytes]:
        """Its bytes from ``begin`` on, or from 0 on where the first chunk is empty: no server need know ranges.

        A connection that breaks is made again where it ended, as long as there is some progress.
        """
        at, tries = begin, 0
        endpoints = self._registries.endpoints(reference.registry)
        while True:
            endpoint = endpoints[0]
            before = at
            try:
                async for chunk in self._blob_once(endpoint, reference, descriptor, at):
                    at = at + len(chunk) if chunk else 0
                    before = min(before, at)
                    yield chunk
                return
            except errors.PaddockError as error:
                if len(endpoints) > 1:
                    endpoints.pop(0)
                    continue
                tries = 1 if at - before >= _MIN_BYTES_PER_STALL_TIMEOUT else tries + 1
                if not isinstance(error, errors.RegistryUnavailable) or tries >= _TRIES:
                    raise
                await asyncio.sleep(min(2.0 ** (tries - 1) * 0.2, 5.0))

    async def _blob_once(
        self, endpoint: Endpoint, reference: Reference, descriptor: Descriptor, begin: int
    ) -> AsyncIterator[bytes]:
        path = f"/v2/{reference.repository}/blobs/{descriptor.digest}"
        headers = {"Range": f"bytes={begin}-"} if begin else {}
        async with self._get(endpoint, reference, path, headers) as answer:
            if begin and answer.status_code != httpx.codes.PARTIAL_CONTENT:
                begin = 0
                yield b""
            left = descriptor.size - begin
            progress = _Progress(self._stall_timeout, reference.registry)
            pending, problem = bytearray(), None
            try:
                async for chunk in answer.aiter_raw():
                    left -= len(chunk)
                    if left < 0:
                        raise errors.ImageCorrupt(
                            f"{reference.registry} sent more than the {descriptor.size} bytes of {descriptor.digest}."
                        )
                    progress.add(len(chunk))
                    pending += chunk
                    if len(pending) >= _CHUNK:
                        yield bytes(pending)
                        pending.clear()
            except httpx.HTTPError as error:
                problem = _unreachable(reference.registry, error)
            except errors.RegistryUnavailable as error:
                problem = error
            if pending:  # what has come is kept, however it ended
                yield bytes(pending)
            if problem is not None:
                raise problem
            if left:
                raise errors.RegistryUnavailable(
                    f"{reference.registry} ended the download of {descriptor.digest} {left} bytes too early."
                )

    @asynccontextmanager
    async def _get(
        self, endpoint: Endpoint, reference: Reference, path: str, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx.Response]:
        """The answer with its body unread. Signs in and follows redirects; errors are raised."""
        client = self._client(endpoint)
        repository = reference.repository
        answer = await self._send(client, endpoint, f"{endpoint.url}{path}", headers, repository)
        try:
            if answer.status_code == httpx.codes.UNAUTHORIZED:
                challenge = answer.headers.get_list("www-authenticate")
                await answer.aclose()
                await self._auth.sign_in(client, endpoint, repository, challenge)
                answer = await self._send(client, endpoint, f"{endpoint.url}{path}", headers, repository)
            if not answer.is_success:
                raise await _failure(answer, endpoint, reference)
            yield answer
        finally:
            await answer.aclose()

    async def _send(
        self, client: httpx.AsyncClient, endpoint: Endpoint, url: str, headers: Mapping[str, str], repository: str
    ) -> httpx.Response:
        """Credentials go to the registry alone, never to where it redirects to."""
        for tries in range(_TRIES):
            target, redirects = httpx.URL(url), 0
            while True:
                own = target.netloc == httpx.URL(endpoint.url).netloc and target.scheme == urlsplit(endpoint.url).scheme
                sent = {"Accept-Encoding": "identity", **headers}
                if own and (authorization := self._auth.header(endpoint, repository)):
                    sent["Authorization"] = authorization
                try:
                    answer = await client.send(client.build_request("GET", target, headers=sent), stream=True)
                except httpx.HTTPError as error:
                    raise _unreachable(endpoint.name, error) from None
                if not answer.is_redirect:
                    break
                await answer.aclose()
                redirects += 1
                target = target.join(answer.headers.get("location", ""))
                secure = target.scheme == "https" or endpoint.url.startswith("http:")
                if redirects > _MAX_REDIRECTS or not secure or target.scheme not in ("http", "https"):
                    raise errors.RegistryUnavailable(f"{endpoint.name} redirects to where nothing is fetched from.")
            if answer.status_code not in _TRANSIENT or tries == _TRIES - 1:
                return answer
            await answer.aclose()
            await asyncio.sleep(2.0**tries * 0.2)
        raise errors.InternalError("unreachable")

    async def _small(self, answer: httpx.Response) -> bytes:
        content = bytearray()
        try:
            async for chunk in answer.aiter_raw(_CHUNK):
                content += chunk
                if len(content) > MAX_DOCUMENT_BYTES:
                    raise errors.ImageInvalid(f"The manifest is larger than {MAX_DOCUMENT_BYTES >> 20} MB.")
        except httpx.HTTPError as error:
            raise _unreachable(answer.url.host, error) from None
        return bytes(content)

    def _client(self, endpoint: Endpoint) -> httpx.AsyncClient:
        if (found := self._clients.get(endpoint.url)) is None:
            timeout = httpx.Timeout(self._stall_timeout, connect=min(_CONNECT_TIMEOUT_S, self._stall_timeout))
            found = self._clients[endpoint.url] = httpx.AsyncClient(verify=_tls(endpoint), timeout=timeout)
        return found


class _Progress:
    """Notices a download that trickles: each byte would keep a read timeout from firing."""

    def __init__(self, timeout: float, registry: str) -> None:
        self._timeout = timeout
        self._registry = registry
        self._bytes = 0
        self._since = time.monotonic()

    def add(self, count: int) -> None:
        self._bytes += count
        now = time.monotonic()
        if self._bytes >= _MIN_BYTES_PER_STALL_TIMEOUT:
            self._bytes, self._since = 0, now
        elif now - self._since > self._timeout:
            raise _stalled(self._registry)


def _tls(endpoint: Endpoint) -> ssl.SSLContext | bool:
    if not endpoint.ca:
        return True
    context = ssl.create_default_context()
    try:
        context.load_verify_locations(endpoint.ca)
    except OSError as error:
        raise errors.Invalid(f"The CA of {endpoint.name}, {endpoint.ca}, cannot be read: {error}") from None
    return context


def _checked(content: bytes, wanted: str, said: str | None) -> str:
    """The digest of a manifest: the one that was asked for, or the one that the registry says."""
    expected = wanted if ":" in wanted else said
    algorithm = expected.partition(":")[0] if expected else "sha256"
    digest = f"sha512:{hashlib.sha512(content).hexdigest()}" if algorithm == "sha512" else _sha256(content)
    if expected is not None and digest != expected:
        raise errors.ImageCorrupt(f"A manifest has the digest {digest}, and {expected} was expected.")
    return digest


def _sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


async def _failure(answer: httpx.Response, endpoint: Endpoint, reference: Reference) -> errors.PaddockError:
    name, status = reference.familiar, answer.status_code
    if status == httpx.codes.NOT_FOUND:
        return errors.ImageNotFound(f"{endpoint.name} has no image {name!r}.")
    if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        return errors.RegistryDenied(
            f"{endpoint.name} does not give {name!r} to this server: it is private or does not exist. Credentials are "
            "read from registries.json and from Docker's config.json."
        )
    if status == httpx.codes.TOO_MANY_REQUESTS:
        return errors.RegistryUnavailable(f"{endpoint.name} refuses more pulls for now (429). Sign in, or try later.")
    return errors.RegistryUnavailable(f"{endpoint.name} answered {status} when asked for {name!r}.")


def _unreachable(registry: str, error: httpx.HTTPError) -> errors.RegistryUnavailable:
    if isinstance(error, httpx.TimeoutException):
        return _stalled(registry)
    what = str(error) or type(error).__name__
    hint = ""
    if "CERTIFICATE_VERIFY_FAILED" in what:
        hint = ' Name its CA in registries.json ("ca").'
    elif "WRONG_VERSION_NUMBER" in what or "record layer failure" in what.lower():
        hint = ' It speaks plain HTTP, which has to be allowed in registries.json ("plain_http": true).'
    return errors.RegistryUnavailable(f"{registry} cannot be reached: {what}.{hint}")


def _stalled(registry: str) -> errors.RegistryUnavailable:
    return errors.RegistryUnavailable(f"{registry} stopped sending. What was downloaded is kept: try again.")
