"""The whole screen of a terminal and its keys, restored at the end.

Whatever ends or stops the program by a signal that can be handled, the terminal that its user comes
back to has its usual screen, its cursor, and shows what is typed. All is written at once and
without a buffer, so that it can be done amid anything.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[H", "\x1b[?25h\x1b[?1049l"
_ENDING = (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT)
_LONGEST_SLEEP = 3600.0
_LEAVES = b"qQ\x03\x04"


class WholeScreen:
    """Context in which standard output is an own screen, and keys come as they are typed.

    A terminal that disappears raises no error and sets `is_gone`.

    Attributes
    ----------
    is_gone : bool
    """

    def __init__(self) -> None:
        self.is_gone = False
        self._output = sys.stdout.fileno()
        self._keys: int | None = None
        self._usual: list[Any] = []  # how the terminal takes keys
        self._shown = ""
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> WholeScreen:
        with suppress(OSError, ValueError, AttributeError, termios.error):  # no terminal
            keys = sys.stdin.fileno()
            self._usual = termios.tcgetattr(keys)
            self._keys = keys
        self._handle(_ENDING, self._end)
        self._handle((signal.SIGTSTP,), self._stop)
        self._handle((signal.SIGCONT,), lambda *_: self._take())
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._give_back()
        while self._before:
            signal.signal(*self._before.popitem())

    def show(self, text: str) -> None:
        """Show these lines in place of all others."""
        lines = text.splitlines()
        self._shown = "\x1b[H" + "\r\n".join(f"{line}\x1b[K" for line in lines) + "\x1b[J"
        self._write(self._shown)

    def waited(self, seconds: float) -> bool:
        """Wait; return whether a key that ends was pressed, or the terminal has disappeared."""
        by = time.monotonic() + seconds
        while not self.is_gone and (left := by - time.monotonic()) > 0:
            left = min(left, _LONGEST_SLEEP)
            if self._keys is None:
                time.sleep(left)
            elif select.select([self._keys], [], [], left)[0]:
                try:
                    found = os.read(self._keys, 64)
                except OSError:
                    found = b""
                self.is_gone = self.is_gone or not found
                if any(key in _LEAVES for key in found):
                    return True
        return self.is_gone

    def _handle(self, signals: tuple[signal.Signals, ...], handler: Callable[..., None]) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # Python lets no other one handle signals
        for number in signals:
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:  # as nohup has it
                self._before[number] = before or signal.SIG_DFL
                signal.signal(number, handler)

    def _end(self, number: int, _: FrameType | None) -> None:
        sys.exit(128 + number)

    def _stop(self, number: int, _: FrameType | None) -> None:
        """Stop as usual, with the terminal as before; SIGCONT takes it again."""
        self._give_back()
        handler = signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, handler)

    def _take(self) -> None:
        if self._keys is not None:
            with suppress(termios.error):
                tty.setcbreak(self._keys)
        self._write(_ENTER + self._shown)

    def _give_back(self) -> None:
        self._write(_LEAVE)
        if self._keys is not None:
            with suppress(termios.error):  # it is gone
                termios.tcsetattr(self._keys, termios.TCSADRAIN, self._usual)

    def _write(self, text: str) -> None:
        data = text.encode(getattr(sys.stdout, "encoding", None) or "ascii", "replace")
        try:
            while data:
                data = data[os.write(self._output, data) :]
        except OSError:
            self.is_gone = True
