"""Machine numbers as text, such as ``1-3,5``."""

from __future__ import annotations

from collections.abc import Iterable

_MAX_RANGE = 1 << 20  # machines of a range; a typo must not exhaust memory


def read_machines(text: str | Iterable[str]) -> tuple[int, ...]:
    """Parse machine numbers and ranges; keep their order.

    Parameters
    ----------
    text : str or iterable of str
        Comma-separated text, or its parts.

    Raises
    ------
    ValueError
        A part is not a number, or a range is decreasing or too long.

    Examples
    --------
    >>> read_machines("1-3, 5")
    (1, 2, 3, 5)
    """
    numbers: list[int] = []
    for part in text.split(",") if isinstance(text, str) else text:
        first, dash, last = part.strip().partition("-")
        start = _parse_number(first)
        stop = _parse_number(last) if dash else start
        if start > stop or stop - start >= _MAX_RANGE:
            raise ValueError(f"{part.strip()!r}: expected machine numbers, such as 1-3,5")
        numbers += range(start, stop + 1)
    return tuple(numbers)


def _parse_number(text: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError(f"{text!r}: expected machine numbers, such as 1-3,5")
    return int(text)
