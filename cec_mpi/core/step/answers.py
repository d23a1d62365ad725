"""Answers to rows: what is missing, and decoding from any L machines."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.checks.parity import ParityChecker, Verdict
from cec_mpi.core.code.conditioning import choose_machines
from cec_mpi.core.code.decoder import Decoder
from cec_mpi.core.code.mds import MDSCode
from cec_mpi.core.plan.replan import Missing
from cec_mpi.core.step.codec import decode_in_panels

Floats = NDArray[np.float64]

_WELL_CONDITIONED = 10.0  # up to here another set of machines is not worth looking for
_BETTER = 2.0  # times the condition number, for which rows are decoded again
_DECODER_NUMBERS = 1 << 24  # in decoders that are remembered (128 MiB)
_CHOICES = 4096


class RowAnswers:
    """The answers to a step; rows are decoded as soon as L machines have answered.

    Parameters
    ----------
    decoders : Decoders
    recovery : int
        L.
    rows : int
        Rows per shard, R.
    columns : int
        k.
    parts : (L, R * k) ndarray of float64
        Receives the rows of X_1 W .. X_L W.
    work : (L * R * k,) ndarray of float64
        Scratch.
    checker : ParityChecker, optional
        Compares answers: rows are decoded when L + 1 machines agree. If they disagree, L + 3
        answers are needed, which say who is wrong.
    able : callable, optional
        From a row to the machines that can answer it, where not all can.
    cuts : sequence of int
        Rows at which other machines begin to be able.
    scale : (k,) ndarray of float, optional
        S of each column, or a bound of it; the checker needs it.

    Attributes
    ----------
    undecoded : int
        Number of rows that are not decoded.
    accused : set of int
        Machines whose answers were wrong, and are not used.

    Examples
    --------
    >>> from cec_mpi.core.code.mds import make_code
    >>> code, parts = make_code(3, 2), np.empty((2, 4))
    >>> answers = RowAnswers(Decoders(code), 2, 4, 1, parts, np.empty(8))
    >>> whole = code.generator @ [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]
    >>> answers.expect(1, 0, 4)
    >>> answers.give(3, 0, 4, whole[2])
    >>> answers.give(2, 2, 4, whole[1, 2:])
    >>> answers.undecoded, answers.missing([1, 2, 3])
    (2, [])
    >>> answers.give_up(1)
    >>> answers.missing([1, 2, 3])
    [Missing(start=0, stop=2, needed=1, eligible=(1, 2))]
    >>> answers.give(2, 0, 2, whole[1, :2])
    >>> parts.round(6)
    array([[1., 2., 3., 4.],
           [5., 6., 7., 8.]])
    """

    def __init__(
        self,
        decoders: Decoders,
        recovery: int,
        rows: int,
        columns: int,
        parts: Floats,
        work: Floats,
        checker: ParityChecker | None = None,
        scale: Floats | None = None,
        able: Callable[[int], Collection[int]] | None = None,
        cuts: Sequence[int] = (),
    ) -> None:
        self._able = able
        self._checker = checker
        self._scale = scale
        self._decoders = decoders
        self._columns = columns
        self._parts = parts
        self._work = work
        self._recovery = recovery
        self._starts = [0]
        self._segments = [Segment(0, rows)]
        self.accused: set[int] = set()
        self.undecoded = rows
        for row in cuts:
            self._cut(row)

    @property
    def condition(self) -> float:
        """The largest condition number with which a row was decoded; at first 1."""
        return max((s.decoder.condition for s in self._segments if s.decoder), default=1.0)

    def expect(self, machine: int, start: int, stop: int) -> None:
        """Note that a machine was asked for rows ``start <= row < stop``."""
        for segment in self._between(start, stop):
            segment.expected.add(machine)

    def give_up(self, machine: int, start: int = 0, stop: int | None = None) -> None:
        """Expect no more answers of a machine, for some rows; its earlier answers are kept."""
        for segment in self._between(start, self._segments[-1].stop if stop is None else stop):
            segment.expected.discard(machine)

    def give(self, machine: int, start: int, stop: int, values: NDArray[np.floating]) -> None:
        """Take an answer to rows ``start <= row < stop``, and decode what is complete.

        Parameters
        ----------
        machine, start, stop : int
        values : ((stop - start) * k,) ndarray
            Row after row. It is not copied, and must not change until all rows are decoded.
        """
        k = self._columns
        for segment in self._between(start, stop):
            segment.expected.discard(machine)
            if machine in self.accused or (segment.decoded and self._checker is not None):
                continue
            segment.given[machine] = values[
                (segment.start - start) * k : (segment.stop - start) * k
            ]
            self._look_at(segment)

    def improve(self) -> bool:
        """Decode some rows again if later answers make them more exact.

        The master calls this while it waits for other answers.

        Returns
        -------
        bool
            Whether there was a candidate; there may be more.
        """
        worst, where = _WELL_CONDITIONED, None
        for segment in self._segments:
            late = len(segment.given) > segment.seen
            if late and segment.decoder and segment.decoder.condition > worst:
                worst, where = segment.decoder.condition, segment
        if where is None:
            return False
        where.seen = len(where.given)
        machines = self._decoders.choose(tuple(sorted(where.given)))
        if self._decoders.of(machines).condition * _BETTER < worst:
            self._decode_from(where, machines)
        return True

    def do_without(self, machine: int) -> None:
        """Do not use the answers of a machine that are not decoded yet."""
        self._do_without((machine,))

    def missing(self, eligible: Iterable[int]) -> list[Missing]:
        """Return rows that will not get enough answers, and the machines that may give one."""
        able = sorted(set(eligible) - self.accused)
        found = []
        for segment in self._segments:
            there = len(segment.given) + len(segment.expected)
            needed = self._recovery + self._additional(segment) - there
            if segment.decoded or needed <= 0:
                continue
            others = tuple(
                n
                for n in able
                if n not in segment.given
                and n not in segment.expected
                and (self._able is None or n in self._able(segment.start))
            )
            if segment.is_doubtful:  # fewer than L + 3 answers leave fewer suspects
                if segment.expected and not others:
                    continue
                needed = max(1, min(needed, len(others)))
            found.append(Missing(segment.start, segment.stop, needed, others))
        return found

    def doubtful(self) -> list[tuple[int, int, Verdict, list[int]]]:
        """Return rows ``start <= row < stop`` whose answers disagree, what they show, and whose.

        Those with the most answers are first.
        """
        found = [segment for segment in self._segments if segment.is_doubtful]
        found.sort(key=lambda segment: -len(segment.given))
        return [(s.start, s.stop, self._verdict(s), sorted(s.given)) for s in found]

    def _between(self, start: int, stop: int) -> list[Segment]:
        """Return the segments of exactly these rows; segments are cut if necessary."""
        if start >= stop:
            return []
        first, last = self._cut(start), self._cut(stop)
        return self._segments[first:last]

    def _cut(self, row: int) -> int:
        """Return the index of the segment that begins with this row, after cutting one."""
        place = bisect_left(self._starts, row)
        if place < len(self._starts) and self._starts[place] == row:
            return place
        before = self._segments[place - 1]
        if row == before.stop:
            return place
        self._starts.insert(place, row)
        self._segments.insert(place, before.cut(row, self._columns))
        return place

    def _additional(self, segment: Segment) -> int:
        """Return how many answers beyond L a segment needs now."""
        if self._checker is None:
            return 0
        if not segment.is_doubtful:
            return 1
        return max(3, len(segment.given) - self._recovery + 1)

    def _look_at(self, segment: Segment) -> None:
        """Decode a segment if it has enough answers that agree."""
        if segment.decoded or len(segment.given) < self._recovery + (self._checker is not None):
            return
        if self._checker is not None and self._checker.disagree(*self._compared(segment)):
            segment.is_doubtful = True
            if len(segment.given) >= self._recovery + 3:
                self._do_without(self._verdict(segment).wrong)
            return
        segment.is_doubtful = False
        self._decode(segment)

    def _compared(self, segment: Segment) -> tuple[tuple[int, ...], Floats, Floats]:
        """Return the machines that answered, their answers, and the scale."""
        machines = tuple(sorted(segment.given))
        answers = np.array([segment.given[n] for n in machines], dtype=np.float64)
        assert self._scale is not None
        return machines, answers, np.tile(self._scale, segment.stop - segment.start)

    def _verdict(self, segment: Segment) -> Verdict:
        assert self._checker is not None
        return self._checker.find_wrong(*self._compared(segment))

    def _do_without(self, wrong: Collection[int]) -> None:
        if not wrong:
            return
        self.accused.update(wrong)
        for segment in self._segments:
            for machine in wrong:
                segment.given.pop(machine, None)
                segment.expected.discard(machine)
        for segment in self._segments:
            self._look_at(segment)

    def _decode(self, segment: Segment) -> None:
        """Decode a segment from its best conditioned answers."""
        self._decode_from(segment, self._decoders.choose(tuple(sorted(segment.given))))
        self.undecoded -= segment.stop - segment.start
        segment.decoded, segment.seen = True, len(segment.given)

    def _decode_from(self, segment: Segment, machines: tuple[int, ...]) -> None:
        decoder = self._decoders.of(machines)
        answers = [segment.given[machine] for machine in machines]
        where = self._parts[:, segment.start * self._columns : segment.stop * self._columns]
        decode_in_panels(decoder, answers, where, self._work)
        segment.decoder = decoder


class Segment:
    """Rows ``start <= row < stop`` that have the same answers throughout."""

    __slots__ = ("decoded", "decoder", "expected", "given", "is_doubtful", "seen", "start", "stop")

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        self.decoder: Decoder | None = None  # of the answers that were decoded
        self.seen = 0  # number of answers when these were chosen
        self.expected: set[int] = set()
        self.given: dict[int, NDArray[np.floating]] = {}
        self.decoded = False
        self.is_doubtful = False  # its answers disagree

    def cut(self, row: int, columns: int) -> Segment:
        """Keep the rows before this one; returns the segment of the others."""
        size = (row - self.start) * columns
        after = Segment(row, self.stop)
        after.expected, after.is_doubtful = set(self.expected), self.is_doubtful
        after.given = {machine: values[size:] for machine, values in self.given.items()}
        after.decoded, after.decoder, after.seen = self.decoded, self.decoder, self.seen
        self.stop = row
        self.given = {machine: values[:size] for machine, values in self.given.items()}
        return after


class Decoders:
    """The decoders of a code, made when first needed; those used longest ago are dropped.

    Parameters
    ----------
    code : MDSCode

    Examples
    --------
    >>> import numpy as np
    >>> decoders = Decoders(MDSCode(np.array([[1.0, 0.0], [1.0, 0.01], [0.0, 1.0]])))
    >>> decoders.choose((1, 2, 3)), round(decoders.of((1, 3)).condition)
    ((1, 3), 1)
    """

    def __init__(self, code: MDSCode) -> None:
        self._code = code
        most = max(16, _DECODER_NUMBERS // code.recovery**2)
        self.of = lru_cache(most)(code.decoder)  # by the numbers of L machines, ascending
        self.choose = lru_cache(_CHOICES)(self._choose)  # by those of L or more

    def _choose(self, machines: tuple[int, ...]) -> tuple[int, ...]:
        return choose_machines(self._code.generator, machines)
