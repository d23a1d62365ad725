"""Steps in bins, so that the page of a long run stays small."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.report.chunks import Chunk, Floats
from cec_mpi.report.kinds import IDLE, PREEMPTED, STATE_OF, STATES
from cec_mpi.runtime.records.events import kind_and_machine
from cec_mpi.runtime.records.step import Away

_MOST_CELLS = 1_200_000  # machines by bins: bytes of the map
_FEWEST, MOST_BINS = 64, 4096
_NONE = len(STATES)
_OF_EVENTS = {name: STATE_OF[name] for name in ("lost", "wrong", "late")}
_STATE_OF_WHY = STATE_OF | {"given up": STATE_OF["lost"]}


class MachineBins:
    """What each machine did in each bin; bins become wider while steps come.

    Parameters
    ----------
    most : int
        Most bins.

    Attributes
    ----------
    width : int
        Steps per bin: 1, or a power of 2.
    count : int
        Steps so far.
    rows, seconds, shares : (B, N) ndarray
        Sums over the steps of a bin: of rows, seconds, and parts of the shard computed.
    present : (B, N) ndarray
        In how many of them a machine was available.
    whys : (B, N) ndarray
        Why it was away, the state that matters most.
    """

    def __init__(self, most: int = MOST_BINS) -> None:
        self.width, self.count = 1, 0
        self._limit, self._most = most, 0
        self._set(0, 0)

    @property
    def bins(self) -> int:
        """How many bins have steps."""
        return -(-self.count // self.width)

    @property
    def machines(self) -> int:
        """N."""
        return int(self.present.shape[1])

    def add(self, chunk: Chunk, rows_per_shard: int) -> None:
        """Take the steps of a chunk, which follow those before."""
        machines = chunk.seconds.shape[1]
        if machines > self.present.shape[1]:
            self._widen(machines)
        while -(-(self.count + chunk.steps) // self.width) > self._most:
            self._merge()
        first = self.count
        self.count += chunk.steps
        lowest = first // self.width
        self.seconds[lowest : self.bins, :machines] += self._sums(chunk.seconds, first, lowest)
        if not chunk.steps:
            return
        # Pieces lie in one stretch and in one bin.
        starts = np.arange(lowest, self.bins) * self.width - first
        edges = np.union1d(chunk.begins_of, np.maximum(starts, 0))
        which = chunk.stretch_of[edges]
        steps = np.diff(edges, append=chunk.steps)[:, None]
        where = np.searchsorted(edges, np.maximum(starts, 0))

        def add(sums: Floats, values: NDArray[Any]) -> None:
            found = np.add.reduceat(values[which] * steps, where, axis=0)
            sums[lowest : self.bins, :machines] += found

        add(self.rows, chunk.rows)
        add(self.shares, chunk.rows / rows_per_shard)
        add(self.present, chunk.here)
        away: Away | None = None
        for stretch in chunk.stretches:
            bins = (first + stretch.begin) // self.width, (first + stretch.end - 1) // self.width
            if stretch.step["away"] is not away:
                away = stretch.step["away"]
                states = [
                    (_STATE_OF_WHY[why], np.fromiter(those, np.int64) - 1)
                    for why, those in away.items()
                    if why != "preempted"
                ]
            for state, which_machines in states:
                cells = self.whys[bins[0] : bins[1] + 1]
                cells[:, which_machines] = np.minimum(cells[:, which_machines], state)
            for kind, machine in map(kind_and_machine, stretch.step["events"]):
                if kind in _OF_EVENTS and machine <= machines:
                    marks = self.marks[bins[0]]
                    marks[machine - 1] = min(_OF_EVENTS[kind], marks[machine - 1])

    def cells(self) -> str:
        """Return the map in base64: a byte for each machine and bin, machine by machine."""
        bins = self.bins
        steps = self.steps_of_bins()[:, None]
        share = np.clip(self.shares[:bins] / steps, 0, 1)
        cells = (16 + np.rint(share * 239)).astype(np.uint8)
        cells[self.rows[:bins] == 0] = IDLE
        cells[self.present[:bins] == 0] = PREEMPTED
        whys = self.whys[:bins]
        cells = np.where((self.present[:bins] == 0) & (whys < _NONE), whys, cells)
        marked = self.marks[:bins]
        cells = np.where(marked < _NONE, marked, cells)
        return base64.b64encode(np.ascontiguousarray(cells.T).tobytes()).decode()

    def steps_of_bins(self) -> NDArray[np.int64]:
        """Return how many steps each bin has."""
        ends = np.minimum((np.arange(self.bins) + 1) * self.width, self.count)
        return np.diff(ends, prepend=0)

    def _sums(self, seconds: Floats, first: int, lowest: int) -> Floats:
        """By bins from the lowest one on, of steps from the first one on."""
        steps, machines = seconds.shape
        if self.bins == lowest + 1:
            return np.asarray(seconds.sum(axis=0, keepdims=True))
        if first % self.width == 0 and steps % self.width == 0:  # much faster than what follows
            return np.asarray(seconds.reshape(-1, self.width, machines).sum(axis=1))
        starts = np.arange(lowest, self.bins) * self.width - first
        return np.add.reduceat(seconds, np.maximum(starts, 0), axis=0)

    def _widen(self, machines: int) -> None:
        self._most = max(_FEWEST, min(self._limit, _MOST_CELLS // machines)) // 2 * 2
        while self.bins > self._most:
            self._merge()
        before = self._arrays()
        self._set(self._most, machines)
        for new, old in zip(self._arrays(), before, strict=True):
            filled = min(len(old), self._most)
            new[:filled, : old.shape[1]] = old[:filled]

    def _arrays(self) -> list[NDArray[Any]]:
        return [
            self.rows,
            self.seconds,
            self.shares,
            self.present,
            self.whys,
            self.marks,
        ]

    def _set(self, bins: int, machines: int) -> None:
        self.rows: Floats = np.zeros((bins, machines))
        self.seconds: Floats = np.zeros((bins, machines))
        self.shares: Floats = np.zeros((bins, machines))
        self.present: Floats = np.zeros((bins, machines))
        self.whys = np.full((bins, machines), _NONE, np.uint8)
        self.marks = np.full((bins, machines), _NONE, np.uint8)

    def _merge(self) -> None:
        """Merge pairs of bins."""
        half = len(self.rows) // 2
        for array in self._arrays():
            states = array.dtype == np.uint8
            merge = np.minimum if states else np.add
            array[:half] = merge(array[: 2 * half : 2], array[1 : 2 * half : 2])
            array[half:] = _NONE if states else 0
        self.width *= 2


def binned(values: Floats, width: int) -> dict[str, list[float | None]]:
    """Return a series by bins: its values, or the least, the median and the largest of each.

    NaN is left out. Numbers keep six digits.

    Examples
    --------
    >>> binned(np.array([1.0, 5.0, np.nan]), 1)
    {'value': [1.0, 5.0, None]}
    >>> binned(np.array([1.0, 5.0, 2.0, np.nan, 4.0]), 3)
    {'min': [1.0, 4.0], 'mid': [2.0, 4.0], 'max': [5.0, 4.0]}
    """
    if width == 1:
        return {"value": listed(values)}
    bins = -(-len(values) // width)
    table = np.full(bins * width, np.nan)
    table[: len(values)] = values
    table = np.sort(table.reshape(bins, width), axis=1)  # NaN comes last
    known = (~np.isnan(table)).sum(axis=1)
    last = np.maximum(known - 1, 0)
    row = np.arange(bins)
    middle = (table[row, last // 2] + table[row, (last + 1) // 2]) / 2
    return {
        "min": listed(table[:, 0]),
        "mid": listed(middle),
        "max": listed(table[row, last]),
    }


def listed(values: Floats) -> list[float | None]:
    """Return numbers for JSON with six digits; null if they are not finite."""
    return [float(f"{each:.6g}") if each - each == 0 else None for each in values.tolist()]
