"""Who looks, and how it can be shown to them: in lines drawn anew, or in one now and then.

A launcher hands on what its ranks write. Some wait for the end of each line: what begins
with a cursor that goes up and ends with its line reaches the terminal through all of them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import get_terminal_size

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


@dataclass(frozen=True)
class Terminal:
    """The terminal that shows the standard error of this process.

    Attributes
    ----------
    owner : int or None
        The launcher whose terminal it is, and that hands on what is written; None for our own.
    shows_output : bool
        Whether it shows standard output too.
    """

    owner: int | None
    shows_output: bool

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines, as they are now."""
        try:
            if self.owner is None:
                found = os.get_terminal_size(sys.stderr.fileno())
            else:
                flags = os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
                descriptor = os.open(f"/proc/{self.owner}/fd/2", flags)
                try:
                    found = os.get_terminal_size(descriptor)
                finally:
                    os.close(descriptor)
        except (OSError, ValueError):
            found = os.terminal_size((0, 0))
        usual = get_terminal_size((80, 24))
        return found.columns or usual.columns, found.lines or usual.lines


def terminal_seen() -> Terminal | None:
    """The terminal on which people see what this process writes to standard error, if any."""
    if sys.stderr.isatty():
        return Terminal(None, sys.stdout is not None and sys.stdout.isatty())
    process = os.getppid()
    try:
        for _ in range(_ANCESTORS):
            directory = Path("/proc") / str(process)
            if (directory / "comm").read_text().strip() in _LAUNCHERS:
                errors, output = (str((directory / "fd" / n).readlink()) for n in "21")
                is_terminal = errors.startswith(("/dev/pts/", "/dev/tty"))
                return Terminal(process, output == errors) if is_terminal else None
            process = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        pass  # no such process, or not ours to look at: then nobody is known to watch
    return None


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
        watched = terminal_seen() is not None
        can_be_live = environ.get("TERM") not in _WITHOUT_CURSOR and _NOTEBOOK not in environ
        if watched and can_be_live and choice == AUTO:
            return LIVE
    if verbosity() == VERBOSE:
        return VERBOSELY
    return WATCHED if watched else KEPT
