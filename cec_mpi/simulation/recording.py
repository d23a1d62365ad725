"""Recording simulated steps, with what the master computes and what the run comes to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

from msgspec import structs

from cec_mpi.errors import CecError
from cec_mpi.runtime.machine.emulation import Emulation
from cec_mpi.runtime.master.schedule import Schedule
from cec_mpi.runtime.records.recorder import Recorder, counts_of
from cec_mpi.runtime.records.step import StepRecord
from cec_mpi.simulation.hub import SimulatedHub
from cec_mpi.simulation.scenario import Outcome


class SimulatedRecorder(Recorder):
    """A recorder that lets the time of the master pass, and sums up what a run comes to.

    Parameters
    ----------
    hub : SimulatedHub
    emulation : Emulation
        The speeds of machines.
    """

    def __init__(self, hub: SimulatedHub, emulation: Emulation) -> None:
        super().__init__(clock=hub.clock)
        self.schedule: Schedule | None = None
        self.hub, self._store = hub, hub.store
        steady = replace(emulation, noise=0.0)
        rows = self._store.shape[0]

        @lru_cache(4096)
        def optimum(available: tuple[int, ...], step: int) -> float:
            return rows / sum(steady.rate(n, step) for n in available)

        self._changes = sorted({change.step for change in emulation.changes})
        self._optimum: Callable[[tuple[int, ...], int], float] = optimum
        self._ended = 0.0  # when the step before ended
        self._waiting = self._over = 0.0
        self._machine_seconds = [0.0] * len(emulation.speeds)
        self._bytes_read = 0

    def step(self, record: StepRecord) -> None:
        """Take one step."""
        costs, store, clock = self.hub.costs, self._store, self.hub.clock
        numbers = store.shape[0] * record.columns
        decoding = costs.decoding(numbers, store.manifest.code.recovery)
        each = 0.0 if self.hub.is_elastic else costs.each * len(record.rows)
        clock.sleep(decoding + costs.fixed + each)
        tall, wide = store.tall, store.wide
        share, collect = (tall, wide) if record.adjoint else (wide, tall)
        sizes = dict(record.bytes)
        for verb, scale in (("share", share), ("collect", collect)):
            if verb in sizes:
                sizes[verb] = round(scale * sizes[verb])
        record = structs.replace(
            record,
            decode_seconds=record.decode_seconds + decoding,
            bytes=sizes,
            time=self.now(),
        )
        self._sum_up(record)
        super().step(record)

    def _sum_up(self, record: StepRecord) -> None:
        now = self.hub.clock.monotonic()
        begin, self._ended = self._ended, now
        took, waited = now - begin, record.waited_seconds
        begun = sum(step <= record.step for step in self._changes)
        since = self._changes[begun - 1] if begun else 0
        self._waiting += waited
        self._over += took - waited - self._optimum(record.available, since)
        self._bytes_read += sum(record.load_bytes)
        ticks = range(record.tick - record.waited_ticks, record.tick)
        if not ticks:  # it has waited for machines that join
            ticks = range(record.tick, record.tick + 1)
        for tick in ticks:
            self._pass(begin, begin := begin + waited / len(ticks), tick)
        self._pass(begin, now, record.tick)

    def _pass(self, begin: float, end: float, tick: int) -> None:
        """Count the time of the machines that are there, after all that was counted."""
        assert self.schedule is not None
        listed, there = self.schedule.listed_at(tick), self.hub.there
        while begin < end:
            while len(there) > 1 and there[1][0] <= begin:
                there.popleft()
            until = min(end, there[1][0]) if len(there) > 1 else end
            for n in listed & there[0][1]:
                self._machine_seconds[n - 1] += until - begin
            begin = until

    def outcome(self, ended: CecError | None) -> Outcome:
        """Return what the run has come to by now, and why it has ended early if it has."""
        return Outcome(
            steps=self.steps,
            seconds=self.hub.clock.monotonic(),
            waiting=self._waiting,
            over=self._over,
            bytes_read=self._bytes_read,
            machine_seconds=self._machine_seconds,
            events={kind: count for kind, count in counts_of(self.events).items() if count},
            ended="" if ended is None else str(ended),
            exit_code=0 if ended is None else ended.exit_code,
        )
