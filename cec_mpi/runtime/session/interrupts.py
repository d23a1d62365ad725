"""Ctrl-C in a step: it is delayed while messages are incomplete, so that later steps work."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

try:  # without the conversions to enums in `signal`, which take 44 us in each step
    from _signal import getsignal  # type: ignore[import-not-found]
    from _signal import signal as set_handler
except ImportError:  # not CPython
    from signal import getsignal
    from signal import signal as set_handler

from cec_mpi.errors import CecError
from cec_mpi.runtime.times import INTERRUPT_SECONDS

P = ParamSpec("P")
T = TypeVar("T")


class StepInterruptedError(CecError):
    """The step was interrupted between two events, so that further steps are possible."""


class InterruptGuard:
    """Delays KeyboardInterrupt while a step sends or receives messages.

    The step calls `check` between its events. A second Ctrl-C raises KeyboardInterrupt immediately
    if the first has been pending for more than a second. Interrupts are not delayed in threads
    other than the main one, or if the program has set a handler.
    """

    def __init__(self) -> None:
        self._interrupted_at: float | None = None  # when the first signal was received

    def check(self) -> None:
        """Raise `StepInterruptedError` if Ctrl-C was pressed during this step."""
        if self._interrupted_at is not None:
            raise StepInterruptedError("the step was interrupted")

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function, and raise KeyboardInterrupt afterwards if Ctrl-C was pressed."""
        if (
            threading.current_thread() is not threading.main_thread()
            or getsignal(signal.SIGINT) is not signal.default_int_handler
        ):
            return function(*args, **kwargs)
        self._interrupted_at = None
        set_handler(signal.SIGINT, self._handle_signal)
        try:
            return function(*args, **kwargs)
        finally:
            set_handler(signal.SIGINT, signal.default_int_handler)
            interrupted_at, self._interrupted_at = self._interrupted_at, None
            if interrupted_at is not None:
                raise KeyboardInterrupt from None

    def _handle_signal(self, *_: object) -> None:
        now = time.monotonic()
        if self._interrupted_at is not None and now - self._interrupted_at > INTERRUPT_SECONDS:
            raise KeyboardInterrupt
        self._interrupted_at = self._interrupted_at or now
