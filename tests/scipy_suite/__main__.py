"""Run SciPy's own tests on coded operators.

In one process, or under mpirun with four ranks some of them, `expected.ON_RANKS`. With
``--stores float32`` all stores are of float32, and a part of the tests runs, `expected.A_PART`;
without it stores have the dtype of the matrices.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import scipy

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from cec_mpi.processes.launcher import detect_launcher  # noqa: E402
from cec_mpi.processes.together import on_master  # noqa: E402
from scipy_suite.expected import MODULES, ON_RANKS, Expected  # noqa: E402 - its place is known now
from scipy_suite.operators import Operators  # noqa: E402
from scipy_suite.plugin import STORES, Replacing  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", choices=("float32",), default="")
    chosen, options = parser.parse_known_args()  # the others are pytest's
    os.environ[STORES] = chosen.stores
    launcher = detect_launcher()
    if launcher is None or launcher.size == 1:
        return run(options)
    return run_on_ranks(options, chosen.stores)


def run(options: list[str], *plugins: object) -> int:
    """The exit code of pytest."""
    own = ["-c", str(HERE / "pytest.ini"), f"--rootdir={Path(scipy.__file__).parent}"]
    own += ["-p", "no:cacheprovider", "-p", "scipy_suite.plugin"]
    modules = [f"scipy.sparse.linalg.{name}" for name in MODULES]
    return int(pytest.main([*own, *options, "--pyargs", *modules], plugins))


def run_on_ranks(options: list[str], stores: str) -> int:
    """Rank 0 runs the tests; the others are the machines of all their operators."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    with TemporaryDirectory() as own:
        operators = Operators(on_master(comm, lambda: Path(own)), stores)
        with operators.entrance(comm) as first:
            if first is not None:
                operators.serve_with(first)
                replacing = Replacing(operators, Expected(stores, ON_RANKS))
                sys.exit(run(options, replacing))
    return 0


sys.exit(main())
