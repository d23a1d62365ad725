"""Processes that get less of a core than they could use: by control groups, or by neighbours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from cec_mpi.errors import InputError

WAYS = ("auto", "cgroup", "neighbour")

_NAME = "cec-mpi-bench-"  # of control groups, with the number of a process
_PERIOD = 10_000  # microseconds: the shorter, the smoother; a quota has to be 1,000 at least
_LEAST = 0.1  # of a core, with this period
_LEAVING = 20.0  # seconds for the last process of a group to be gone
_NICE = 19  # the highest; each step is a quarter less
_STEP = 1.25
_BUSY = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
while os.getppid() == int(sys.argv[2]):
    for _ in range(1_000_000): pass
"""


@contextmanager
def slowed(shares: Sequence[float], way: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Have ready what slows processes down, until the end of the ``with``.

    Parameters
    ----------
    shares : sequence of float
        Of a core, for each process.
    way : {"auto", "cgroup", "neighbour"}
        ``auto``: control groups where they can be made.

    Yields
    ------
    way : str
        Which it is.
    told : list of dict
        For `be_slow` in each process.

    Raises
    ------
    InputError
        ``cgroup``, where none can be made.
    """
    if way != "neighbour":
        try:
            with _groups(shares) as groups:
                yield "cgroup", [{"group": str(group)} for group in groups]
            return
        except NoGroups as error:
            if way == "cgroup":
                raise InputError(
                    f"--slow-by cgroup: {error}; expected to be root where the cpu controller is, "
                    "or --slow-by neighbour"
                ) from None
    with _neighbours() as cores:
        yield (
            "neighbour",
            [
                {"core": cores[n % len(cores)], "nice": _nice(share, max(shares))}
                for n, share in enumerate(shares)
            ],
        )


def be_slow(told: dict[str, Any]) -> None:
    """Slow this process down as it was told."""
    if "group" in told:
        (Path(told["group"]) / "cgroup.procs").write_text(str(os.getpid()))
    else:
        os.sched_setaffinity(0, {told["core"]})
        os.nice(told["nice"])


class NoGroups(Exception):
    """No control group can be made."""


@contextmanager
def _groups(shares: Sequence[float]) -> Iterator[list[Path]]:
    """A control group for each share of a core, gone in the end."""
    parent, is_v2 = find_parent()
    made: list[Path] = []
    try:
        try:
            _remove_leftovers(parent)
            own = parent / f"{_NAME}{os.getpid()}"
            own.mkdir()
            made.append(own)
            if is_v2:
                (own / "cgroup.subtree_control").write_text("+cpu")
            # Before other programs, so that nothing but the limits slows these.
            name, most = ("cpu.weight", 10_000) if is_v2 else ("cpu.shares", 1 << 18)
            (own / name).write_text(str(most))
            for number, share in enumerate(shares, 1):
                group = own / f"machine-{number}"
                group.mkdir()
                made.append(group)
                limit_group(group, max(share, _LEAST), is_v2)
        except OSError as error:
            raise NoGroups(f"no control group in {parent}: {error.strerror}") from None
        yield made[1:]
    finally:
        _remove(made)


def limit_group(group: Path, share: float, is_v2: bool) -> None:
    """Give a control group so much of a core."""
    quota = round(share * _PERIOD)
    if is_v2:
        (group / "cpu.max").write_text(f"{quota} {_PERIOD}")
    else:
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD))
        (group / "cpu.cfs_quota_us").write_text(str(quota))


def find_parent(mounts: str | None = None, own: str | None = None) -> tuple[Path, bool]:
    """Where control groups with a limit of the processor can be made, and whether of version 2.

    Parameters
    ----------
    mounts, own : str, optional
        Of ``/proc/self/mounts`` and ``/proc/self/cgroup``, which are read by default.

    Raises
    ------
    NoGroups
        The controller is nowhere.
    """
    try:
        mounts = Path("/proc/self/mounts").read_text() if mounts is None else mounts
        own = Path("/proc/self/cgroup").read_text() if own is None else own
    except OSError as error:
        raise NoGroups(f"/proc: {error.strerror}") from None
    paths = dict(re.findall(r"^\d+:(.*):/(.*)$", own, re.MULTILINE))  # by names of controllers
    for line in mounts.splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup" and "cpu" in options.split(","):
            inside = next((path for name, path in paths.items() if "cpu" in name.split(",")), "")
            return Path(place) / inside, False
    for line in mounts.splitlines():
        _, place, kind, *_ = line.split()
        here = Path(place) / paths.get("", "")
        for group in (here, here.parent) if kind == "cgroup2" else ():
            control = group / "cgroup.subtree_control"
            if control.is_file() and "cpu" in control.read_text().split():
                return group, True
    raise NoGroups("no cpu controller that groups beside this process's could have")


def _remove_leftovers(parent: Path) -> None:
    """Remove the groups of processes that were killed."""
    for group in parent.glob(f"{_NAME}*"):
        pid = group.name.removeprefix(_NAME)
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            for each in (*group.glob("machine-*"), group):
                with suppress(OSError):  # processes of it are on their way out
                    each.rmdir()


def _remove(groups: list[Path]) -> None:
    """Remove control groups, the last first; their last processes may be on their way out."""
    by = time.monotonic() + _LEAVING
    left = groups[::-1]
    while left:
        kept = []
        for group in left:
            try:
                group.rmdir()
            except FileNotFoundError:
                continue
            except OSError:
                if time.monotonic() > by:
                    raise
                kept.append(group)
        left = kept
        time.sleep(0.02 * bool(left))


@contextmanager
def _neighbours() -> Iterator[list[int]]:
    """A process that never waits on each core of this one; yields the cores."""
    cores = sorted(os.sched_getaffinity(0))
    busy = []
    try:
        for core in cores:
            words = [sys.executable, "-c", _BUSY, str(core), str(os.getpid())]
            busy.append(subprocess.Popen(words))
        yield cores
    finally:
        for process in busy:
            process.kill()
            process.wait()


def _nice(share: float, most: float) -> int:
    """How nice a process has to be, beside the one with the largest share.

    Examples
    --------
    >>> _nice(0.5, 0.5), _nice(0.1, 0.5)
    (0, 7)
    """
    nice = 0
    while nice < _NICE and most / share > _STEP ** (nice + 0.5):
        nice += 1
    return nice
