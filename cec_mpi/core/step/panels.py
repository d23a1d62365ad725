"""How many numbers are decoded at a time: they are in the caches from being copied together on."""

from __future__ import annotations

# As many as OpenBLAS multiplies with an L x L matrix without copying them again, and no fewer.
_FEWEST, _SMALL = 8192, 10**6


def width(recovery: int) -> int:
    """How many numbers of each of L machines are decoded at a time.

    Parameters
    ----------
    recovery : int
        L.

    Examples
    --------
    >>> width(3), width(40)
    (111111, 8192)
    """
    return max(_FEWEST, (_SMALL - 1) // recovery**2)
