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

LIMIT = 60  # seconds, after which what is waited for never comes


class Terminal:
    """A terminal of a size; what is written to its `end` is shown.

    Attributes
    ----------
    end : int
        The descriptor that a program has as its standard output and error.
    raw : bytes
        All that was written.
    history : list of str
        What was to be seen, after each time that something was read.
    """

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self._ours, self.end = pty.openpty()
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self.raw = b""
        self._marks = 0
        self.history: list[str] = []
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
                self.history.append(self._text())

    def resize(self, columns: int, lines: int) -> None:
        """Give the terminal another size."""
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)
        with self._lock:
            self._screen.resize(lines, columns)

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

    def settled_text(self, limit: float = LIMIT) -> str:
        """What is to be seen when all that this process has written so far has been read."""
        self._marks += 1
        mark = f"mark {self._marks}"  # as the title of the window, which nothing else sets
        os.write(self.end, f"\x1b]2;{mark}\x07".encode())
        by = time.monotonic() + limit
        while self._screen.title != mark:
            assert time.monotonic() < by
            time.sleep(0.001)
        return self.text

    def await_text(self, wanted: str, limit: float = LIMIT) -> str:
        """Wait until something is to be seen."""
        by = time.monotonic() + limit
        while wanted not in (text := self.text):
            assert time.monotonic() < by, f"no {wanted!r} in:\n{text}"
            time.sleep(0.01)
        return text

    @property
    def is_clean(self) -> bool:
        """Whether the cursor comes to be seen, at the beginning of a line or on another screen."""
        by = time.monotonic() + LIMIT
        while time.monotonic() < by:
            with self._lock:
                enters, leaves = (self.raw.count(b"\x1b[?1049" + end) for end in (b"h", b"l"))
                cursor = self._screen.cursor
                if not cursor.hidden and enters == leaves and (enters or cursor.x == 0):
                    return True
            time.sleep(0.01)
        return False
