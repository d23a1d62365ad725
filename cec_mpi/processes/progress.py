"""What is going on, for whom it reaches: one live line, or whole lines now and then.

A launcher hands on what its ranks write. Some wait for the end of each line: what is
rewritten in place would then appear all at once, at the end.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cec_mpi.processes.launch.launchers import detect_launcher
from cec_mpi.records.step import StepRecord
from cec_mpi.terminal import QUIET, VERBOSE, rewrite, tell, verbosity

_LAUNCHERS = {"mpirun", "mpiexec", "prterun", "orterun", "mpiexec.hydra"}
_ANCESTORS = 4  # a rank's launcher is its parent or, behind a proxy, its grandparent
_SECONDS_BETWEEN = 0.1  # live lines
_PART = 60  # of the time so far: lines become rarer in a long run
_READING_SECONDS = 0.05  # that a launcher has before the next pipe: it reads two in any order
_BAR = 24  # characters


@dataclass(frozen=True)
class Way:
    """How progress is shown.

    Attributes
    ----------
    live : bool
        As one line that is rewritten, or as whole lines.
    least, most : float
        Seconds between two whole lines, at first and in a run of hours.
    """

    live: bool
    least: float = 0.0
    most: float = 0.0


LIVE = Way(True)
WATCHED = Way(False, 5.0, 60.0)  # lines that come to a terminal
KEPT = Way(False, 60.0, 600.0)  # lines in a file, as that of a batch job
VERBOSELY = Way(False, 1.0, 1.0)


class Pace:
    """When the next whole line is due.

    Parameters
    ----------
    way : Way
    now : float
        When the work begins, in seconds.
    """

    def __init__(self, way: Way, now: float) -> None:
        self._way = way
        self._begin = now
        self._due = now + way.least

    def due(self, now: float) -> bool:
        """Whether a line is due; then the next one is later."""
        if now < self._due:
            return False
        between = max(self._way.least, min((now - self._begin) / _PART, self._way.most))
        self._due = now + between
        return True


def way_to_show(environ: Mapping[str, str] = os.environ) -> Way | None:
    """How this process can show progress where somebody sees it; None when it is to be quiet."""
    if verbosity() == QUIET or sys.stderr is None:
        return None
    if sys.stderr.isatty():
        return LIVE
    launcher = detect_launcher(environ)
    watched = _launcher_on_terminal()
    if launcher is not None and launcher.is_srun:  # no ancestor of its ranks
        watched = environ.get("ENVIRONMENT") != "BATCH"  # which sbatch sets
    elif watched and "PRTE_LAUNCHED" not in environ:  # Open MPI 5 hands on whole lines alone
        return LIVE
    if verbosity() == VERBOSE:
        return VERBOSELY
    return WATCHED if watched else KEPT


def _launcher_on_terminal() -> bool:
    """Whether a launcher started this process, and its own standard error is a terminal."""
    process = os.getppid()
    try:
        for _ in range(_ANCESTORS):
            directory = Path("/proc") / str(process)
            if (directory / "comm").read_text().strip() in _LAUNCHERS:
                target = str((directory / "fd" / "2").readlink())
                return target.startswith(("/dev/pts/", "/dev/tty"))
            process = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        pass  # no such process, or not ours to look at: then nobody is known to watch
    return False


@contextmanager
def _shown() -> Iterator[Callable[..., None] | None]:
    """Give a function that shows a whole line, or a live one, when it is time; None clears."""
    way = way_to_show()
    if way is None:
        yield None
        return
    begin = time.monotonic()
    pace = Pace(way, begin)
    shown = False
    last = begin - _SECONDS_BETWEEN

    def show(line: str | None, live: str = "") -> None:
        nonlocal shown, last
        now = time.monotonic()
        if line is None:
            rewrite("")
            if shown and not sys.stderr.isatty():
                time.sleep(_READING_SECONDS)
            shown = False
        elif way.live and now - last >= _SECONDS_BETWEEN:
            last, shown = now, True
            rewrite(live)
        elif not way.live and pace.due(now):
            tell(f"cec-mpi: {line}, {_minutes(now - begin)} so far")

    try:
        yield show
    finally:
        show(None)


@contextmanager
def progress() -> Iterator[Callable[[StepRecord], None] | None]:
    """Give a function that shows a record, or None where nothing is to be shown."""
    with _shown() as show:
        if show is None:
            yield None
            return

        def watch(record: StepRecord) -> None:
            predicted = record.predicted_makespan
            expected = f" (predicted {1e3 * predicted:.2f})" if predicted else ""
            line = (
                f"step {record.step + 1}: {len(record.available)} of {len(record.rows)} machines, "
                f"{1e3 * record.measured_makespan:.2f} ms{expected}"
            )
            show(line, line)

        yield watch


@contextmanager
def transfer(doing: str) -> Iterator[Callable[[int, int], None] | None]:
    """Give a function that shows bytes done of bytes in all, or None where nothing is shown.

    Parameters
    ----------
    doing : str
        What is being done; empty on ranks that show nothing.
    """
    if not doing:
        yield None
        return
    begin = 0.0
    last = (0, 0)
    with _shown() as show:
        if show is None:
            yield None
            return

        def watch(done: int, total: int) -> None:
            nonlocal begin, last
            now = time.monotonic()
            if total != last[1] or done < last[0]:  # another work of the same command
                begin = now
            last = (done, total)
            if done >= total:  # what is printed next stands alone
                show(None)
                return
            if now == begin:
                return
            rate = done / (now - begin)
            left = _minutes((total - done) / rate) if rate else "?"
            state = f"{done / total:4.0%} of {total / 1e9:.2f} GB, {rate / 1e6:.0f} MB/s"
            filled = round(_BAR * done / total)
            bar = f"{'#' * filled}{'.' * (_BAR - filled)}"
            line = f"{doing} {state.strip()}, {left} left"
            show(line, f"{doing} [{bar}] {state}, {left} left")

        yield watch


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"
