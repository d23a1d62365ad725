"""Rank 0's end of the exchange by messages, for the steps of one store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.step.product import Product
from cec_mpi.wire.jobs import Intervals, Job, JobsHub
from cec_mpi.wire.messages.packing import AnswerRoom
from cec_mpi.wire.opening import Opening

_MOST_ROOMS = 1000  # that are kept for further answers


class MessagesMasterEnd:
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
        room = kept.pop() if kept else AnswerRoom(size, dtype)
        room.clear()  # what a short answer leaves out is not to be taken for one
        asked = machine, self._store, step, machine, product, intervals
        job = Job(*asked, room.values, report=room.report, room=room)
        self.hub.ask(job, content)
        return job

    def gave(self, job: Job) -> bool:
        """Whether a job is of this store."""
        return job.store == self._store

    def release(self, jobs: Iterable[Job]) -> None:
        """The values of these jobs, all answered, are not needed any more."""
        if sum(map(len, self._rooms.values())) > _MOST_ROOMS:
            self._rooms.clear()
        for job in jobs:
            self._rooms.setdefault((job.values.size, job.values.dtype), []).append(job.room)

    def close(self) -> None:
        """The machines need not serve this store any more."""
        self.hub.close(self._store)
