"""Sparse matrices for tests, and files of them built by hand."""

from __future__ import annotations

import h5py
import numpy as np
from scipy.sparse import csr_array


def sparse(rows, columns, density=0.2, seed=0):
    """Random numbers in CSR, with their columns in order."""
    rng = np.random.default_rng(seed)
    is_there = rng.random((rows, columns)) < density
    return csr_array(np.where(is_there, rng.standard_normal((rows, columns)), 0.0))


def write_npz(path, X, form="csr", **changed):
    """What `scipy.sparse.save_npz` writes, with some arrays in the place of others."""
    names = ("row", "col", "data") if form == "coo" else ("data", "indices", "indptr")
    arrays = {name: getattr(X, name) for name in names}
    arrays |= {"shape": np.array(X.shape), "format": np.array(form.encode())}
    np.savez(path, **{k: v for k, v in (arrays | changed).items() if v is not None})
    return str(path)


def write_group(path, X, kind="csr_matrix", **changed):
    """A group as AnnData writes it, with some arrays or attributes in the place of others."""
    arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape} | changed
    with h5py.File(path, "w") as file:
        group = file.create_group("X")
        group.attrs["encoding-type"] = kind
        if (shape := arrays.pop("shape")) is not None:
            group.attrs["shape"] = shape
        for name, array in arrays.items():
            if array is not None:
                group[name] = array
    return f"{path}::/X"


class Sliced:
    """Whatever has a shape, a dtype and slices of rows."""

    def __init__(self, X, give):
        self.shape, self.dtype, self._give = X.shape, X.dtype, give

    def __getitem__(self, rows):
        return self._give(rows)
