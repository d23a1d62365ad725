"""Warnings that a process is to end soon: noted, and looked at between two steps."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

_WARNINGS = (signal.SIGTERM, signal.SIGUSR1)


class NotedSignals:
    """Within a ``with``, SIGTERM and SIGUSR1 are noted and do not end the process.

    Parameters
    ----------
    second_ends : bool
        A second SIGTERM does what the first would have done without this.
    with_hangup : bool
        SIGHUP is noted too, unless it is ignored: the terminal is gone.

    Attributes
    ----------
    received : signal.Signals or None
        The first that came.
    end : bool
        A second SIGTERM has come that ends the process.

    Examples
    --------
    >>> with NotedSignals() as signals:
    ...     signal.raise_signal(signal.SIGTERM)
    >>> signals.received.name
    'SIGTERM'
    """

    def __init__(self, second_ends: bool = False, with_hangup: bool = False) -> None:
        self.received: signal.Signals | None = None
        self.end = False
        self._second_ends = second_ends
        self._noted: tuple[signal.Signals, ...] = _WARNINGS
        if with_hangup and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._noted += (signal.SIGHUP,)
        self._terms = 0
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> NotedSignals:
        if threading.current_thread() is not threading.main_thread():
            return self  # Python lets no other one handle signals
        for number in self._noted:
            self._before[number] = signal.signal(number, self._note) or signal.SIG_DFL
        return self

    def __exit__(self, *_: object) -> None:
        while self._before:
            signal.signal(*self._before.popitem())

    def _note(self, number: int, _: FrameType | None) -> None:
        self.received = self.received or signal.Signals(number)
        self._terms += number == signal.SIGTERM
        if self._second_ends and self._terms > 1:
            self.end = True
            self.__exit__()
            signal.raise_signal(number)
