"""Products while machines are killed: how wrong they were; and how launchers take that."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import cec_mpi
from helpers.mpi_at_hand import library
from helpers.ranks import machines_here

# What starts ranks that continue when one is killed, where the MPI at hand has that.
CONTINUING = ["mpirun", *(["--with-ft", "ulfm"] if library().startswith("Open MPI v5") else [])]


def code_with_kills(code: int) -> int:
    """The exit code of a launcher, one of whose processes was killed, and rank 0 left with this."""
    return 255 if library().startswith("Intel") else code


def errors_with_kills(
    store: Any,
    seed: int,
    machines: Sequence[int],
    first: int,
    last: int,
    steps: int,
    **options: Any,
) -> list[float]:
    """Make so many steps, and kill these machines in random ones from `first` to `last` - 1.

    Parameters
    ----------
    store : SmallStore
    seed : int
    machines : sequence of int
    first, last, steps : int
    **options
        Of the operator: ``local`` among them.

    Returns
    -------
    list of float
        The relative error of each product.
    """
    rng, X, found = np.random.default_rng(seed), store.X, []
    with cec_mpi.open_operator(store.path, **options) as operator:
        assert operator is not None
        processes = machines_here()
        killed = [processes[n - 1] for n in rng.permutation(machines)]
        at = rng.choice(np.arange(first, last), len(killed), replace=False)
        for step in range(steps):
            if step in at:
                killed.pop().kill()
                time.sleep(rng.choice([0.0, 0.002, 0.1]))
            if step % 2:
                v = rng.standard_normal(len(X))
                error, size = operator.H @ v - X.T @ v, X.T @ v
            else:
                W = rng.standard_normal((X.shape[1], 3))
                error, size = operator @ W - X @ W, X @ W
            found.append(float(np.linalg.norm(error) / np.linalg.norm(size)))
    return found
