"""Memory that a process may use, on Linux: that of the node, or of a control group."""

from __future__ import annotations

import os
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_MINE = Path("/proc/self/cgroup")


def memory_here(mine: Path = _MINE, groups: Path = _GROUPS) -> int:
    """Bytes of memory of this node, or as many as the groups of this process may use."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    try:
        lines = mine.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            found += _limits(groups, path, "memory.max")
        elif "memory" in controllers.split(","):
            found += _limits(groups / "memory", path, "memory.limit_in_bytes")
    return min(found)


def _limits(root: Path, path: str, name: str) -> list[int]:
    """Of a group and those that it is in; one that has none says so in a word."""
    found = []
    directory = root / path.lstrip("/")
    for group in (directory, *directory.parents):
        if not group.is_relative_to(root):
            break
        try:
            text = (group / name).read_text().strip()
        except OSError:
            continue
        if text.isdecimal():
            found.append(int(text))
    return found
