"""The add-ons of the server."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from paddock.client.answers import Addon, AddonEnded, AddonEvent, AddonProgress, Done
from paddock.client.call import ApiCall, StreamCall, answer, event, given, listed, nothing
from paddock.client.errors import from_event
from paddock.client.retry import Repeat
from paddock.client.sse import EventDecoder, ServerSentEvent


def list_addons() -> ApiCall[list[Addon]]:
    return ApiCall(method="GET", path="/addons", read=listed(Addon, "addons"))


def get_addon(name: str) -> ApiCall[Addon]:
    """``progress`` is set during an installation, ``problem`` if the last one failed."""
    return ApiCall(method="GET", path=_path(name), read=answer(Addon))


def install_addon(name: str, *, full: bool | None = None, fresh: bool | None = None) -> ApiCall[Addon]:
    """Start an installation, for admins. Returns without waiting for its end."""
    return ApiCall(
        method="POST",
        path=_path(name, "/install"),
        json=given(full=full, fresh=fresh),
        read=answer(Addon),
        repeat=Repeat.UNSENT,
    )


def stream_install_addon(name: str, *, full: bool | None = None, fresh: bool | None = None) -> StreamCall[AddonEvent]:
    """Install an add-on and follow the installation: ``progress`` events, then ``end``.

    It continues if the reader disconnects. Calling this again during an installation follows the same one.
    """
    return StreamCall(
        call=ApiCall(
            method="POST",
            path=_path(name, "/install"),
            json=given(full=full, fresh=fresh, stream=True),
            read=nothing,
            repeat=Repeat.UNSENT,
        ),
        decoder=_AddonEvents,
    )


def remove_addon(name: str) -> ApiCall[Done]:
    return ApiCall(method="DELETE", path=_path(name), read=answer(Done))


def _path(name: str, more: str = "") -> str:
    return f"/addons/{quote(name, safe='')}{more}"


class _AddonEvents:
    """Follows one installation. It cannot be resumed: after a lost connection the caller asks again."""

    def __init__(self) -> None:
        self._decoder = EventDecoder()
        self.complete = False

    def feed(self, chunk: bytes) -> Iterable[AddonEvent]:
        for sent in self._decoder.feed(chunk):
            if (item := self._read(sent)) is not None:
                yield item

    def resume(self) -> None:
        return None

    def _read(self, sent: ServerSentEvent) -> AddonEvent | None:
        match sent.event:
            case "progress":
                return event(AddonProgress, sent.data)
            case "end":
                self.complete = True
                return event(AddonEnded, sent.data)
            case "error":
                raise from_event(sent.data)
        return None
