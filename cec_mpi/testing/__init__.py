"""A pytest plugin for programs that use cec_mpi: small stores, an operator, who is available.

pytest finds it when cec_mpi is installed. It changes nothing in a run none of whose tests
uses one of its fixtures, and loads neither NumPy nor MPI before a test does.

The same tests run in one process (``pytest``) and on several ranks
(``mpirun -n 4 python -m pytest --with-mpi``, with pytest-mpi).
"""

from __future__ import annotations

import inspect
import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from zlib import crc32

import pytest

if TYPE_CHECKING:
    import numpy as np
    from mpi4py import MPI
    from numpy.typing import ArrayLike, NDArray

    from cec_mpi.availability.models import Availability
    from cec_mpi.linear_operator.coded_operator import CodedOperator

__all__ = ["MakeStore", "SmallStore"]

_MACHINES = 3  # in one process
_ALONE = (
    "a test with cec_operator runs on rank 0 alone, while the others are its machines; make stores "
    "in fixtures, and use open_operator(store, cec_comm) in a test that all ranks run"
)


def _with_mpi(config: pytest.Config) -> bool:
    """Whether pytest-mpi is there and was told that ranks run."""
    return any(config.getoption(name, False) for name in ("--with-mpi", "--only-mpi"))


def pytest_configure(config: pytest.Config) -> None:
    """Make the ranks of a run one run."""
    if not _with_mpi(config):
        return
    from cec_mpi.processes.launcher import detect_launcher
    from cec_mpi.testing.ranks import OneRun, leave_unconnected

    launcher = detect_launcher()
    if launcher is not None and launcher.size > 1:
        if config.getoption("numprocesses", None):
            leave_unconnected(launcher, "pytest-xdist's processes are no ranks: expected -n 0")
        config.pluginmanager.register(OneRun(launcher), "cec_mpi-ranks")


@dataclass(frozen=True)
class SmallStore:
    """A store with the matrix that it was made of; a path wherever one is expected.

    Attributes
    ----------
    path : Path
    X : (q, r) ndarray
    machines : int
        Machines of the store, N.
    recovery : int
        How many of them are enough, L.
    """

    path: Path
    X: NDArray[np.floating[Any]]
    machines: int
    recovery: int

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def columns(self) -> int:
        """Length of a vector that X is multiplied by, r."""
        return int(self.X.shape[1])


class MakeStore(Protocol):
    """What the fixture `cec_make_store` gives."""

    def __call__(
        self, X: ArrayLike, machines: int | None = None, recovery: int | None = None, **options: Any
    ) -> SmallStore:
        """Make a store."""


@pytest.fixture(scope="session")
def cec_comm(request: pytest.FixtureRequest) -> MPI.Intracomm | None:
    """The communicator for `cec_mpi.open_operator`: all ranks, or None in one process."""
    from cec_mpi.processes.failing import let_rank_0_print
    from cec_mpi.processes.launcher import detect_launcher
    from cec_mpi.processes.together import meet, start_mpi

    launcher = detect_launcher()
    if launcher is None or launcher.size == 1:
        return None
    if not _with_mpi(request.config):
        let_rank_0_print(launcher)
        if launcher.rank:
            pytest.exit("rank 0 says why", returncode=pytest.ExitCode.USAGE_ERROR)
        pytest.exit(
            f"cec-mpi: error: {launcher.name} started {launcher.size} processes, and each of "
            "them would run these tests alone: expected the option --with-mpi of pytest-mpi "
            "(pip install 'cec_mpi[pytest]')",
            returncode=pytest.ExitCode.USAGE_ERROR,
        )
    comm = start_mpi()
    meet(comm)
    return comm


@pytest.fixture(scope="session")
def cec_directory(cec_comm: MPI.Intracomm | None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of this run that all ranks see."""
    if cec_comm is None:
        return tmp_path_factory.mktemp("cec")
    from cec_mpi.processes.together import on_master

    path = on_master(cec_comm, lambda: tmp_path_factory.mktemp("cec"))
    blind = [rank for rank, sees in enumerate(cec_comm.allgather(path.is_dir())) if not sees]
    if blind:
        pytest.fail(
            f"ranks {blind} do not see {path}: name a directory that all nodes share in "
            "PYTEST_DEBUG_TEMPROOT",
            pytrace=False,
        )
    return path


@pytest.fixture(scope="session")
def cec_make_store(cec_comm: MPI.Intracomm | None, cec_directory: Path) -> MakeStore:
    """Make a store of a matrix: ``cec_make_store(X, machines=N, recovery=L, **options)``.

    Collective. X is the same on all ranks; there is a machine for each rank but rank 0, three
    in one process, and any N - 1 are enough, unless the call says otherwise. The options are
    those of `cec_mpi.encode`.
    """
    import numpy as np

    from cec_mpi.encoding.encode import encode
    from cec_mpi.processes.together import on_master
    from cec_mpi.session.gathering import serves

    numbers = itertools.count(1)

    def make(
        X: ArrayLike, machines: int | None = None, recovery: int | None = None, **options: Any
    ) -> SmallStore:
        matrix = np.ascontiguousarray(X)
        if cec_comm is not None:
            if serves(cec_comm):
                pytest.fail(f"cec_make_store: {_ALONE}", pytrace=False)
            mark = crc32(matrix.tobytes(), crc32(f"{matrix.dtype} {matrix.shape}".encode()))
            if len(set(cec_comm.allgather(mark))) > 1:
                pytest.fail("cec_make_store: the ranks have different matrices", pytrace=False)
        machines = machines or (_MACHINES if cec_comm is None else cec_comm.size - 1)
        recovery = recovery or max(1, machines - 1)
        path = cec_directory / f"store-{next(numbers)}"

        def write() -> None:
            np.save(path.with_suffix(".npy"), matrix)
            encode(path.with_suffix(".npy"), path, machines, recovery, **options)

        write() if cec_comm is None else on_master(cec_comm, write)
        return SmallStore(path, matrix, machines, recovery)

    return make


@pytest.fixture(scope="session")
def cec_store(cec_make_store: MakeStore) -> SmallStore:
    """A store of 1001 x 40 normally distributed numbers, the same ones in each run."""
    import numpy as np

    return cec_make_store(np.random.default_rng(7).standard_normal((1001, 40)))


@pytest.fixture
def cec_availability(cec_store: SmallStore) -> Availability:
    """Every set of machines that is enough, one a step, all machines first, over and over."""
    from cec_mpi.availability.models import Listed

    machines = range(1, cec_store.machines + 1)
    sizes = range(cec_store.machines, cec_store.recovery - 1, -1)
    sets = [up for size in sizes for up in itertools.combinations(machines, size)]
    return Listed(sets, repeat=True)


@pytest.fixture
def cec_operator(
    request: pytest.FixtureRequest,
    cec_store: SmallStore,
    cec_comm: MPI.Intracomm | None,
    cec_availability: Availability,
) -> Iterator[CodedOperator]:
    """X of `cec_store` as an operator, with `cec_availability`.

    The test runs on rank 0 alone: the other ranks are the machines, and skip it when it is
    over.
    """
    if "cec_comm" in inspect.signature(request.function).parameters:
        pytest.fail(f"cec_comm beside cec_operator: {_ALONE}", pytrace=False)
    from cec_mpi.linear_operator.opening import open_operator

    with open_operator(os.fspath(cec_store), cec_comm, availability=cec_availability) as X:
        if X is not None:
            yield X
    if X is None:
        pytest.skip("this rank was a machine")


class _Processes:
    """X of one store, whose machines are processes that serve one test after the other."""

    def __init__(self) -> None:
        self._X: CodedOperator | None = None
        self._store: SmallStore | None = None

    def ready(self, store: SmallStore) -> CodedOperator:
        """X of a store, with all machines available: the same as before if no machine is gone."""
        if self._X is None or self._store is not store or not self._is_complete(self._X, store):
            from cec_mpi.linear_operator.opening import open_operator

            self.close()
            self._store = store
            self._X = open_operator(os.fspath(store), local=store.machines).start()
        assert self._X is not None
        return self._X

    def _is_complete(self, X: CodedOperator, store: SmallStore) -> bool:
        from cec_mpi.errors import CecError

        try:
            X.available = None
            X @ ([1.0] * store.columns)  # which shows who is gone
        except CecError:
            return False
        return len(X.available) == store.machines

    def close(self) -> None:
        """Let the machines go."""
        if self._X is not None:
            self.resume()
            self._X.close()

    def resume(self) -> None:
        """Let machines that a test has stopped go on."""
        assert self._X is not None
        for pid in self._X.pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="session")
def _cec_processes() -> Iterator[_Processes]:
    """What `cec_elastic` takes X from."""
    processes = _Processes()
    yield processes
    processes.close()


@pytest.fixture
def cec_elastic(
    cec_store: SmallStore, cec_comm: MPI.Intracomm | None, _cec_processes: _Processes
) -> Iterator[CodedOperator]:
    """X of `cec_store` as an operator, whose machines are processes that a test may kill.

    All machines are available; ``X.pids`` has their process numbers. They serve all tests, until
    a test has killed one: the next test gets others. Skipped on ranks.
    """
    if cec_comm is not None:
        pytest.skip(
            "cec_elastic needs a run without mpirun: its machines are processes without MPI"
        )
    yield _cec_processes.ready(cec_store)
    _cec_processes.resume()
