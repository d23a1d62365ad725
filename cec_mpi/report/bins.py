"""Bins of steps, which limit the size of a page about a long run."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.report.chunks import Chunk, Floats
from cec_mpi.report.states import IDLE, PREEMPTED, STATE_INDEX, STATES
from cec_mpi.runtime.records.events import kind_and_machine
from cec_mpi.runtime.records.step import AbsenceTable

_MAX_CELLS = 1_200_000  # machines times bins, which is the size of the map in bytes
_MIN_BINS, MAX_BINS = 64, 4096
_NO_STATE = len(STATES)
_EVENT_STATES = {name: STATE_INDEX[name] for name in ("lost", "wrong", "late")}
_ABSENCE_STATES = STATE_INDEX | {"unresponsive": STATE_INDEX["lost"]}


class MachineBins:
    """Sums and states of each machine in each bin; pairs of bins are merged if there are too many.

    Parameters
    ----------
    max_bins : int
        Maximum number of bins, at least 64; it is reduced if there are many machines.

    Attributes
    ----------
    width : int
        Steps per bin: 1, or a power of 2.
    steps : int
        Number of steps.
    rows, seconds, shares : (B, N) ndarray
        Sums over the steps of a bin: rows, seconds, and fractions of the shard computed.
    available_steps : (B, N) ndarray
        Number of steps of the bin in which a machine was available.
    absence_states : (B, N) ndarray
        State of an unavailable machine; the first in `STATES` if a bin has several.
    event_states : (B, N) ndarray
        State that an event of a machine shows; the first in `STATES` if a bin has several.
    """

    def __init__(self, max_bins: int = MAX_BINS) -> None:
        self.width, self.steps = 1, 0
        self._max_bins = max_bins
        self._capacity = 0  # maximum number of bins for the number of machines
        self._allocate(0, 0)

    @property
    def count(self) -> int:
        """Number of bins with steps."""
        return -(-self.steps // self.width)

    @property
    def machines(self) -> int:
        """Number of machines."""
        return int(self.available_steps.shape[1])

    def add(self, chunk: Chunk, rows_per_shard: int) -> None:
        """Add the steps of the next chunk."""
        machines = chunk.machines
        if machines > self.available_steps.shape[1]:
            self._add_machines(machines)
        while -(-(self.steps + chunk.steps) // self.width) > self._capacity:
            self._merge_pairs()
        first = self.steps
        self.steps += chunk.steps
        first_bin = first // self.width
        self.seconds[first_bin : self.count, :machines] += self._sum_seconds(
            chunk.compute_seconds, first, first_bin
        )
        if not chunk.steps:
            return
        # Each piece lies in one stretch and in one bin.
        starts = np.arange(first_bin, self.count) * self.width - first
        edges = np.union1d(chunk.stretch_starts, np.maximum(starts, 0))
        stretch_of_piece = chunk.stretch_index[edges]
        steps = np.diff(edges, append=chunk.steps)[:, None]
        pieces_of_bin = np.searchsorted(edges, np.maximum(starts, 0))

        def accumulate(sums: Floats, values: NDArray[Any]) -> None:
            totals = np.add.reduceat(values[stretch_of_piece] * steps, pieces_of_bin, axis=0)
            sums[first_bin : self.count, :machines] += totals

        accumulate(self.rows, chunk.rows)
        accumulate(self.shares, chunk.rows / rows_per_shard)
        accumulate(self.available_steps, chunk.available)
        self._add_states(chunk)

    def _add_states(self, chunk: Chunk) -> None:
        """Add the states that absences and events show."""
        absent: AbsenceTable | None = None
        for stretch in chunk.stretches:
            begin_bin = (chunk.steps_before + stretch.begin) // self.width
            last_bin = (chunk.steps_before + stretch.end - 1) // self.width
            if stretch.first_step["absent_since"] is not absent:
                absent = stretch.first_step["absent_since"]
                states = [
                    (_ABSENCE_STATES[reason], np.fromiter(absent_machines, np.int64) - 1)
                    for reason, absent_machines in absent.items()
                    if reason != "preempted"
                ]
            for state, columns in states:
                cells = self.absence_states[begin_bin : last_bin + 1]
                cells[:, columns] = np.minimum(cells[:, columns], state)
            for kind, machine in map(kind_and_machine, stretch.first_step["events"]):
                if kind in _EVENT_STATES and machine <= chunk.machines:
                    cell = begin_bin, machine - 1
                    self.event_states[cell] = min(_EVENT_STATES[kind], self.event_states[cell])

    def encode_cells(self) -> str:
        """Return the cells of the map in base64: a byte for each bin of each machine."""
        bins = self.count
        ends = np.minimum((np.arange(bins) + 1) * self.width, self.steps)
        steps = np.diff(ends, prepend=0)[:, None]
        share = np.clip(self.shares[:bins] / steps, 0, 1)
        cells = (16 + np.rint(share * 239)).astype(np.uint8)
        cells[self.rows[:bins] == 0] = IDLE
        cells[self.available_steps[:bins] == 0] = PREEMPTED
        absence_states, event_states = self.absence_states[:bins], self.event_states[:bins]
        is_absent = (self.available_steps[:bins] == 0) & (absence_states < _NO_STATE)
        cells = np.where(is_absent, absence_states, cells)
        cells = np.where(event_states < _NO_STATE, event_states, cells)
        return base64.b64encode(np.ascontiguousarray(cells.T).tobytes()).decode()

    def _sum_seconds(self, seconds: Floats, first: int, first_bin: int) -> Floats:
        """Return the sums of bins from `first_bin` on, for steps from `first` on."""
        steps, machines = seconds.shape
        if self.count == first_bin + 1:
            return np.asarray(seconds.sum(axis=0, keepdims=True))
        if first % self.width == 0 and steps % self.width == 0:  # much faster than reduceat
            return np.asarray(seconds.reshape(-1, self.width, machines).sum(axis=1))
        starts = np.arange(first_bin, self.count) * self.width - first
        return np.add.reduceat(seconds, np.maximum(starts, 0), axis=0)

    def _add_machines(self, machines: int) -> None:
        self._capacity = max(_MIN_BINS, min(self._max_bins, _MAX_CELLS // machines)) // 2 * 2
        while self.count > self._capacity:
            self._merge_pairs()
        old_arrays = self._arrays()
        self._allocate(self._capacity, machines)
        for new, old in zip(self._arrays(), old_arrays, strict=True):
            filled = min(len(old), self._capacity)
            new[:filled, : old.shape[1]] = old[:filled]

    def _arrays(self) -> list[NDArray[Any]]:
        return [
            self.rows,
            self.seconds,
            self.shares,
            self.available_steps,
            self.absence_states,
            self.event_states,
        ]

    def _allocate(self, bins: int, machines: int) -> None:
        self.rows: Floats = np.zeros((bins, machines))
        self.seconds: Floats = np.zeros((bins, machines))
        self.shares: Floats = np.zeros((bins, machines))
        self.available_steps: Floats = np.zeros((bins, machines))
        self.absence_states = np.full((bins, machines), _NO_STATE, np.uint8)
        self.event_states = np.full((bins, machines), _NO_STATE, np.uint8)

    def _merge_pairs(self) -> None:
        """Merge each pair of bins into one."""
        half = len(self.rows) // 2
        for array in self._arrays():
            has_states = array.dtype == np.uint8
            merge = np.minimum if has_states else np.add
            array[:half] = merge(array[: 2 * half : 2], array[1 : 2 * half : 2])
            array[half:] = _NO_STATE if has_states else 0
        self.width *= 2


def bin_series(values: Floats, width: int) -> dict[str, list[float | None]]:
    """Return the values of a series, or the minimum, median and maximum of each bin.

    NaN is ignored. Numbers are rounded to six digits.

    Examples
    --------
    >>> bin_series(np.array([1.0, 5.0, np.nan]), 1)
    {'value': [1.0, 5.0, None]}
    >>> bin_series(np.array([1.0, 5.0, 2.0, np.nan, 4.0]), 3)
    {'min': [1.0, 4.0], 'median': [2.0, 4.0], 'max': [5.0, 4.0]}
    """
    if width == 1:
        return {"value": to_json_numbers(values)}
    bins = -(-len(values) // width)
    table = np.full(bins * width, np.nan)
    table[: len(values)] = values
    table = np.sort(table.reshape(bins, width), axis=1)  # NaN is last
    last = np.maximum((~np.isnan(table)).sum(axis=1) - 1, 0)
    row = np.arange(bins)
    medians = (table[row, last // 2] + table[row, (last + 1) // 2]) / 2
    return {
        "min": to_json_numbers(table[:, 0]),
        "median": to_json_numbers(medians),
        "max": to_json_numbers(table[row, last]),
    }


def to_json_numbers(values: Floats) -> list[float | None]:
    """Return numbers for JSON, rounded to six digits; None if not finite."""
    return [float(f"{value:.6g}") if value - value == 0 else None for value in values.tolist()]
