"""Lists and counts in messages."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["listed", "plural"]


def listed(names: Iterable[object], most: int = 3) -> str:
    """Names without repetition, the first few of them.

    Examples
    --------
    >>> listed(["n1", "n1", "n2"])
    'n1 and n2'
    >>> listed(f"n{i}" for i in range(1, 21))
    'n1, n2, n3 and 17 more'
    """
    each = [str(name) for name in dict.fromkeys(names)]
    if len(each) > most + 1:
        each = [*each[:most], f"{len(each) - most} more"]
    return " and ".join(filter(None, [", ".join(each[:-1]), each[-1]]))


def plural(count: int, word: str) -> str:
    """A number of things.

    Examples
    --------
    >>> plural(1, "core"), plural(2, "core")
    ('1 core', '2 cores')
    """
    return f"{count} {word}{'' if count == 1 else 's'}"
