"""Whether an open file has been written to since it was looked at last."""

from __future__ import annotations

import os
import time

# Times of files move in steps: within one of them a second change leaves no trace.
_STEP = 100_000_000  # ns; clocks of kernels move every 1 to 10 ms
_COARSE_STEP = 2_100_000_000  # where a file system keeps whole seconds
_SECOND = 1_000_000_000

# What is written through a memory map changes the times of a file when a page is written to
# for the first time, and again only when the kernel has brought that page to the disk. It does
# so after half a minute by default.
_WRITEBACK = 60.0  # seconds

_Times = tuple[int, int, int]


class Watched:
    """An open file.

    Parameters
    ----------
    descriptor : int
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._alert_until = 0.0
        self._times = _look(descriptor)
        self._settled = _is_settled(self._times)

    def changed(self) -> bool:
        """Whether somebody may have written to the file since this was asked last.

        True without a change is possible, and false after one where the file system does
        not keep times: what is written to a tmpfs through a memory map leaves none.
        """
        before, now = self._times, _look(self._descriptor)
        if now == before and self._settled:  # as in nearly every step
            return self._alert_until > 0 and time.monotonic() < self._alert_until
        self._times, self._settled = now, _is_settled(now)
        if before[:2] != now[:2]:
            self._alert_until = time.monotonic() + _WRITEBACK
        return True


def _look(descriptor: int) -> _Times:
    """Size, time of the last change of contents, and of the last change at all."""
    status = os.fstat(descriptor)
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _is_settled(times: _Times) -> bool:
    """Whether the next change will show in size and times."""
    _, written, changed = times
    step = _STEP if written % _SECOND or changed % _SECOND else _COARSE_STEP
    return abs(time.time_ns() - max(written, changed)) > step
