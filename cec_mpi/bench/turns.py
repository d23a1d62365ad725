"""Times of several ways to do something, taken in turns, so that they compare."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping

from cec_mpi.bench.figures import Figure

_logger = logging.getLogger(__name__)

Times = dict[str, list[float]]


def in_turns(
    ways: Mapping[str, Callable[[], object]], turns: int, repeats: int = 1, tries: int = 3
) -> Times:
    """Seconds that each of these takes, in each turn.

    Every other turn goes through them the other way round. What each does first, as reading its
    data, is done once before and not counted.

    Parameters
    ----------
    ways : dict of str to callable
    turns : int
    repeats : int
        Calls that are timed together, for what takes microseconds: the time of one is kept.
    tries : int
        So often in a turn, of which the shortest counts: what else the computer does for a moment
        disturbs it least.
    """

    def clocked(way: Callable[[], object]) -> Callable[[], float]:
        def seconds() -> float:
            begin = time.perf_counter()
            for _ in range(repeats):
                way()
            return (time.perf_counter() - begin) / repeats

        return lambda: min(seconds() for _ in range(tries))

    return told_in_turns({name: clocked(way) for name, way in ways.items()}, turns)


def told_in_turns(ways: Mapping[str, Callable[[], float]], turns: int, uncounted: int = 1) -> Times:
    """As `in_turns`, of ways that say themselves how many seconds they took.

    Parameters
    ----------
    ways : dict of str to callable
        Collective where they are: all ranks go through them in the same order.
    turns : int
    uncounted : int
        Turns before these.
    """
    times: Times = {name: [] for name in ways}
    names = list(ways)
    for turn in range(-uncounted, turns):
        for name in names if turn % 2 == 0 else reversed(names):
            seconds = ways[name]()
            if turn >= 0:
                times[name].append(seconds)
            log_turn(turn, turns, name, seconds)
    return times


def log_turn(turn: int, turns: int, name: str, seconds: float) -> None:
    """Say to those who want to hear it what has been measured; turns below 0 are not counted."""
    which = f"turn {turn + 1} of {turns}" if turn >= 0 else "not counted"
    _logger.info("%s: %s, %.3g s", which, name, seconds)


def fastest(times: Times, names: Iterable[str]) -> str:
    """Which of these took the least, by their medians."""
    return min(names, key=lambda name: Figure.of(name, times[name]).value)


def ratio(
    times: Times, name: str, over: str, *, called: str = "", better: str = "less", peer: str = ""
) -> Figure:
    """Seconds of one over those of another, from the ratios within each turn.

    Parameters
    ----------
    times : dict of str to list of float
        Of `in_turns`.
    name, over : str
        Two of them.
    called : str
        The figure's name, if it is another one.
    better : {"less", "more"}
        ``"more"``: the ratio of their speeds in the place of that of their times.
    peer : str
        What the figure is over, in words, if these are others.

    Examples
    --------
    >>> ratio({"ours": [2.0, 4.0], "bare": [1.0, 2.0]}, "ours", "bare").value
    2.0
    >>> ratio({"ours": [2.0, 4.0], "bare": [1.0, 2.0]}, "ours", "bare", better="more").value
    0.5
    """
    pairs = list(zip(times[name], times[over], strict=True))
    values = [a / b if better == "less" else b / a for a, b in pairs]
    return Figure.of(called or name, values, over=peer or over, better=better)


def seconds(times: Times, name: str, called: str = "") -> Figure:
    """Seconds of one of them, as they are."""
    return Figure.of(called or name, times[name], unit="s")
