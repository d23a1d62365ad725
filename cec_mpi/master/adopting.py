"""Shards of machines that are away, which others take over: who does, which, and how it went."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

import numpy as np

from cec_mpi.core.plan.adopting import shares_of
from cec_mpi.core.plan.placement import Placement, Reach
from cec_mpi.errors import InfeasibleError
from cec_mpi.master.planning import StepPlanner
from cec_mpi.options.session import SessionOptions
from cec_mpi.records.events import Event
from cec_mpi.roster import Change, Gone, State
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.times import ADOPT_FACTOR, ADOPT_SECONDS
from cec_mpi.wire.jobs import Job, JobsEnd

log = logging.getLogger(__name__)

_MOST = 2.0**62  # seconds or bytes that are believed
_NOTHING: Mapping[int, Sequence[int]] = MappingProxyType({})
_FAILURES = 3  # one after the other: then a machine is asked to take over nothing more
BANDWIDTH = 1e9  # bytes per second that are read or multiplied, where nothing is known


class Reading:
    """What machines have read, and how long that took.

    Parameters
    ----------
    machines : int
    size : int
        Bytes of a shard.
    """

    def __init__(self, machines: int, size: int) -> None:
        self._size = size
        self._read = np.zeros((2, machines))  # seconds, bytes

    def learn(self, job: Job) -> None:
        """Take what a machine has read for a job."""
        told = job.reported
        if told.load_bytes > 0 and 0 < told.load_seconds < float("inf"):
            self._read[:, job.machine - 1] += told.load_seconds, told.load_bytes

    def seconds(self, machine: int) -> float:
        """That a machine should take to read a shard; as all, where it has read nothing."""
        which = slice(machine - 1, machine) if self._read[1, machine - 1] else slice(None)
        seconds, count = self._read[:, which].sum(axis=1)
        return float(self._size * seconds / count) if count else self._size / BANDWIDTH


class Adopting:
    """Has machines take over shards, one after the other on each, and says who has what then.

    Parameters
    ----------
    end : JobsEnd
    steps : StepPlanner
        Its placement is replaced when machines have other shards.
    manifest : Manifest
    most : int or None
        Shards that a machine has memory for, where its process has not said less.

    Attributes
    ----------
    pending : dict of int to Job
        Machines that read a shard now.
    reading : Reading
        How long that takes.
    """

    def __init__(
        self,
        end: JobsEnd,
        steps: StepPlanner,
        manifest: Manifest,
        most: int | None,
    ) -> None:
        self.pending: dict[int, Job] = {}
        self._queue: dict[int, list[int]] = {}  # what they are to take over next
        self._end, self._steps, self._manifest = end, steps, manifest
        self._most = steps.placement.shards if most is None else most
        self._ranks: dict[int, int] = {}  # of machines, when they took over something
        self._failed: set[tuple[int, int]] = set()  # machine and shard
        self._failures: Counter[int] = Counter()  # of machines, one after the other
        self.reading = Reading(steps.placement.machines, manifest.shard_bytes)
        self._up: set[int] = set()
        self._hold(steps.placement)

    @classmethod
    def of(
        cls, options: SessionOptions, end: JobsEnd, steps: StepPlanner, manifest: Manifest
    ) -> Adopting | None:
        """As the options want it, if they do."""
        if not options.adopt:
            return None
        steps.by_speed = options.check == "none" and options.stragglers < 1
        return cls(end, steps, manifest, options.most_shards(manifest))

    def begin(
        self,
        machines: Sequence[int],
        ready: Collection[int],
        step: int,
        spare: int = 0,
        without: Collection[int] = (),
    ) -> list[Job]:
        """Have machines that are ready take over what all of these need, a shard each.

        Parameters
        ----------
        machines : sequence of int
            Ascending; some may be reading already.
        ready : collection of int
            Those that can be asked now.
        step : int
        spare : int
            Machines, whichever they are, that are not to be needed.
        without : collection of int
            Shards that do not count.

        Returns
        -------
        list of Job
            None where all that is needed is being read.

        Raises
        ------
        InfeasibleError
            They have no room for as many, or cannot read them.
        """
        self._queue = {n: mine for n, mine in self._queue.items() if n in machines}
        placement, recovery = self._with_pending(self._queue), self._manifest.code.recovery
        recovery += len(set(without) & set(placement.of_all(machines)))
        if placement.to_spare(recovery, machines) < spare:
            self._queue, placement = {}, self._with_pending()
            held = placement.of_all(machines)
            absent = set(range(1, placement.shards + 1)) - set(held) - set(without)
            try:
                self._queue = self._chosen(placement, machines, recovery, spare, absent)
            except InfeasibleError:
                if not without:
                    self._reach.cannot(machines, spare)
                raise
        return self.go_on(ready, step)

    def between_steps(
        self, machines: Sequence[int], ready: Collection[int], step: int, spares: Sequence[int]
    ) -> bool:
        """Have machines take over what the next step needs; whether one of them is reading.

        Parameters
        ----------
        machines, ready, step
            As for `begin`.
        spares : sequence of int
            Machines that are not to be needed: the first number of them that can be reached.
        """
        self._look_who_is_there()
        for spare in spares:
            if not self.is_reading and not self.could(machines, spare):
                continue
            with suppress(InfeasibleError):  # fewer may be possible, or a step without
                self.begin(machines, ready, step, spare)
                break
        return bool(self.pending)

    def consider(self, up: set[int]) -> None:
        """A step begins with these machines."""
        self._up = up
        self._look()

    def go_on(self, ready: Collection[int], step: int) -> list[Job]:
        """Have machines that are ready read what they are to take over next."""
        jobs = []
        for machine in [n for n in self._queue if n in ready and n not in self.pending]:
            first, *others = self._queue.pop(machine)
            if others:
                self._queue[machine] = others
            adopted = self._steps.placement.adopted_by(machine)
            allowance = max(ADOPT_SECONDS, ADOPT_FACTOR * self.reading.seconds(machine))
            log.info("machine %d is to take over shard %d", machine, first)
            jobs.append(self._end.adopt(machine, step, (*adopted, first), allowance))
            self.pending[machine] = jobs[-1]
        return jobs

    def take(self, job: Job) -> Event | None:
        """What has become of an adoption, for the records; None where it counts no more."""
        machine = job.machine
        if self.pending.get(machine) is not job:
            return None
        del self.pending[machine]
        assert job.adopted is not None
        shard = job.adopted[-1]
        if job.failed:
            self._failed.add((machine, shard))
            self._failures[machine] += 1
            self._queue.clear()
            reason = self._end.hub.report(machine)
            log.warning("machine %d does not take over shard %d: %s", machine, shard, reason)
            self._hold(self._steps.placement)
            return {"not adopted": machine, "shard": shard, "reason": reason}
        self._failures[machine] = 0
        self._ranks[machine] = self._rank_of(machine)
        self._hold(self._steps.placement.adopting(machine, job.adopted))
        told = job.reported
        size, seconds = (
            each if 0 <= each < _MOST else 0.0 for each in (told.load_bytes, told.load_seconds)
        )
        return {"adopted": machine, "shard": shard, "bytes": int(size), "seconds": seconds}

    @property
    def is_reading(self) -> bool:
        """Whether machines take over something now, or are to."""
        return bool(self.pending or self._queue)

    def could(self, machines: Sequence[int], spare: int) -> bool:
        """Whether these could make steps without any so many of them, for all that is known."""
        return self._reach.to_spare(self._manifest.code.recovery, machines) >= spare

    def hear(self, change: Change) -> None:
        """A machine is not there any more: who takes its place has its own shards. Or it is."""
        if isinstance(change, Gone):
            self._forget(change.machine)
        self._look()

    def mates(self, shard: int) -> tuple[int, ...]:
        """As `Placement.mates`, of machines that can be asked now."""
        return self._there.mates(shard)

    def _forget(self, machine: int) -> None:
        """It has its own shards alone, or another process has."""
        self.pending.pop(machine, None)
        self._queue.clear()
        self._failures.pop(machine, None)
        self._failed = {pair for pair in self._failed if pair[0] != machine}
        if self._steps.placement.adopted_by(machine):
            self._hold(self._steps.placement.adopting(machine, ()))

    def _look(self) -> None:
        roster = self._end.hub.roster
        there = roster.machines(State.IDLE) | roster.machines(State.COMPUTING)
        self._there = self._steps.placement.among(sorted(self._up & there))

    def _look_who_is_there(self) -> None:
        """Another process may be a machine now, of which a step with another store has heard."""
        for machine, adopted in enumerate(self._steps.placement.adopted, start=1):
            if adopted and self._rank_of(machine) not in (0, self._ranks[machine]):
                self._forget(machine)
        if self._room(self._steps.placement) != self._had_room:
            self._hold(self._steps.placement)

    def _rank_of(self, machine: int) -> int:
        """Of its process; 0 where it has none."""
        process = self._end.hub.roster.serving_as(machine)
        return 0 if process is None else process.rank

    def _hold(self, placement: Placement) -> None:
        if placement is not self._steps.placement:
            self._steps.hold(placement)
        self._had_room = self._room(placement)
        self._reach = self._steps.reach = Reach(placement, self._had_room)
        self._look()

    def _room(self, placement: Placement) -> list[int]:
        """Shards that each machine can have more."""
        most = self._end.hub.roster.most(self._manifest.shard_bytes)
        return [
            0
            if self._failures[n] >= _FAILURES
            else max(0, min(self._most, most.get(n, self._most)) - count)
            for n, count in enumerate(placement.counts, start=1)
        ]

    def _with_pending(self, queue: Mapping[int, Sequence[int]] = _NOTHING) -> Placement:
        """What machines have when they have read what they read now, and what is to follow."""
        placement = self._steps.placement
        for machine, job in self.pending.items():
            placement = placement.adopting(machine, job.adopted or ())
        for machine, shards in queue.items():
            placement = placement.adopting(
                machine, dict.fromkeys((*placement.adopted_by(machine), *shards))
            )
        return placement

    def _chosen(
        self,
        placement: Placement,
        machines: Sequence[int],
        recovery: int,
        spare: int,
        absent: Collection[int],
    ) -> dict[int, list[int]]:
        """Shards that each is to take over, so that a step is done first."""
        rows = self._manifest.rows_per_shard
        per_second = self._steps.speeds.scale or BANDWIDTH * rows / self._manifest.shard_bytes
        able = {n: [k for k in sorted(absent) if (n, k) not in self._failed] for n in machines}
        return shares_of(
            placement,
            able,
            recovery,
            spare,
            [speed * per_second for speed in self._steps.last_speeds],
            rows,
            [self.reading.seconds(n + 1) for n in range(placement.machines)],
            self._room(placement),
        )
