"""A transport whose protocol is given what was read in small slices, so that no read takes the loop for long.

uvloop hands over 256 KB at once, and up to 32 such pieces before others have their turn. A protocol's parser works
through all of it in one go: 40,000 empty WebSocket frames, or a body in chunks of one byte, for seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from paddock.loop_turns import TURN_SECONDS, begin_turn

_SLICE = 2048
"""Bytes that are parsed at once: a few milliseconds' work if each frame has two bytes."""


class PacedTransport:
    """In the transport's place for its protocol, whose ``data_received`` passes everything to ``receive``.

    Reading is paused while a part of what was read waits for its turn, and while the protocol has paused it. What waits
    when the connection is lost is dropped, as the kernel drops what it holds.
    """

    def __init__(self, transport: asyncio.Transport, feed: Callable[[bytes], None]) -> None:
        """``feed``: the protocol's own ``data_received``."""
        self._transport = transport
        self._feed = feed
        self._loop = asyncio.get_running_loop()
        self._unread = b""
        self._reading = True
        self._paused = False
        """By the protocol."""
        self._turn: asyncio.Handle | None = None

    def receive(self, data: bytes) -> None:
        if self._unread or self._paused or len(data) > _SLICE:
            self._unread += data
            self._go_on()
        else:
            self._feed(data)

    def pause_reading(self) -> None:
        self._paused = True
        self._settle()

    def resume_reading(self) -> None:
        self._paused = False
        self._settle()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _go_on(self) -> None:
        self._turn = None
        begin_turn()
        began, data, at = time.monotonic(), self._unread, 0
        while at < len(data) and not self._paused and not self._transport.is_closing():
            self._feed(data[at : at + _SLICE])
            at += _SLICE
            if time.monotonic() - began > TURN_SECONDS:
                break
        self._unread = data[at:]
        self._settle()

    def _settle(self) -> None:
        if self._transport.is_closing():
            self._unread = b""
            return
        if self._unread and not self._paused and self._turn is None:
            self._turn = self._loop.call_soon(self._go_on)
        reading = not (self._unread or self._paused)
        if reading != self._reading:
            self._reading = reading
            (self._transport.resume_reading if reading else self._transport.pause_reading)()
