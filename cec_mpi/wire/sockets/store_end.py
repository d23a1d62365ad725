"""Rank 0's end of the elastic exchange, for the steps of one store."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.step.product import Product
from cec_mpi.wire.jobs import Intervals, Job, JobsHub
from cec_mpi.wire.opening import Opening
from cec_mpi.wire.sockets.packing import AnswerRoom

# Bytes that are kept for further answers: so many times those of a step, or as many as that.
_STEPS, _LEAST = 4, 16 << 20
_ROOM = 1024  # bytes of a room beside its numbers


class StoreEnd:
    """Rank 0's end for the steps of one store.

    Parameters
    ----------
    hub : JobsHub
    store : int
    opening : Opening

    Attributes
    ----------
    path : Path
        Of the store.
    """

    def __init__(self, hub: JobsHub, store: int, opening: Opening) -> None:
        self.hub = hub
        self.path = opening.store
        self._store = store
        self._manifest = opening.manifest
        self._arithmetic = opening.arithmetic
        self._rooms: dict[tuple[int, np.dtype[Any]], list[AnswerRoom]] = {}
        self._kept = 0  # bytes of these

    def ask(
        self,
        machine: int,
        step: int,
        product: Product,
        intervals: Intervals,
        content: NDArray[Any],
    ) -> Job:
        """Give a machine that is idle a job on its shard."""
        if product.adjoint:
            size, dtype = self._manifest.columns * product.columns, np.dtype(np.float64)
        else:
            rows = sum(stop - start for start, stop in intervals)
            size, dtype = rows * product.columns, self._arithmetic
        kept = self._rooms.get((size, dtype))
        if kept:
            room = kept.pop()
            self._kept -= _size_of(room)
        else:
            room = AnswerRoom(size, dtype)
        room.clear()  # what a short answer leaves out is not to be taken for one
        asked = machine, self._store, step, machine, product, intervals
        job = Job(*asked, room.values, report=room.report, room=room)
        self.hub.ask(job, content)
        return job

    def adopt(self, machine: int, step: int, shards: Sequence[int], allowance: float) -> Job:
        """Have a machine that is idle take over shards."""
        room = AnswerRoom(0, self._arithmetic)
        room.clear()
        asked = machine, self._store, step, machine, Product(), ()
        job = Job(*asked, room.values, report=room.report, room=room)
        job.adopted, job.allowance = tuple(shards), allowance
        self.hub.ask(job, room.values)
        return job

    def gave(self, job: Job) -> bool:
        """Whether a job is of this store."""
        return job.store == self._store

    def release(self, jobs: Iterable[Job]) -> None:
        """The values of these jobs, all answered, are not needed any more."""
        released = list(jobs)
        size = sum(_size_of(job.room) for job in released)
        if self._kept + size > max(_LEAST, _STEPS * size):  # of plans that were other ones
            self._rooms.clear()
            self._kept = 0
        self._kept += size
        for job in released:
            self._rooms.setdefault((job.values.size, job.values.dtype), []).append(job.room)

    def close(self) -> None:
        """The machines need not serve this store any more."""
        self.hub.close(self._store)


def _size_of(room: AnswerRoom) -> int:
    return room.together.nbytes + _ROOM
