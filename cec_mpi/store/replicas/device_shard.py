"""The parts of a sparse X that a machine holds, on a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from cec_mpi.store.devices import Device
from cec_mpi.store.replicas.manifest import ReplicaManifest
from cec_mpi.store.replicas.shard import SparseShard
from cec_mpi.store.shard import Intervals, Verification
from cec_mpi.text import format_bytes


class SparseDeviceShard(SparseShard):
    """The rows of X of one machine; see `FileShard`.

    The assigned rows are copied to the device as CSR matrices, whenever the assignment changes.

    Parameters
    ----------
    path, store, manifest, machine, verify
        See `FileShard`.
    device : Device

    Raises
    ------
    InputError
        The library does not support products of sparse matrices on this device.
    """

    def __init__(
        self,
        path: Path,
        store: Path,
        manifest: ReplicaManifest,
        machine: int,
        verify: Verification,
        device: Device,
    ) -> None:
        super().__init__(path, store, manifest, machine, "mmap", verify)
        self.device = device
        self._size_message = f"the shard takes up {format_bytes(self.content.nbytes)}"
        device.put_sparse(csr_array((1, 1)))  # raises if the library has no sparse products
        self._matrix_cache: dict[bool, tuple[object, list[Any]]] = {}  # by `adjoint`

    def warm_up(self, adjoint: bool, vectors: NDArray[Any], intervals: Intervals) -> float:
        """See `Shard.warm_up`; copies the rows."""
        with self.device.explain_shortage(self._size_message):
            self._device_matrices(intervals, vectors.dtype, adjoint)
        return 0.0

    def multiply(self, W: NDArray[Any], intervals: Intervals, out: NDArray[Any]) -> None:
        """See `Shard.multiply`."""
        self._apply(W[0] if len(W) == 1 else np.ascontiguousarray(W.T), intervals, out, False)

    def multiply_transposed(
        self, U: NDArray[Any], intervals: Intervals, out: NDArray[np.float64]
    ) -> None:
        """See `Shard.multiply_transposed`."""
        self._apply(U[:, 0] if U.shape[1] == 1 else U, intervals, out, True)

    def _apply(
        self, vectors: NDArray[Any], intervals: Intervals, out: NDArray[Any], adjoint: bool
    ) -> None:
        device, position = self.device, 0
        with device.explain_shortage(self._size_message):
            device_vectors = device.put(vectors)
            for matrix in self._device_matrices(intervals, vectors.dtype, adjoint):
                product = matrix @ device_vectors
                device.get(product, out[position : position + product.shape[0]])
                position += product.shape[0]

    def _device_matrices(
        self, intervals: Intervals, dtype: np.dtype[Any], adjoint: bool
    ) -> list[Any]:
        """Return CSR matrices of these rows on the device, or one of the transpose."""
        slabs = self._row_slabs(intervals, dtype)
        cached_slabs, matrices = self._matrix_cache.get(adjoint, (None, []))
        if cached_slabs is not slabs:
            self._matrix_cache[adjoint] = None, []  # frees memory of the device before new copies
            cpu_matrices = (
                [self._transpose(slabs).tocsr()] if adjoint else [slab.matrix for slab in slabs]
            )
            matrices = [self.device.put_sparse(matrix) for matrix in cpu_matrices]
            self._matrix_cache[adjoint] = slabs, matrices
        return matrices
