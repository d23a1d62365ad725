"""Sparse matrices for tests, and files of such matrices built by hand."""

from __future__ import annotations

import h5py
import numpy as np
from scipy.sparse import csr_array


def random_sparse(rows, columns, density=0.2, seed=0):
    """Return a CSR array of random numbers, with sorted indices."""
    rng = np.random.default_rng(seed)
    is_nonzero = rng.random((rows, columns)) < density
    return csr_array(np.where(is_nonzero, rng.standard_normal((rows, columns)), 0.0))


def write_npz(path, X, form="csr", **changes):
    """Write a file as `scipy.sparse.save_npz` does, with some arrays changed or omitted."""
    names = ("row", "col", "data") if form == "coo" else ("data", "indices", "indptr")
    arrays = {name: getattr(X, name) for name in names}
    arrays |= {"shape": np.array(X.shape), "format": np.array(form.encode())}
    np.savez(path, **{k: v for k, v in (arrays | changes).items() if v is not None})
    return str(path)


def write_group(path, X, kind="csr_matrix", **changes):
    """Write a group as AnnData does, with some arrays or attributes changed or omitted."""
    arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape} | changes
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        if kind is not None:
            group.attrs["encoding-type"] = kind
        if (shape := arrays.pop("shape")) is not None:
            group.attrs["shape"] = shape
        for name, array in arrays.items():
            if array is not None:
                group[name] = array
    return f"{path}::/X"


class SlicedArray:
    """An array with a shape, a dtype, and slices of rows that a function returns."""

    def __init__(self, X, slice_rows):
        self.shape, self.dtype, self._slice_rows = X.shape, X.dtype, slice_rows

    def __getitem__(self, rows):
        return self._slice_rows(rows)
