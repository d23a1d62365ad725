"""Who looks, and how it can be shown to them: in lines drawn anew, or in one now and then."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cec_mpi.processes.launcher import detect_launcher
from cec_mpi.terminal import QUIET, VERBOSE, verbosity

AUTO, PLAIN, OFF = "auto", "plain", "off"
CHOICES = (AUTO, PLAIN, OFF)

_LAUNCHERS = {"mpirun", "mpiexec", "prterun", "orterun", "mpiexec.hydra"}
_ANCESTORS = 4  # a rank's launcher is its parent or, behind a proxy, its grandparent
_WITHOUT_CURSOR = {"dumb", "unknown"}  # as TERM
_NOTEBOOK = "JPY_PARENT_PID"  # of what a cell of a notebook starts, on a terminal that is none
_PART = 60  # of the time so far: lines become rarer in a long run


@dataclass(frozen=True)
class Way:
    """How progress is shown.

    Attributes
    ----------
    live : bool
        As lines that are drawn anew in their place, or as whole lines.
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


def is_watched() -> bool:
    """Whether people see on a terminal what this process writes to standard error.

    A launcher with a terminal hands on what its ranks write.
    """
    if sys.stderr.isatty():
        return True
    process = os.getppid()
    try:
        for _ in range(_ANCESTORS):
            directory = Path("/proc") / str(process)
            if (directory / "comm").read_text().strip() in _LAUNCHERS:
                errors = str((directory / "fd" / "2").readlink())
                return errors.startswith(("/dev/pts/", "/dev/tty"))
            process = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        pass  # no such process, or not ours to look at: then nobody is known to watch
    return False


def way_to_show(choice: str = AUTO, environ: Mapping[str, str] = os.environ) -> Way | None:
    """How this process can show progress where somebody sees it; None when it is to be quiet.

    Parameters
    ----------
    choice : str
        One of `CHOICES`.
    environ : mapping
        Variables of this process.
    """
    if choice == OFF or verbosity() == QUIET or sys.stderr is None:
        return None
    launcher = detect_launcher(environ)
    if launcher is not None and launcher.is_srun:  # no ancestor of its ranks
        watched = environ.get("ENVIRONMENT") != "BATCH"  # which sbatch sets
    else:
        watched = is_watched()
        has_cursor = environ.get("TERM") not in _WITHOUT_CURSOR and _NOTEBOOK not in environ
        if launcher is None and sys.stderr.isatty() and has_cursor and choice == AUTO:
            return LIVE
    if verbosity() == VERBOSE:
        return VERBOSELY
    return WATCHED if watched else KEPT
