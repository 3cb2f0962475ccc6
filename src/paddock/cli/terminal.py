"""This program's own terminal: in raw mode while a program in a sandbox uses it, restored afterwards."""

from __future__ import annotations

import os
import re
import select
import signal
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from paddock.errors import Invalid

_STDIN, _STDOUT = 0, 1
_MAX_SIDE = 1000
"""Maximum rows or columns that the server accepts."""
_FALLBACK = (24, 80)

DETACH_KEYS = "ctrl-]"
_CONTROL = re.compile(r"ctrl-([a-z@\[\\\]^_])")


def require_terminal() -> None:
    if not os.isatty(_STDIN):
        raise Invalid(
            "Standard input is not a terminal, so there is nothing to type on. In a script, leave -t out: "
            "`paddock exec ID -- CMD`, or with -i to pass standard input on."
        )


class LocalTerminal:
    """Standard input and output; standard input must be a terminal."""

    def __init__(self) -> None:
        require_terminal()
        self._modes = ScreenModes()
        self._before = termios.tcgetattr(_STDIN)

    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        try:
            cols, rows = os.get_terminal_size(_STDIN)
        except OSError:
            return _FALLBACK
        rows, cols = rows or _FALLBACK[0], cols or _FALLBACK[1]  # a terminal whose size was never set reports 0
        return min(rows, _MAX_SIDE), min(cols, _MAX_SIDE)

    @contextmanager
    def raw(self) -> Iterator[None]:
        """Raw mode: all keys go to the program. Restored on exit, also after errors."""
        try:
            self.set_raw()
            yield
        finally:
            self.restore()

    def set_raw(self) -> None:
        tty.setraw(_STDIN, termios.TCSADRAIN)

    def restore(self) -> None:
        with suppress(OSError):  # the terminal may be gone, or blocked for ever
            if os.isatty(_STDOUT) and (undo := self._modes.undo()):
                os.write(_STDOUT, undo)
        # Changing it from the background would stop this process; leaving it raw would be worse.
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        try:
            with suppress(termios.error):
                termios.tcsetattr(_STDIN, termios.TCSADRAIN, self._before)
        finally:
            signal.signal(signal.SIGTTOU, before)

    def write(self, data: bytes) -> None:
        """Write all of it, however slowly the terminal reads. Call in a thread."""
        self._modes.feed(data)
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(_STDOUT, left) :]
            except BlockingIOError:  # an earlier program left the terminal non-blocking
                select.select([], [_STDOUT], [])


class ScreenModes:
    """Tracks the terminal modes that a program has switched. A program that is cut off cannot reset them: the local
    shell would be left without a cursor, or get escape sequences for mouse movements."""

    _SEQUENCE = re.compile(rb"\x1b(?:(c)|([=>])|\[\?([0-9;]+)([hl])|\[>4;([0-9]+)m|\[([<>])[0-9]*u)")
    _LONGEST = 64
    _OFF = (1, 5, 9, 47, 66, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 1047, 1049, 2004, 2026, 2048)
    """Off by default: cursor keys, mouse, focus, alternate screen, bracketed paste and others."""
    _ON = (7, 25)
    """On by default: line wrap and the cursor."""

    def __init__(self) -> None:
        self._carried = b""
        self._reset()

    def feed(self, data: bytes) -> None:
        text, end = self._carried + data, 0
        for found in self._SEQUENCE.finditer(text):
            end = found.end()
            self._apply(found)
        self._carried = text[max(end, len(text) - self._LONGEST) :]

    def undo(self) -> bytes:
        """The sequences that reset the terminal; then forgets the changes."""
        parts = [b"\x1b[<u" * self._keyboards, b"\x1b[>4;0m" if self._other_keys else b"", b"\x1b>" * self._keypad]
        parts += [b"\x1b[?%d%c" % (mode, b"h" if mode in self._ON else b"l") for mode in sorted(self._changed)]
        if any(parts):
            parts.append(b"\x1b[0m")
        self._reset()
        return b"".join(parts)

    def _reset(self) -> None:
        self._changed: set[int] = set()
        self._keypad = self._other_keys = False
        self._keyboards = 0

    def _apply(self, found: re.Match[bytes]) -> None:
        reset, keypad, modes, switch, other_keys, keyboard = found.groups()
        if reset:
            self._reset()
        elif keypad:
            self._keypad = keypad == b"="
        elif other_keys:
            self._other_keys = int(other_keys) != 0
        elif keyboard:
            self._keyboards = max(0, self._keyboards + (1 if keyboard == b">" else -1))
        else:
            for mode in (int(number) for number in modes.split(b";") if number):
                changed = (mode in self._OFF and switch == b"h") or (mode in self._ON and switch == b"l")
                (self._changed.add if changed else self._changed.discard)(mode)


class DetachKeys:
    """Key sequence that detaches from the program and leaves it running."""

    def __init__(self, text: str) -> None:
        """In Docker's notation, ``ctrl-p,ctrl-q``. Empty: no detach keys."""
        self._keys = b"".join(_key(name) for name in text.split(",")) if text else b""
        self._typed = 0

    def take(self, data: bytes) -> tuple[bytes, bool]:
        """The data for the program, and whether the keys were typed. A partial match is held back."""
        if not self._keys:
            return data, False
        out = bytearray()
        for byte in data:
            if byte != self._keys[self._typed]:
                out += self._keys[: self._typed]
                self._typed = 0
            if byte == self._keys[self._typed]:
                self._typed += 1
                if self._typed == len(self._keys):
                    return bytes(out), True
            else:
                out.append(byte)
        return bytes(out), False


def _key(name: str) -> bytes:
    if found := _CONTROL.fullmatch(name.lower()):
        return bytes([ord(found[1].upper()) & 0x1F])
    if len(name) == 1 and name.isascii():
        return name.encode()
    raise Invalid(f"{name!r} is no key to detach by. Write letters and ctrl-…, such as {DETACH_KEYS} or ctrl-p,ctrl-q.")
