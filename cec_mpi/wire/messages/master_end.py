"""Rank 0's end of the exchange by messages, for the steps of one store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.step.product import Product
from cec_mpi.wire.jobs import Intervals, Job, JobsHub
from cec_mpi.wire.opening import Opening

# Bytes that are kept for further answers: so many times those of a step, or as many as that.
_STEPS, _LEAST = 4, 16 << 20
_ARRAY = 512  # bytes of an array beside its numbers


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
        self._arithmetic = opening.arithmetic.name
        self._buffers: dict[tuple[int, str], list[NDArray[Any]]] = {}
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
            size, dtype = self._manifest.columns * product.columns, "float64"
        else:
            rows = sum(stop - start for start, stop in intervals)
            size, dtype = rows * product.columns, self._arithmetic
        kept = self._buffers.get((size, dtype))
        if kept:
            values = kept.pop()
            self._kept -= _size_of(values)
        else:
            values = np.empty(size, dtype)
        values.fill(np.nan)  # what a short answer leaves out is not to be taken for one
        job = Job(machine, self._store, step, machine, product, intervals, values)
        self.hub.ask(job, content)
        return job

    def gave(self, job: Job) -> bool:
        """Whether a job is of this store."""
        return job.store == self._store

    def release(self, jobs: Iterable[Job]) -> None:
        """The values of these jobs, all answered, are not needed any more."""
        released = [job.values for job in jobs]
        size = sum(map(_size_of, released))
        if self._kept + size > max(_LEAST, _STEPS * size):  # of plans that were other ones
            self._buffers.clear()
            self._kept = 0
        self._kept += size
        for values in released:
            self._buffers.setdefault((values.size, values.dtype.name), []).append(values)

    def close(self) -> None:
        """The machines need not serve this store any more."""
        self.hub.close(self._store)


def _size_of(values: NDArray[Any]) -> int:
    return values.nbytes + _ARRAY
