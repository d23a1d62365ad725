"""Processors that a process may use, and the cores and NUMA domains behind them, on Linux."""

from __future__ import annotations

import os
from collections.abc import Set
from pathlib import Path

_SYSTEM = Path("/sys/devices/system")


def unbound_processors() -> set[int]:
    """Processors that this process could use if it were bound to none: all of its cpuset.

    Found by asking for all for a moment; where that is refused, those that it may use.
    """
    bound = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, range(os.sysconf("SC_NPROCESSORS_CONF")))
    except OSError:
        return bound
    try:
        return os.sched_getaffinity(0)
    finally:
        os.sched_setaffinity(0, bound)


def count_cores(processors: Set[int], system: Path = _SYSTEM) -> int:
    """Cores of these processors: hardware threads of one core count once.

    Where the system does not say, each processor is a core.
    """
    cores = set()
    for number in processors:
        try:
            siblings = system / f"cpu/cpu{number}/topology/thread_siblings_list"
            cores.add(siblings.read_text().strip())
        except OSError:
            cores.add(str(number))
    return len(cores)


def count_domains(processors: Set[int], system: Path = _SYSTEM) -> int:
    """NUMA domains that these processors are in; 1 where the system does not say."""
    lists = [path.read_text() for path in system.glob("node/node[0-9]*/cpulist")]
    return max(1, sum(not processors.isdisjoint(_numbers(text)) for text in lists))


def _numbers(text: str) -> set[int]:
    """The numbers of a list like ``0-3,8``."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found
