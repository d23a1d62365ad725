"""The contents of files of matrices, as encode reads them."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.encoding.sources import Matrix, Source, copy_to_file, open_source


def matrix_in(path: Any, **options: Any) -> tuple[Matrix, np.ndarray]:
    """Open a matrix with options of encode; return it and its entries."""
    checked = EncodeOptions(**options).validate()
    opened = open_source(path, checked)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        source = opened
        if not isinstance(opened, Source):
            source = stack.enter_context(
                copy_to_file(
                    opened, directory / "store", np.dtype(np.float64), False, checked.missing
                )
            )
        out = np.empty(source.shape)
        source.read(0, source.shape[0], 0, source.shape[1], out)
    return opened, out
