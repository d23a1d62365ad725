"""Who is wrong: the machines without which the rest agree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

_MOST_SUSPECTS = 5_000  # sets of machines that are tried before nobody is named


@dataclass(frozen=True)
class Verdict:
    """What the comparison of the same rows of more than L shards, or answers, came to.

    Attributes
    ----------
    agree : bool
        All are combinations of the same X, to the precision that they have.
    wrong : tuple of int
        Machines whose shards or answers are wrong, where the others leave no doubt. Empty when
        all agree, and when it cannot be said who is wrong.
    candidates : tuple of tuple of int
        Where answers disagree, each machine that may be the wrong one if only one is, as all of
        its shards; empty where at least two are wrong.
    """

    agree: bool
    wrong: tuple[int, ...] = ()
    candidates: tuple[tuple[int, ...], ...] = ()


def suspects(
    machines: Sequence[int], most: int, explain: Callable[[tuple[int, ...]], bool]
) -> Iterator[list[tuple[int, ...]]]:
    """For one wrong machine, two, .. up to `most`: the sets of so many that explain it all.

    Parameters
    ----------
    machines : sequence of int
    most : int
    explain : callable
        Whether the rest agree without these.

    Examples
    --------
    >>> list(suspects((1, 2, 3), 2, lambda wrong: 3 in wrong))
    [[(3,)], [(1, 3), (2, 3)]]
    """
    for size in range(1, most + 1):
        if comb(len(machines), size) > _MOST_SUSPECTS:
            return
        yield [wrong for wrong in combinations(machines, size) if explain(wrong)]
