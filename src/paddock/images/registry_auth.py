"""Signing in at a registry: basic authentication, and bearer tokens from the service that the registry names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

import httpx

from paddock import errors
from paddock.images.registries import Credentials, Endpoint, Registries

_PARAMETER = re.compile(r'([A-Za-z_]+)\s*=\s*"((?:[^"\\]|\\.)*)"')
_CLIENT_ID = "paddock"
_MAX_TOKEN = 64 << 10


class RegistryAuth:
    def __init__(self, registries: Registries) -> None:
        self._registries = registries
        self._headers: dict[tuple[str, str], str] = {}

    def header(self, endpoint: Endpoint, repository: str) -> str | None:
        return self._headers.get((endpoint.url, repository))

    async def sign_in(
        self, client: httpx.AsyncClient, endpoint: Endpoint, repository: str, challenges: Iterable[str]
    ) -> None:
        """As the first challenge that is known here asks. Without one the next request is refused again."""
        self._headers.pop((endpoint.url, repository), None)
        credentials = await self._registries.credentials(endpoint.name)
        for challenge in challenges:
            scheme, _, rest = challenge.partition(" ")
            if scheme.lower() == "bearer":
                token = await self._token(client, endpoint, repository, dict(_PARAMETER.findall(rest)), credentials)
                self._headers[endpoint.url, repository] = f"Bearer {token}"
                return
            if scheme.lower() == "basic" and credentials is not None and not credentials.identity_token:
                self._headers[endpoint.url, repository] = credentials.basic
                return

    async def _token(
        self,
        client: httpx.AsyncClient,
        endpoint: Endpoint,
        repository: str,
        challenge: dict[str, str],
        credentials: Credentials | None,
    ) -> str:
        realm = challenge.get("realm", "")
        if urlsplit(realm).scheme != "https" and not (endpoint.url.startswith("http:") and realm.startswith("http:")):
            raise errors.RegistryDenied(f"{endpoint.name} wants a token from {realm[:100]!r}, which is not https.")
        asked = {"scope": f"repository:{repository}:pull"}
        if "service" in challenge:
            asked["service"] = challenge["service"]
        try:
            if credentials is not None and credentials.identity_token:
                form = {**asked, "grant_type": "refresh_token", "client_id": _CLIENT_ID}
                answer = await client.post(realm, data={**form, "refresh_token": credentials.identity_token})
            else:
                headers = {"Authorization": credentials.basic} if credentials is not None else {}
                answer = await client.get(realm, params=asked, headers=headers)
        except httpx.HTTPError as error:
            raise errors.RegistryUnavailable(
                f"The token service of {endpoint.name} cannot be reached: {error or type(error).__name__}."
            ) from None
        if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            who = "the credentials of this server" if credentials is not None else "pulls without credentials"
            raise errors.RegistryDenied(f"{endpoint.name} refuses {who}.")
        try:
            found = answer.raise_for_status().json()
            token = found.get("token") or found.get("access_token")
        except (httpx.HTTPError, ValueError, AttributeError):
            token = None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or len(token) > _MAX_TOKEN:
            raise errors.RegistryUnavailable(f"The token service of {endpoint.name} gave no token.")
        return token
