"""A recorder of simulated steps, which adds the time that the master takes and collects totals."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from msgspec import structs

from cec_mpi.errors import CecError
from cec_mpi.runtime.machine.emulation import Emulation
from cec_mpi.runtime.master.schedule import Schedule
from cec_mpi.runtime.records.recorder import Recorder, count_by_kind
from cec_mpi.runtime.records.step import StepRecord
from cec_mpi.simulation.hub import SimulatedHub
from cec_mpi.simulation.scenario import Outcome


class SimulatedRecorder(Recorder):
    """A recorder that advances the clock by the time that the master takes, and collects totals.

    Parameters
    ----------
    hub : SimulatedHub
    emulation : Emulation
        Speeds of machines, without noise.
    """

    def __init__(self, hub: SimulatedHub, emulation: Emulation) -> None:
        super().__init__(clock=hub.clock)
        self.schedule: Schedule | None = None
        self.hub, self._store = hub, hub.store
        rows = self._store.shape[0]

        @lru_cache(4096)
        def optimal_seconds(available: tuple[int, ...], step: int) -> float:
            return rows / sum(emulation.rate(n, step) for n in available)

        self._speed_change_steps = sorted({change.step for change in emulation.changes})
        self._optimal_seconds: Callable[[tuple[int, ...], int], float] = optimal_seconds
        self._last_step_end = 0.0
        self._waiting_seconds = self._excess_seconds = 0.0  # excess over the optimal time
        self._machine_seconds = [0.0] * len(emulation.speeds)
        self._bytes_read = 0

    def record_step(self, record: StepRecord) -> None:
        """Record a step, after adding the time that the master takes."""
        costs, store, clock = self.hub.costs, self._store, self.hub.clock
        entries = store.shape[0] * record.columns
        decoding = costs.decoding_seconds(entries, store.manifest.code.recovery)
        machine_overhead = 0.0 if self.hub.is_elastic else costs.machine_overhead * len(record.rows)
        clock.sleep(decoding + costs.step_overhead + machine_overhead)
        scales = {"share": store.column_scale, "collect": store.row_scale}  # from the store to X
        if record.adjoint:
            scales = {"share": store.row_scale, "collect": store.column_scale}
        sizes = dict(record.payload_bytes)
        for phase, scale in scales.items():
            if phase in sizes:
                sizes[phase] = round(scale * sizes[phase])
        record = structs.replace(
            record,
            decode_seconds=record.decode_seconds + decoding,
            payload_bytes=sizes,
            time=self.timestamp(),
        )
        self._add_totals(record)
        super().record_step(record)

    def _add_totals(self, record: StepRecord) -> None:
        now = self.hub.clock.monotonic()
        begin, self._last_step_end = self._last_step_end, now
        duration, waited = now - begin, record.waited_seconds
        past_changes = sum(step <= record.step for step in self._speed_change_steps)
        last_change_step = self._speed_change_steps[past_changes - 1] if past_changes else 0
        self._waiting_seconds += waited
        self._excess_seconds += (
            duration - waited - self._optimal_seconds(record.available, last_change_step)
        )
        self._bytes_read += sum(record.load_bytes)
        ticks = range(record.tick - record.waited_ticks, record.tick)
        if not ticks:  # waiting for machines to join does not advance the tick
            ticks = range(record.tick, record.tick + 1)
        for tick in ticks:
            end = begin + waited / len(ticks)
            self._add_machine_seconds(begin, end, tick)
            begin = end
        self._add_machine_seconds(begin, now, record.tick)

    def _add_machine_seconds(self, begin: float, end: float, tick: int) -> None:
        """Add the time from `begin` to `end` to each machine that is listed and present."""
        assert self.schedule is not None
        listed_machines, presence = self.schedule.listed_machines(tick), self.hub.presence
        while begin < end:
            while len(presence) > 1 and presence[1][0] <= begin:
                presence.popleft()
            segment_end = min(end, presence[1][0]) if len(presence) > 1 else end
            for n in listed_machines & presence[0][1]:
                self._machine_seconds[n - 1] += segment_end - begin
            begin = segment_end

    def outcome(self, error: CecError | None) -> Outcome:
        """Return the totals; `error` is the error that ended the run early, or None."""
        return Outcome(
            steps=self.steps,
            seconds=self.hub.clock.monotonic(),
            waiting_seconds=self._waiting_seconds,
            excess_seconds=self._excess_seconds,
            bytes_read=self._bytes_read,
            machine_seconds=self._machine_seconds,
            events={kind: count for kind, count in count_by_kind(self.events).items() if count},
            end_reason="" if error is None else str(error),
            exit_code=0 if error is None else error.exit_code,
        )
