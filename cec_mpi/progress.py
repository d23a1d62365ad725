"""One live line about what is going on, where a person is watching."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cec_mpi.records import StepRecord

__all__ = ["progress", "seen_on_terminal", "transfer"]

_LAUNCHERS = {"mpirun", "mpiexec", "prterun", "orterun", "mpiexec.hydra"}
_ANCESTORS = 4  # a rank's launcher is its parent or, behind a proxy, its grandparent
_SECONDS_BETWEEN = 0.1
_BAR = 24  # characters


def seen_on_terminal() -> bool:
    """Whether what this process writes to standard error appears on a terminal.

    A launcher gives its ranks a pipe, and hands on what comes out of it: then the
    launcher's own standard error counts.
    """
    if sys.stderr.isatty():
        return True
    process = os.getppid()
    try:
        for _ in range(_ANCESTORS):
            directory = Path("/proc") / str(process)
            if (directory / "comm").read_text().strip() in _LAUNCHERS:
                target = str((directory / "fd" / "2").readlink())
                return target.startswith(("/dev/pts/", "/dev/tty"))
            process = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        pass  # no such process, or not ours to look at: then nobody is shown anything
    return False


@contextmanager
def progress() -> Iterator[Callable[[StepRecord], None] | None]:
    """Give a function that shows a record, or None where nobody would see it."""
    if not seen_on_terminal():
        yield None
        return
    shown = 0.0

    def watch(record: StepRecord) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown < _SECONDS_BETWEEN:
            return
        shown = now
        predicted = record.predicted_makespan
        expected = f" (predicted {1e3 * predicted:.2f})" if predicted else ""
        _rewrite(
            f"step {record.step + 1}: {len(record.available)} of {len(record.rows)} machines, "
            f"{1e3 * record.measured_makespan:.2f} ms{expected}"
        )

    try:
        yield watch
    finally:
        _rewrite("")


@contextmanager
def transfer(doing: str) -> Iterator[Callable[[int, int], None] | None]:
    """Give a function that shows bytes done of bytes in all, or None where nobody sees it.

    Parameters
    ----------
    doing : str
        What is being done; empty on ranks that show nothing.
    """
    if not doing or not seen_on_terminal():
        yield None
        return
    begin = shown = 0.0
    last = (0, 0)

    def watch(done: int, total: int) -> None:
        nonlocal begin, shown, last
        now = time.monotonic()
        if total != last[1] or done < last[0]:  # another work of the same command
            begin = now
        last = (done, total)
        if done >= total:  # what is printed next stands alone
            clear()
            return
        if now - shown < _SECONDS_BETWEEN or now == begin:
            return
        shown = now
        rate = done / (now - begin)
        filled = round(_BAR * done / total)
        minutes, seconds = divmod(int((total - done) / rate), 60)
        _rewrite(
            f"{doing} [{'#' * filled}{'.' * (_BAR - filled)}] {done / total:4.0%} of "
            f"{total / 1e9:.2f} GB, {rate / 1e6:.0f} MB/s, {minutes}:{seconds:02} left"
        )

    def clear() -> None:
        nonlocal shown
        if shown:
            _rewrite("")
        shown = 0.0

    try:
        yield watch
    finally:
        clear()


def _rewrite(line: str) -> None:
    sys.stderr.write(f"\r\x1b[K{line}")
    sys.stderr.flush()
