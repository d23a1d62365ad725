"""Processors and memory available to this process, by affinity and control groups."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_PROCESS = Path("/proc/self")
WORK_MEMORY_BYTES = 512 << 20
"""Bytes that each process may use to encode, repair or decode."""
DEFAULT_MEMORY_FRACTION = 0.9  # of free memory, for the shards of a host
_CGROUP_V1_FILES = "memory.limit_in_bytes", "memory.usage_in_bytes"
_MAX_GROUP_ID = 2**31 - 1  # valid as a color in MPI


class Quota(NamedTuple):
    """CPU quota of a control group.

    Attributes
    ----------
    processors : float
        CPU seconds per second; infinite without a limit.
    group : int
        Nonzero number that is equal for processes that share the quota.
    """

    processors: float = math.inf
    group: int = 0

    def limit(self, count: int) -> int:
        """Return the number of threads that the quota can keep busy, at most `count`.

        Fractions are rounded up: with a quota of 1.5, two threads do 1.5 times the work of one.

        Examples
        --------
        >>> Quota(1.5).limit(8), Quota(0.2).limit(8), Quota().limit(8)
        (2, 1, 8)
        """
        return math.ceil(min(count, self.processors))


def cpu_quota(process: Path = _PROCESS) -> Quota:
    """Return the smallest quota of this process's control group and its ancestors.

    Parameters
    ----------
    process : Path
        Directory of the process in ``/proc``.
    """
    quota = Quota()
    for directory in _cgroup_directories("cpu", process):
        found = _read_quota(directory)
        if found < quota.processors:
            quota = Quota(found, 1 + directory.stat().st_ino % _MAX_GROUP_ID)
    return quota


def count_processors() -> int:
    """Return the number of processors that this process may keep busy, at least 1."""
    return cpu_quota().limit(len(os.sched_getaffinity(0)))


def total_memory(process: Path = _PROCESS) -> int:
    """Return the bytes of memory of this computer, or the limit of this process's control groups.

    Parameters
    ----------
    process : Path
        Directory of the process in ``/proc``.
    """
    names = ("memory.max", "memory.limit_in_bytes")
    texts = [
        _read_text(group / name)
        for group in _cgroup_directories("memory", process)
        for name in names
    ]
    installed = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([installed, *(int(text) for text in texts if text.isdecimal())])


def free_memory(process: Path = _PROCESS) -> int:
    """Return the bytes available to this process: free memory and page cache.

    Parameters
    ----------
    process : Path
        Directory of the process in ``/proc``.
    """
    text = _read_text(process.with_name("meminfo"))
    free = [1024 * int(size) for size in re.findall(r"(?m)^MemAvailable: +(\d+) kB", text)]
    for directory in _cgroup_directories("memory", process):
        files = re.findall(r"(?m)^(?:in)?active_file (\d+)", _read_text(directory / "memory.stat"))
        for names in ("memory.max", "memory.current"), _CGROUP_V1_FILES:
            limit, used = (_read_text(directory / name) for name in names)
            if limit.isdecimal() and used.isdecimal():
                free.append(max(0, int(limit) - int(used) + sum(map(int, files))))
    return min(free, default=total_memory(process))


def _read_quota(directory: Path) -> float:
    """Return the quota of a control group of version 2 or 1."""
    text = _read_text(directory / "cpu.max")
    if not text:
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        text = " ".join(_read_text(directory / name) for name in names)
    # Without a limit, the text starts with max or -1.
    found = re.fullmatch(r"([1-9]\d*) ([1-9]\d*)", text)
    return int(found[1]) / int(found[2]) if found else math.inf


def _cgroup_directories(controller: str, process: Path) -> list[Path]:
    """Return the directories of this process's control group and its ancestors.

    A container may see only its own group. The mount point of the groups is then a group inside the
    hierarchy, and the path of the process may not exist below it.
    """
    own = {}  # path by controller, which is "" for version 2
    for controllers, path in re.findall(r"(?m)^\d+:([^:]*):(.*)$", _read_text(process / "cgroup")):
        own.update(dict.fromkeys(controllers.split(","), path))
    found = []
    mounts = r"(?m)^\S+ \S+ \S+ (\S+) (\S+) .* - (cgroup2?) \S* (\S+)$"
    for root, point, kind, options in re.findall(mounts, _read_text(process / "mountinfo")):
        name = controller if kind == "cgroup" else ""
        if name not in own or (name and name not in options.split(",")):
            continue
        root, point = _unescape(root), _unescape(point)
        path = PurePosixPath(own[name])
        inside = path.relative_to(root) if path.is_relative_to(root) else PurePosixPath()
        found += [Path(point, part) for part in (inside, *inside.parents)]
    return found


def _unescape(text: str) -> str:
    return re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), text)


def _read_text(path: Path) -> str:
    """Return the text of a system file, or '' if it cannot be read."""
    try:
        return os.fsdecode(path.read_bytes()).strip()
    except OSError:
        return ""
