"""The master: plans each step, exchanges it, decodes the answers, records what happened."""

from __future__ import annotations

import logging
import time
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.core.decoder import Decoder
from cec_mpi.core.planner import Plan, Planner
from cec_mpi.core.speeds import SpeedScale
from cec_mpi.errors import InputError, MachineError
from cec_mpi.records import Recorder, StepRecord
from cec_mpi.runtime.elastic import Schedule
from cec_mpi.runtime.exchange import Answers, MasterEnd
from cec_mpi.store.manifest import Manifest

__all__ = ["Master"]

log = logging.getLogger(__name__)


class Master:
    """X on machines that come and go: an object with `shape`, `dtype` and `matvec`.

    Parameters
    ----------
    manifest : Manifest
        Of the store that the machines opened.
    end : MasterEnd
        The wire.
    planner : Planner
    schedule : Schedule
        Who is available at each step.
    speeds : tuple of float
        Relative speed of machines 1..N.
    recorder : Recorder

    Attributes
    ----------
    shape : tuple of int
        Shape (q, r) of X.
    dtype : numpy.dtype
        float64: answers are decoded in double precision whatever the shards are.
    """

    def __init__(
        self,
        manifest: Manifest,
        end: MasterEnd,
        planner: Planner,
        schedule: Schedule,
        speeds: tuple[float, ...],
        recorder: Recorder,
    ) -> None:
        import scipy.linalg  # noqa: F401 - now, so that the first decoder does not wait for it

        self.shape = (manifest.rows, manifest.columns)
        self.dtype = np.dtype(np.float64)
        self.recorder = recorder
        self.scale = SpeedScale(speeds)
        self._code = manifest.code
        self._end = end
        self._planner = planner
        self._schedule = schedule
        self._speeds = speeds
        self._closed = False
        self._step = 0
        self._plan: Plan | None = None
        self._jobs: list[_DecodingJob] = []
        self._condition = 0.0
        self._rows: list[int] = []
        rows, recovery = manifest.rows_per_shard, self._code.recovery
        self._w = np.empty(manifest.columns, manifest.dtype)
        self._finite = np.empty(manifest.columns, dtype=bool)
        self._good = np.empty(planner.copies * rows, dtype=bool)
        self._work = np.empty(recovery * rows)
        self._decoded = np.empty((recovery, rows))
        self._y = self._decoded.reshape(-1)[: manifest.rows]

    def matvec(self, w: ArrayLike, out: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """Compute y = X w on the machines that are available now: one step.

        Parameters
        ----------
        w : (r,) or (r, 1) array_like
            Real and finite.
        out : (q,) ndarray of float64, optional
            Receives y; without it a new array does.

        Returns
        -------
        (q,) ndarray of float64

        Raises
        ------
        InputError
            w has another shape, or is not finite in the dtype of the shards.
        InfeasibleError
            Too few machines are available.
        MachineError
            A machine failed.
        """
        if self._closed:
            raise InputError("this operator is closed: its machines have left")
        self._take(w)
        if out is not None and (out.shape != self._y.shape or out.dtype != self.dtype):
            raise InputError(
                f"out has shape {out.shape} and dtype {out.dtype}: expected {self._y.shape} "
                "of float64"
            )
        moment = self._schedule.next()
        plan = self._planner.plan(moment.available, self._speeds)
        changed = plan is not self._plan
        times = [time.perf_counter()]
        sent = {"announce": self._end.announce(self._step, plan.assignment)}
        times.append(time.perf_counter())
        sent["share"] = self._end.share(self._w)
        times.append(time.perf_counter())
        try:
            if changed:  # while the machines compute
                self._prepare(plan)
        finally:
            answers = self._end.collect()
        times.append(time.perf_counter())
        self._check(answers)
        with np.errstate(over="ignore", invalid="ignore"):
            for job in self._jobs:
                job.decode(answers.values)
        times.append(time.perf_counter())
        scale = self.scale.value
        announce, share, collect, decode = (b - a for a, b in pairwise(times))
        self.recorder.step(
            StepRecord(
                step=self._step,
                tick=moment.tick,
                waited_ticks=moment.waited,
                available=moment.available,
                rows=self._rows,
                seconds=answers.seconds.tolist(),
                load_seconds=answers.load_seconds.tolist(),
                load_bytes=answers.load_bytes.astype(int).tolist(),
                predicted_makespan=plan.makespan / scale if scale else None,
                measured_makespan=float(answers.seconds.max()),
                bound=plan.bound / scale if scale else None,
                announce_seconds=announce,
                share_seconds=share,
                collect_seconds=collect,
                decode_seconds=decode,
                bytes={**sent, "collect": answers.values.nbytes},
                plan_changed=changed,
                condition=self._condition,
            )
        )
        self.scale.observe(self._rows, answers.seconds)
        self._step += 1
        if out is None:
            return self._y.copy()
        np.copyto(out, self._y)
        return out

    def close(self) -> None:
        """Make no more steps: the machines leave."""
        self._closed = True

    def _take(self, w: ArrayLike) -> None:
        """Convert w once to the dtype of the shards, before anything goes on the wire."""
        array = np.asarray(w)
        if array.shape not in (self._w.shape, (self._w.size, 1)):
            raise InputError(f"w has shape {array.shape}: expected ({self._w.size},)")
        if array.dtype.kind not in "fiub":
            raise InputError(f"w has dtype {array.dtype}: expected real numbers")
        with np.errstate(over="ignore"):
            np.copyto(self._w, array.reshape(-1), casting="unsafe")
        if not np.isfinite(self._w, out=self._finite).all():
            where = int(np.flatnonzero(~self._finite)[0])
            raise InputError(
                f"w[{where}] is {array.reshape(-1)[where]}: expected finite {self._w.dtype} numbers"
            )

    def _prepare(self, plan: Plan) -> None:
        decoders = plan.decoders(self._code)
        assignment, recovery = plan.assignment, self._code.recovery
        self._jobs = [
            _DecodingJob(
                decoder,
                [slice(p, p + stop - start) for p in (positions[k] for k in decoder.order)],
                self._work[: recovery * (stop - start)].reshape(recovery, -1),
                self._decoded[:, start:stop],
            )
            for start, stop, positions, decoder in zip(
                assignment.starts.tolist(),
                assignment.stops.tolist(),
                assignment.positions.tolist(),
                decoders,
                strict=True,
            )
        ]
        self._condition = max(decoder.condition for decoder in decoders)
        self._rows = assignment.counts(self._code.machines).tolist()
        self._plan = plan

    def _check(self, answers: Answers) -> None:
        if answers.failed:
            reports = self._end.reports()
            told = [f"machine {n}: {reports.get(n, 'no report')}" for n in answers.failed]
            raise MachineError(f"step {self._step} failed on {'; '.join(told)}")
        if not np.isfinite(answers.values, out=self._good).all():
            position = int(np.flatnonzero(~self._good)[0])
            machine = int(np.searchsorted(np.cumsum(self._rows), position, side="right")) + 1
            raise MachineError(
                f"machine {machine} answered {answers.values[position]} in step {self._step}: "
                f"X w is too large for {self._w.dtype}, or the answer was short"
            )


class _DecodingJob:
    """Decode one block: rows of X_1 w .. X_L w from the answers of L machines."""

    __slots__ = ("_block", "_decoder", "_out", "_sources")

    def __init__(
        self,
        decoder: Decoder,
        sources: list[slice],
        block: NDArray[np.float64],
        out: NDArray[np.float64],
    ) -> None:
        decoder.check(block, out)
        self._decoder = decoder
        self._sources = sources
        self._block = block
        self._out = out

    def decode(self, values: NDArray[Any]) -> None:
        for row, source in zip(self._block, self._sources, strict=True):
            row[:] = values[source]
        self._decoder.apply(self._block, self._out)
