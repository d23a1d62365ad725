"""A terminal without a screen: what it would show, as a person reads it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
import threading
import time

import pyte


class Terminal:
    """A terminal of a size; what is written to its `end` is shown.

    Attributes
    ----------
    end : int
        The descriptor that a program has as its standard output and error.
    raw : bytes
        All that was written.
    """

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self._ours, self.end = pty.openpty()
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self.raw = b""
        self.history: list[tuple[float, str]] = []
        self.resize(columns, lines)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 65536)
            except OSError:  # nobody has the other end
                return
            if not data:
                return
            with self._lock:
                self.raw += data
                self._stream.feed(data)
                self.history.append((time.monotonic(), self._text()))

    def resize(self, columns: int, lines: int) -> None:
        """Give the terminal another size."""
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)
        with self._lock:
            self._screen.resize(lines, columns)

    def press(self, keys: bytes) -> None:
        """Type these."""
        os.write(self._ours, keys)

    def close(self) -> None:
        """Let go of it, after all that was written has been read."""
        if self.end >= 0:
            os.close(self.end)
            self.end = -1
        self._thread.join(10)
        os.close(self._ours)

    def _text(self) -> str:
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    @property
    def text(self) -> str:
        """What is to be seen now."""
        with self._lock:
            return self._text()

    @property
    def lines(self) -> list[str]:
        """The same, line by line."""
        return self.text.splitlines()

    def await_text(self, wanted: str, limit: float = 20) -> str:
        """Wait until something is to be seen."""
        by = time.monotonic() + limit
        while wanted not in (text := self.text):
            assert time.monotonic() < by, f"no {wanted!r} in:\n{text}"
            time.sleep(0.01)
        return text

    @property
    def is_clean(self) -> bool:
        """Whether the cursor comes to be seen, at the beginning of a line or on another screen."""
        by = time.monotonic() + 10
        while time.monotonic() < by:
            with self._lock:
                enters, leaves = (self.raw.count(b"\x1b[?1049" + end) for end in (b"h", b"l"))
                cursor = self._screen.cursor
                if not cursor.hidden and enters == leaves and (enters or cursor.x == 0):
                    return True
            time.sleep(0.01)
        return False
