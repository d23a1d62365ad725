"""Answers to rows, whichever machines gave them: what is missing, and decoding from any L."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.accuracy.recombine import Verdict
from cec_mpi.core.checks.parity import Holders, Observation, ParityChecker
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
    """The answers to one step, decoded row by row as soon as L machines have given theirs.

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
        Then rows are decoded when L + 1 machines agree, or without any one machine L shards are
        left. Where they do not, further machines are needed, until it is certain which one is
        wrong: with three to spare it is, if not more than two are.
    sample : sequence of int, optional
        With a checker: only these rows are compared.
    scale : (k,) ndarray of float, optional
        For the checker, which needs it: S of each column, or a bound of it.

    Attributes
    ----------
    undecoded : int
        Rows that wait for more answers.
    accused : set of int
        Machines whose answers were found wrong, which are not used; where machines have several
        shards, all shards of these: then whatever is said here of machines is of shards.

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
        sample: Sequence[int] | None = None,
    ) -> None:
        self._checker = checker
        self._scale = scale
        self._decoders = decoders
        self._columns = columns
        self._parts = parts
        self._work = work
        self._holders = Holders(recovery) if checker is None else checker.holders
        self._starts = [0]
        self._segments = [Segment(0, rows, int(checker is not None and sample is None))]
        self.accused: set[int] = set()
        self.undecoded = rows
        for row in sample or ():
            for segment in self._between(row, row + 1):
                segment.enough = segment.needed = 1

    @property
    def condition(self) -> float:
        """The largest condition number that a row is decoded with by now; 1 before."""
        return max((s.decoder.condition for s in self._segments if s.decoder), default=1.0)

    @property
    def used(self) -> dict[tuple[int, ...], Decoder]:
        """The decoders that are used by now, by the machines whose answers they decode."""
        return {s.used: s.decoder for s in self._segments if s.decoder}

    def expect(self, machine: int, start: int, stop: int) -> None:
        """A machine was asked for rows ``start <= row < stop``."""
        for segment in self._between(start, stop):
            segment.expected.add(machine)

    def want(self, machine: int, start: int, stop: int) -> None:
        """As `expect`; and if an answer comes, it is compared with whatever else is there."""
        for segment in self._between(start, stop):
            segment.expected.add(machine)
            segment.wanted.add(machine)

    def give_up(self, machine: int, start: int = 0, stop: int | None = None) -> None:
        """Nothing more is expected of a machine, for some rows; what it has answered stays."""
        for segment in self._between(start, self._segments[-1].stop if stop is None else stop):
            segment.expected.discard(machine)
            if machine in segment.wanted:
                segment.wanted.discard(machine)
                self._look_at(segment)

    def give(self, machine: int, start: int, stop: int, values: NDArray[np.floating]) -> None:
        """A machine answered rows ``start <= row < stop``; what can be decoded now, is.

        Parameters
        ----------
        machine, start, stop : int
        values : ((stop - start) * k,) ndarray
            Row after row. Not copied: it has to stay as it is until all is decoded.
        """
        k = self._columns
        for segment in self._between(start, stop):
            segment.expected.discard(machine)
            segment.wanted.discard(machine)
            if machine in self.accused or (segment.decoded and self._checker is not None):
                continue
            segment.given[machine] = values[
                (segment.start - start) * k : (segment.stop - start) * k
            ]
            self._look_at(segment)

    def improve(self) -> bool:
        """Decode some rows again if answers that came later make that more exact; one look.

        For while there is nothing else to do but to wait for other answers.

        Returns
        -------
        bool
            Whether there was anything to look at; there may be more.
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
        """A machine is wrong: what of its answers is not decoded yet is not used."""
        self._do_without(self._holders.mates(machine))

    def compare_no_more(self) -> None:
        """Decode rows of a sample from any L answers, but where they disagree already."""
        for segment in list(self._segments):
            if not segment.decoded and not segment.is_doubtful:
                segment.enough = segment.needed = 0
                self._look_at(segment)

    def missing(self, eligible: Iterable[int]) -> list[Missing]:
        """Rows that will not get enough answers, and who of `eligible` may give one."""
        able = sorted(set(eligible) - self.accused)
        found = []
        for segment in self._segments:
            there = segment.given, segment.expected
            if segment.decoded or self._holders.are_enough(segment.needed, *there):
                continue
            others = tuple(n for n in able if n not in segment.given and n not in segment.expected)
            lacking = self._holders.further(list(chain(*there)), segment.needed, others)
            found.append(Missing(segment.start, segment.stop, *lacking))
        return found

    def doubtful(self) -> list[tuple[int, int, tuple[int, ...]]]:
        """Rows ``start <= row < stop`` whose answers disagree, and whose these are."""
        return [
            (segment.start, segment.stop, tuple(sorted(segment.given)))
            for segment in self._segments
            if segment.is_doubtful
        ]

    def candidates(self) -> tuple[tuple[int, ...], ...]:
        """The machines of which each alone may have made all these answers disagree."""
        return self._verdict().candidates

    def _between(self, start: int, stop: int) -> list[Segment]:
        """The segments of these rows, cut so that they are of these rows only."""
        if start >= stop:
            return []
        first, last = self._cut(start), self._cut(stop)
        return self._segments[first:last]

    def _cut(self, row: int) -> int:
        """Where the segment is that begins with this row; one does afterwards."""
        place = bisect_left(self._starts, row)
        if place < len(self._starts) and self._starts[place] == row:
            return place
        before = self._segments[place - 1]
        if row == before.stop:
            return place
        self._starts.insert(place, row)
        self._segments.insert(place, before.cut(row, self._columns))
        return place

    def _look_at(self, segment: Segment) -> None:
        """Decode rows that have enough answers, if these agree."""
        waits = segment.wanted or not self._holders.are_enough(segment.needed, segment.given)
        if segment.decoded or waits:
            return
        if segment.enough:
            assert self._checker is not None
            seen = self._seen(segment)
            failed = self._checker.inconsistent(seen.machines, seen.answers, seen.scale)
            if failed.any():
                segment.needed = self._holders.to_spare(segment.given) + 1
                self._name_the_wrong()
                return
        self._decode(segment)

    def _seen(self, segment: Segment) -> Observation:
        machines = tuple(sorted(segment.given))
        answers = np.array([segment.given[n] for n in machines], dtype=np.float64)
        assert self._scale is not None
        scale = np.tile(self._scale, segment.stop - segment.start)
        return Observation(machines, answers, scale)

    def _name_the_wrong(self) -> None:
        """Do without the machine that explains all rows that disagree, if only one does."""
        wrong = self._verdict().wrong
        if wrong:
            self._do_without(wrong)

    def _verdict(self) -> Verdict:
        assert self._checker is not None
        return self._checker.locate([self._seen(s) for s in self._segments if s.is_doubtful])

    def _do_without(self, wrong: Iterable[int]) -> None:
        self.accused |= set(wrong)
        for segment in self._segments:
            for machine in wrong:
                segment.given.pop(machine, None)
                segment.expected.discard(machine)
                segment.wanted.discard(machine)
            segment.needed = segment.enough
            taken_as_it_was = self._checker is not None and not segment.enough
            if segment.decoded and taken_as_it_was and self.accused & set(segment.used):
                segment.decoded = False
                self.undecoded += segment.stop - segment.start
        for segment in self._segments:
            self._look_at(segment)

    def _decode(self, segment: Segment) -> None:
        """Decode rows from those of their answers that are decoded best."""
        self._decode_from(segment, self._decoders.choose(tuple(sorted(segment.given))))
        self.undecoded -= segment.stop - segment.start
        segment.decoded, segment.seen = True, len(segment.given)

    def _decode_from(self, segment: Segment, machines: tuple[int, ...]) -> None:
        decoder = self._decoders.of(machines)
        answers = [segment.given[machine] for machine in machines]
        where = self._parts[:, segment.start * self._columns : segment.stop * self._columns]
        decode_in_panels(decoder, answers, where, self._work)
        segment.used, segment.decoder = machines, decoder


class Segment:
    """Rows ``start <= row < stop`` that have the same answers throughout."""

    __slots__ = (
        *("decoded", "decoder", "enough", "expected", "given"),
        *("needed", "seen", "start", "stop", "used", "wanted"),
    )

    def __init__(self, start: int, stop: int, enough: int) -> None:
        self.start, self.stop = start, stop
        # Without so many machines L answers have to be left: 1 where answers are compared,
        self.enough = enough
        self.needed = enough  # and as many before they are looked at.
        self.wanted: set[int] = set()  # those to be looked at with the others, if they come
        self.used: tuple[int, ...] = ()  # machines whose answers were decoded
        self.decoder: Decoder | None = None  # of these
        self.seen = 0  # answers that these were chosen from
        self.expected: set[int] = set()
        self.given: dict[int, NDArray[np.floating]] = {}
        self.decoded = False

    def cut(self, row: int, columns: int) -> Segment:
        """Keep the rows before this one; returns those from it on."""
        size = (row - self.start) * columns
        after = Segment(row, self.stop, self.enough)
        after.needed, after.used = self.needed, self.used
        after.expected, after.wanted = set(self.expected), set(self.wanted)
        after.given = {machine: values[size:] for machine, values in self.given.items()}
        after.decoded, after.decoder, after.seen = self.decoded, self.decoder, self.seen
        self.stop = row
        self.given = {machine: values[:size] for machine, values in self.given.items()}
        return after

    @property
    def is_doubtful(self) -> bool:
        """Whether its answers disagree."""
        return not self.decoded and self.needed > self.enough


class Decoders:
    """The decoders of a code, factored when first needed; those used longest ago are forgotten.

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
