"""Slurm node lists, such as ``n[1-4],login``."""

from __future__ import annotations

import itertools
import math
import re

from cec_mpi.errors import InputError

_HOST_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
_MAX_NODES = 100_000  # a typo must not exhaust memory


def expand_nodelist(text: str) -> list[str]:
    """Return the host names of a node list.

    Raises
    ------
    InputError
        The text is not a node list, or part of it has too many nodes.

    Examples
    --------
    >>> expand_nodelist("login,n[1-2,08-10]")
    ['login', 'n1', 'n2', 'n08', 'n09', 'n10']
    """
    names: list[str] = []
    for part in re.split(r",(?![^\[]*\])", text):  # commas outside brackets
        pieces = re.split(r"\[([^\]]*)\]", part)
        choices = [
            _expand_bracket(piece, text) if index % 2 else [piece]
            for index, piece in enumerate(pieces)
        ]
        if math.prod(map(len, choices)) > _MAX_NODES:
            raise InputError(f"nodes {text!r}: found {part!r}, expected at most {_MAX_NODES} nodes")
        names += map("".join, itertools.product(*choices))
    if invalid := [name for name in names if not re.fullmatch(_HOST_NAME, name)]:
        raise InputError(
            f"nodes {text!r}: found {invalid[0]!r}, expected a list such as n[1-4],login"
        )
    return names


def _expand_bracket(text: str, nodelist: str) -> list[str]:
    """Return the numbers in brackets, such as ``1-2,08-10``, with leading zeros."""
    numbers: list[str] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not match or not 0 <= last - first < _MAX_NODES:
            raise InputError(
                f"nodes {nodelist!r}: found [{text}], expected ascending ranges such as [1-4,7] of "
                f"at most {_MAX_NODES} nodes"
            )
        numbers += (f"{number:0{len(match[1])}d}" for number in range(first, last + 1))
    return numbers
