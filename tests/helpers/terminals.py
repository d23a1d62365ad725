"""A pseudoterminal and the text that it shows."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
import threading

import pyte

from helpers.waiting import wait_until


class Terminal:
    """A terminal that shows what is written to its `tty`.

    Attributes
    ----------
    tty : int
        The file descriptor for standard output and standard error of a program.
    raw : bytes
        All output so far.
    history : list of str
        The shown text after each read.
    """

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self._controller, self.tty = pty.openpty()
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self.raw = b""
        self._mark_count = 0
        self.history: list[str] = []
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._controller, termios.TIOCSWINSZ, size)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._controller, 65536)
            except OSError:  # no process has the terminal open
                return
            if not data:
                return
            with self._lock:
                self.raw += data
                self._stream.feed(data)
                self.history.append(self._text())

    def close(self) -> None:
        """Read the remaining output and close the terminal."""
        if self.tty >= 0:
            os.close(self.tty)
            self.tty = -1
        self._thread.join(10)
        os.close(self._controller)

    def _text(self) -> str:
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    @property
    def text(self) -> str:
        """The shown text."""
        with self._lock:
            return self._text()

    @property
    def lines(self) -> list[str]:
        """The lines of the shown text."""
        return self.text.splitlines()

    def settled_text(self) -> str:
        """Return the text that is shown after all output of this process so far."""
        self._mark_count += 1
        mark = f"mark {self._mark_count}"  # becomes the title of the window
        os.write(self.tty, f"\x1b]2;{mark}\x07".encode())
        wait_until(lambda: self._screen.title == mark)
        return self.text

    def await_text(self, wanted: str) -> str:
        """Wait until the terminal shows a text."""
        return wait_until(
            lambda: wanted in (text := self.text) and text,
            describe=lambda: f"no {wanted!r} in:\n{self.text}",
        )

    def await_clean_end(self) -> None:
        """Wait until the cursor is visible, at the beginning of a line or on another screen."""
        wait_until(self._is_clean)

    def _is_clean(self) -> bool:
        with self._lock:
            enters, leaves = (self.raw.count(b"\x1b[?1049" + end) for end in (b"h", b"l"))
            cursor = self._screen.cursor
            return not cursor.hidden and enters == leaves and bool(enters or cursor.x == 0)
