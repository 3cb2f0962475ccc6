"""Fields of messages in proto3's JSON: lowerCamelCase or snake_case, defaults omitted, numbers also as text."""

from __future__ import annotations

import re
from typing import Any, NoReturn

from paddock.api.compat.e2b.envd.connect import Code, ConnectError
from paddock.base64_slices import decode

_CAPITAL = re.compile(r"[A-Z]")


class Fields:
    """One message. null means absent; a wrong type is a client error."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    def has(self, name: str) -> bool:
        return self._find(name) is not None

    def text(self, name: str, default: str = "") -> str:
        found = self._find(name)
        if found is None:
            return default
        return found if isinstance(found, str) else _wrong(name, "a string")

    def texts(self, name: str) -> list[str]:
        found = self._find(name)
        if found is None:
            return []
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            _wrong(name, "a list of strings")
        return list(found)

    def mapping(self, name: str) -> dict[str, str]:
        found = self._find(name)
        if found is None:
            return {}
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            _wrong(name, "an object of strings")
        return dict(found)

    def flag(self, name: str, default: bool = False) -> bool:
        found = self._find(name)
        if found is None:
            return default
        return found if isinstance(found, bool) else _wrong(name, "a boolean")

    def number(self, name: str, default: int = 0) -> int:
        found = self._find(name)
        if found is None:
            return default
        if isinstance(found, str) and re.fullmatch(r"-?[0-9]{1,19}", found):
            return int(found)
        if isinstance(found, float) and found.is_integer():
            return int(found)
        return found if isinstance(found, int) and not isinstance(found, bool) else _wrong(name, "a number")

    def enum(self, name: str) -> str:
        """An enum value by name or number."""
        found = self._find(name)
        return found if isinstance(found, str) else str(self.number(name))

    async def blob(self, name: str) -> bytes:
        """Standard or URL-safe base64, with or without padding."""
        found = self.text(name)
        plain = found.replace("-", "+").replace("_", "/").rstrip("=")
        try:
            return await decode(plain + "=" * (-len(plain) % 4))
        except ValueError:
            _wrong(name, "base64")

    def within(self, name: str) -> Fields | None:
        """A nested message."""
        found = self._find(name)
        if found is None:
            return None
        return Fields(found) if isinstance(found, dict) else _wrong(name, "an object")

    def must(self, name: str) -> Fields:
        found = self.within(name)
        if found is None:
            raise ConnectError(Code.INVALID_ARGUMENT, f"the field {name!r} is missing")
        return found

    def _find(self, name: str) -> Any:
        found = self._document.get(name)
        if found is None and _CAPITAL.search(name):
            found = self._document.get(_CAPITAL.sub(lambda letter: "_" + letter[0].lower(), name))
        return found


def _wrong(name: str, kind: str) -> NoReturn:
    raise ConnectError(Code.INVALID_ARGUMENT, f"the field {name!r} must be {kind}")
