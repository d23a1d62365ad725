"""Taking over shards of machines that are away: which machine takes which, and the outcome."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

import numpy as np

from cec_mpi.core.plan.adopting import shares_of
from cec_mpi.core.plan.placement import Placement, Reach
from cec_mpi.core.replicas.placement import ReplicaPlacement
from cec_mpi.errors import InfeasibleError
from cec_mpi.master.planning import StepPlanner
from cec_mpi.options.session import SessionOptions
from cec_mpi.records.events import Event
from cec_mpi.roster import Change, Gone, State
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.times import ADOPT_FACTOR, ADOPT_SECONDS
from cec_mpi.wire.jobs import Job, JobsEnd

log = logging.getLogger(__name__)

_MOST = 2.0**62  # larger reported seconds or bytes are ignored
_NOTHING: Mapping[int, Sequence[int]] = MappingProxyType({})
_FAILURES = 3  # in a row, after which a machine takes over no more shards
BANDWIDTH = 1e9  # bytes per second of reading or multiplying, until they are measured


class Reading:
    """How long machines take to read a shard, from what they have read.

    Parameters
    ----------
    machines : int
    size : int
        Size of a shard in bytes.
    """

    def __init__(self, machines: int, size: int) -> None:
        self._size = size
        self._read = np.zeros((2, machines))  # seconds, bytes

    def learn(self, job: Job) -> None:
        """Note what a machine has read for a job."""
        told = job.reported
        if told.load_bytes > 0 and 0 < told.load_seconds < float("inf"):
            self._read[:, job.machine - 1] += told.load_seconds, told.load_bytes

    def seconds(self, machine: int) -> float:
        """Return the expected seconds to read a shard; by all machines if one has read nothing."""
        which = slice(machine - 1, machine) if self._read[1, machine - 1] else slice(None)
        seconds, count = self._read[:, which].sum(axis=1)
        return float(self._size * seconds / count) if count else self._size / BANDWIDTH


class Adopting:
    """Makes machines take over shards, one after the other on each, and keeps the placement.

    Parameters
    ----------
    end : JobsEnd
    steps : StepPlanner
        Its placement is replaced when machines have taken over shards.
    manifest : Manifest
    most : int or None
        Number of shards that a machine can hold, unless its process has reported less.

    Attributes
    ----------
    pending : dict of int to Job
        Machines that are reading a shard.
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
        """Return an instance if the options ask for it."""
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
        """Make ready machines take over the shards that a step needs, one each.

        Parameters
        ----------
        machines : sequence of int
            Ascending; some may be reading already.
        ready : collection of int
            Machines that can get a job.
        step : int
        spare : int
            Number of machines, whichever they are, that the step must be able to miss.
        without : collection of int
            Shards that do not count.

        Returns
        -------
        list of Job
            Empty if all shards that are needed are being read.

        Raises
        ------
        InfeasibleError
            The machines have no room for enough shards, or cannot read them.
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
        """Make machines take over what the next step needs; whether one of them is reading.

        Parameters
        ----------
        machines, ready, step
            See `begin`.
        spares : sequence of int
            Numbers of machines that the step should be able to miss; the first possible one counts.
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
        """Note the machines of a step."""
        self._up = up
        self._look()

    def go_on(self, ready: Collection[int], step: int) -> list[Job]:
        """Make ready machines read the shards that they take over next."""
        jobs = []
        for machine in [n for n in self._queue if n in ready and n not in self.pending]:
            first, *others = self._queue.pop(machine)
            if others:
                self._queue[machine] = others
            adopted = self._steps.placement.adopted_by(machine)
            allowance = max(ADOPT_SECONDS, ADOPT_FACTOR * self.reading.seconds(machine))
            log.info("machine %d takes over shard %d", machine, first)
            jobs.append(self._end.adopt(machine, step, (*adopted, first), allowance))
            self.pending[machine] = jobs[-1]
        return jobs

    def take(self, job: Job) -> Event | None:
        """Return the outcome of an adoption for the records; None if it does not count any more."""
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
            log.warning("machine %d could not take over shard %d: %s", machine, shard, reason)
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
        """Whether machines take over shards, or will."""
        return bool(self.pending or self._queue)

    def could(self, machines: Sequence[int], spare: int) -> bool:
        """Whether these machines could miss `spare` of them after taking over shards."""
        return self._reach.to_spare(self._manifest.code.recovery, machines) >= spare

    def hear(self, change: Change) -> None:
        """Note that a machine has gone or joined; a new process has only its own shards."""
        if isinstance(change, Gone):
            self._forget(change.machine)
        self._look()

    def mates(self, shard: int) -> tuple[int, ...]:
        """Return `Placement.mates` among the machines that can be asked."""
        return self._there.mates(shard)

    def _forget(self, machine: int) -> None:
        """Forget the shards that a machine has taken over."""
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
        """Notice machines that have another process, since a step of another store."""
        for machine, adopted in enumerate(self._steps.placement.adopted, start=1):
            if adopted and self._rank_of(machine) not in (0, self._ranks[machine]):
                self._forget(machine)
        if self._room(self._steps.placement) != self._had_room:
            self._hold(self._steps.placement)

    def _rank_of(self, machine: int) -> int:
        """Return the rank of a machine's process; 0 if it has none."""
        process = self._end.hub.roster.serving_as(machine)
        return 0 if process is None else process.rank

    def _hold(self, placement: Placement) -> None:
        if placement is not self._steps.placement:
            self._steps.hold(placement)
        self._had_room = self._room(placement)
        self._reach = self._steps.reach = Reach(placement, self._had_room)
        self._look()

    def _room(self, placement: Placement) -> list[int]:
        """Return the number of further shards that each machine can hold."""
        most = self._end.hub.roster.most(self._manifest.shard_bytes)
        return [
            0
            if self._failures[n] >= _FAILURES
            else max(0, min(self._most, most.get(n, self._most)) - count)
            for n, count in enumerate(placement.counts, start=1)
        ]

    def _with_pending(self, queue: Mapping[int, Sequence[int]] = _NOTHING) -> Placement:
        """Return the placement after all pending and queued adoptions."""
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
        """Choose the shards that each machine takes over, so that a step ends soonest."""
        rows = self._manifest.rows_per_shard
        per_second = self._steps.speeds.scale or BANDWIDTH * rows / self._manifest.shard_bytes
        able = {n: [k for k in sorted(absent) if (n, k) not in self._failed] for n in machines}
        if isinstance(placement, ReplicaPlacement):
            return placement.to_adopt(able, spare, self._room(placement))
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
