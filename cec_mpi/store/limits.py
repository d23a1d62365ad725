"""Processors and memory that CPU affinity and control groups leave to this process."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_PROCESS = Path("/proc/self")
WORK_MEMORY_BYTES = 512 << 20
"""Bytes that each process may use by default to encode, repair, decode or add a machine."""
DEFAULT_MEMORY_FRACTION = 0.9  # of free memory, for the shards of a host
_CGROUP_V1_FILES = "memory.limit_in_bytes", "memory.usage_in_bytes"
_MAX_GROUP_ID = 2**31 - 1  # the largest color of MPI_Comm_split


class Quota(NamedTuple):
    """CPU quota of a control group.

    Attributes
    ----------
    processors : float
        CPU seconds per second; infinite without a limit.
    group : int
        Positive number that is equal for processes that share the quota; 0 without a limit.
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
    """Return the smallest quota of a process's control group and its ancestors.

    Parameters
    ----------
    process : Path
        Directory of the process in ``/proc``.
    """
    quota = Quota()
    for directory in _cgroup_directories("cpu", process):
        processors = _read_quota(directory)
        if processors < quota.processors:
            quota = Quota(processors, 1 + directory.stat().st_ino % _MAX_GROUP_ID)
    return quota


def count_processors() -> int:
    """Return the number of processors that this process can keep busy, at least 1."""
    return cpu_quota().limit(len(os.sched_getaffinity(0)))


def total_memory(process: Path = _PROCESS) -> int:
    """Return the memory of this computer in bytes, or the limit of a control group if it is lower.

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
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *(int(text) for text in texts if text.isdecimal())])


def free_memory(process: Path = _PROCESS) -> int:
    """Return the bytes of memory available to a process, counting the page cache as free.

    Parameters
    ----------
    process : Path
        Directory of the process in ``/proc``.
    """
    text = _read_text(process.with_name("meminfo"))
    free = [1024 * int(size) for size in re.findall(r"(?m)^MemAvailable: +(\d+) kB", text)]
    for directory in _cgroup_directories("memory", process):
        cached = re.findall(r"(?m)^(?:in)?active_file (\d+)", _read_text(directory / "memory.stat"))
        for names in ("memory.max", "memory.current"), _CGROUP_V1_FILES:
            limit, used = (_read_text(directory / name) for name in names)
            if limit.isdecimal() and used.isdecimal():
                free.append(max(0, int(limit) - int(used) + sum(map(int, cached))))
    return min(free, default=total_memory(process))


def _read_quota(directory: Path) -> float:
    """Return the CPU quota of a control group, of cgroup v2 or v1."""
    text = _read_text(directory / "cpu.max")
    if not text:
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        text = " ".join(_read_text(directory / name) for name in names)
    # Without a limit, the text starts with max or -1.
    match = re.fullmatch(r"([1-9]\d*) ([1-9]\d*)", text)
    return int(match[1]) / int(match[2]) if match else math.inf


def _cgroup_directories(controller: str, process: Path) -> list[Path]:
    """Return the directories of a process's control group and its ancestors.

    In a container, the mount can show only a subtree of the hierarchy, so the path of the process
    need not exist below the mount point.
    """
    groups = {}  # path by controller, which is "" for version 2
    for controllers, path in re.findall(r"(?m)^\d+:([^:]*):(.*)$", _read_text(process / "cgroup")):
        groups.update(dict.fromkeys(controllers.split(","), path))
    directories = []
    pattern = r"(?m)^\S+ \S+ \S+ (\S+) (\S+) .* - (cgroup2?) \S* (\S+)$"
    mounts = re.findall(pattern, _read_text(process / "mountinfo"))
    for root, mount_point, fs_type, options in mounts:
        name = controller if fs_type == "cgroup" else ""
        if name not in groups or (name and name not in options.split(",")):
            continue
        group, root = PurePosixPath(groups[name]), _unescape(root)
        path = group.relative_to(root) if group.is_relative_to(root) else PurePosixPath()
        directories += [Path(_unescape(mount_point), part) for part in (path, *path.parents)]
    return directories


def _unescape(text: str) -> str:
    return re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), text)


def _read_text(path: Path) -> str:
    """Return the text of a system file, or '' if it cannot be read."""
    try:
        return os.fsdecode(path.read_bytes()).strip()
    except OSError:
        return ""
