"""Read files of matrices as encode does."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.encoding.sources import Matrix, Source, copy_to_file, open_source


def read_matrix(path: Any, **options: Any) -> tuple[Matrix, np.ndarray]:
    """Open a matrix with these options of `encode`; return it and its entries."""
    checked = EncodeOptions(**options).validate()
    matrix = source = open_source(path, checked)
    with ExitStack() as stack:
        if not isinstance(matrix, Source):
            store = Path(stack.enter_context(tempfile.TemporaryDirectory()), "store")
            copy = copy_to_file(matrix, store, np.dtype(np.float64), False, checked.missing)
            source = stack.enter_context(copy)
        entries = np.empty(source.shape)
        source.read(0, source.shape[0], 0, source.shape[1], entries)
    return matrix, entries
