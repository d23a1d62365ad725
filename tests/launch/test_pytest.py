"""A user's own tests under pytest: the fixtures, and ranks that are one run."""

from __future__ import annotations

import sys
from xml.etree import ElementTree

import pytest

RANKS = 2
# Not all that tests of this project need: to import Hypothesis takes a rank longer than a test.
PLUGINS = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_PLUGINS": "pytest_mpi,pytest_timeout,cec_mpi.testing",
}
MINE = """
import numpy as np
import pytest
from scipy.sparse.linalg import svds

from cec_mpi import open_operator


@pytest.fixture(scope="session")
def square(cec_make_store):
    return cec_make_store(np.diag(np.arange(1.0, 9.0)))


def test_the_operator_is_that_of_the_store(cec_operator, cec_store):
    w = np.ones(cec_store.columns)
    for _ in range(5):
        np.testing.assert_allclose(cec_operator @ w, cec_store.X @ w)


@pytest.mark.parametrize("cec_availability", [{1, 2}, [{1, 2, 3}, {1, 3}]])
def test_another_availability(cec_operator, cec_availability):
    found = [cec_operator.available for _ in range(2) if cec_operator @ np.ones(40) is not None]
    assert found == ([(1, 2)] * 2 if isinstance(cec_availability, set) else [(1, 3)] * 2)


def test_a_matrix_of_mine(square, cec_comm):
    with open_operator(square, cec_comm) as X:
        if X is not None:
            np.testing.assert_allclose(svds(X, k=1)[1], 8)


class TestAnotherStore:
    @pytest.fixture
    def cec_store(self, square):
        return square

    def test_it(self, cec_operator):
        np.testing.assert_allclose(cec_operator.H @ np.ones(8), np.arange(1, 9))


@pytest.mark.mpi(min_size=2)
def test_all_ranks_are_there(cec_comm):
    assert cec_comm.allreduce(1) == 4
"""


@pytest.fixture
def pytest_on(run, tmp_path):
    """Run a test module of a user, under mpirun when it takes ranks."""

    def pytest_on(text, *options, ranks=RANKS, command="test_it.py", **variables):
        (tmp_path / "test_it.py").write_text(text)
        launcher = ["mpirun", "-n", ranks] if ranks else []
        words = [*launcher, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--color=no"]
        variables = PLUGINS | variables
        return run([*words, *options, command], cwd=tmp_path, timeout=100, variables=variables)

    return pytest_on


@pytest.mark.parametrize(
    ("ranks", "options", "skipped"),
    [pytest.param(0, (), 1, marks=pytest.mark.any_mpi), (4, ("--with-mpi",), 0)],
)
def test_the_same_tests_pass_in_one_process_and_on_ranks_with_one_report(
    pytest_on, tmp_path, ranks, options, skipped
):
    done = pytest_on(MINE, "--junitxml=report.xml", *options, ranks=ranks)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = f"{6 - skipped} passed, 1 skipped in " if skipped else "6 passed in "
    assert done.stdout.count(" in ") == done.stdout.count(summary) == 1
    assert done.stdout.count("test session starts") == 1
    cases = ElementTree.parse(tmp_path / "report.xml").findall(".//testcase")
    assert [len(case.findall("skipped")) for case in cases].count(1) == skipped
    assert len(cases) == 6


ELASTIC = """
import os
import signal
import numpy as np
import pytest

found = []


def check(X, store):
    w = np.ones(store.columns)
    np.testing.assert_allclose(X @ w, store.X @ w)
    np.testing.assert_allclose(X.H @ (store.X @ w), store.X.T @ (store.X @ w))


def test_a_machine_is_stopped(cec_elastic, cec_store):
    found.append(cec_elastic.pids)
    os.kill(found[0][1], signal.SIGSTOP)
    check(cec_elastic, cec_store)


def test_the_same_machines_are_there(cec_elastic, cec_store):
    assert cec_elastic.pids == found[0]
    cec_elastic.available = {1, 2}
    check(cec_elastic, cec_store)


def test_a_machine_is_killed(cec_elastic, cec_store):
    assert cec_elastic.pids == found[0]
    assert cec_elastic.available == (1, 2, 3)
    os.kill(found[0][2], signal.SIGKILL)
    check(cec_elastic, cec_store)
    assert sorted(cec_elastic.pids) == [1, 3]


def test_others_are_there(cec_elastic, cec_store):
    assert sorted(cec_elastic.pids) == [1, 2, 3]
    assert not {*found[0].values()} & {*cec_elastic.pids.values()}
    check(cec_elastic, cec_store)
    cec_elastic.close()


class TestAnotherStore:
    @pytest.fixture(scope="class")
    def cec_store(self, cec_make_store):
        return cec_make_store(np.diag(np.arange(1.0, 9.0)), machines=2, recovery=1)

    def test_it(self, cec_elastic, cec_store):
        assert sorted(cec_elastic.pids) == [1, 2]
        check(cec_elastic, cec_store)

    def test_too_few_machines(self, cec_elastic, cec_store):
        for pid in cec_elastic.pids.values():
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(Exception, match="left|available"):
            check(cec_elastic, cec_store)


def test_all_are_killed(cec_elastic, cec_store):
    check(cec_elastic, cec_store)
    for pid in cec_elastic.pids.values():
        os.kill(pid, signal.SIGKILL)
"""


@pytest.mark.any_mpi
def test_machines_that_a_test_has_killed_are_there_for_the_next(pytest_on):
    done = pytest_on(ELASTIC, ranks=0)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 7 passed in " in done.stdout


@pytest.mark.any_mpi
def test_machines_without_mpi_are_for_runs_without_ranks(pytest_on):
    done = pytest_on(ELASTIC, "--with-mpi", "-rs")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 7 skipped in " in done.stdout
    assert "cec_elastic needs a run without mpirun" in done.stdout


FAILS = """
import os
import pytest


@pytest.fixture
def fixture(cec_comm):
    yield
    if os.environ["PLACE"] == "teardown":
        assert cec_comm.rank != 1, "wrong here"


def test_before(cec_operator):
    pass


def test_it(cec_comm, fixture):
    rank, place = cec_comm.rank, os.environ["PLACE"]
    print("said by", rank)
    if place == "leaving" and rank == 1:
        pytest.exit("wrong here", returncode=7)
    if place == "interrupted" and rank == 1:
        raise KeyboardInterrupt
    if place == "before":
        assert rank != 1, "wrong here"
    cec_comm.Barrier()


def test_a_product(cec_operator):
    assert os.environ["PLACE"] != "operator", "wrong here"


def test_after(cec_comm):
    cec_comm.Barrier()
"""


@pytest.mark.parametrize(
    ("place", "rank", "code"),
    [
        ("before", 1, 1),
        pytest.param("teardown", 1, 1, marks=pytest.mark.any_mpi),
        pytest.param("operator", 0, 1, marks=pytest.mark.any_mpi),
        ("leaving", 1, 7),
        ("interrupted", 1, 2),
    ],
)
def test_a_rank_that_fails_ends_the_run_with_its_traceback(pytest_on, place, rank, code):
    done = pytest_on(FAILS, "--with-mpi", PLACE=place)
    assert done.returncode == code, done.stderr
    assert f"\nrank {rank} failed: " in f"\n{done.stderr}"
    shown = "KeyboardInterrupt" if place == "interrupted" else "wrong here"
    assert shown in done.stderr.partition(f"rank {rank} failed: ")[2]
    assert done.stderr.count(" failed: ") == 1
    assert place != "before" or f"said by {rank}\n" in done.stderr


MISUSED = """
import os
import numpy as np


def test_a_store_while_the_others_are_machines(cec_operator, cec_make_store):
    if os.environ["PLACE"] == "store":
        cec_make_store(np.eye(4))


def test_different_matrices(cec_make_store, cec_comm):
    cec_make_store(np.eye(4) * cec_comm.rank)


def test_messages_while_the_others_are_machines(cec_operator, cec_comm):
    cec_comm.Barrier()
"""


@pytest.mark.any_mpi
@pytest.mark.parametrize(
    ("place", "which", "shown"),
    [
        ("store", "store", "cec_make_store: a test with cec_operator runs on rank 0 alone"),
        ("", "different", "cec_make_store: the ranks have different matrices"),
        ("", "messages", "cec_comm beside cec_operator: a test with cec_operator runs on rank 0"),
    ],
)
def test_what_would_hang_is_refused(pytest_on, place, which, shown):
    done = pytest_on(MISUSED, "--with-mpi", "-k", which, PLACE=place)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count(" failed: ") == done.stderr.count(shown) == 1


@pytest.mark.any_mpi
def test_processes_of_xdist_are_refused(pytest_on):
    done = pytest_on(MINE, "--with-mpi", "-p", "xdist", "-n", 2)
    assert done.returncode == 4
    assert done.told == "cec-mpi: error: pytest-xdist's processes are no ranks: expected -n 0"


HANGS = """
import time
import pytest


def wait_for_ever():
    time.sleep(100)


@pytest.mark.timeout(4, method="thread")
def test_one_rank_hangs(cec_comm):
    if cec_comm.rank == 1:
        wait_for_ever()
    cec_comm.Barrier()
"""


def test_a_rank_that_hangs_ends_the_run_with_its_stack(pytest_on):
    done = pytest_on(HANGS, "--with-mpi", "-o", "faulthandler_timeout=2")
    assert done.returncode != 0
    assert "in wait_for_ever" in done.stderr


DIFFER = """
import os
rank = next(int(os.environ[n]) for n in ("OMPI_COMM_WORLD_RANK", "PMI_RANK") if n in os.environ)

def test_it(cec_comm):
    cec_comm.Barrier()

if os.environ["PLACE"] == "name" and rank == 1:
    def test_more(cec_comm):
        pass
if os.environ["PLACE"] == "module":
    assert rank != 1, "wrong here"
"""


@pytest.mark.parametrize(
    ("place", "code", "shown"),
    [
        pytest.param(
            "name",
            4,
            "rank 1: test_it.py::test_more where rank 0 has nothing",
            marks=pytest.mark.any_mpi,
        ),
        ("module", 4, "AssertionError: wrong here"),
    ],
)
def test_ranks_with_other_tests_leave_together(pytest_on, place, code, shown):
    done = pytest_on(DIFFER, "--with-mpi", PLACE=place)
    assert done.returncode == code, done.stderr
    assert shown in done.stdout + done.stderr
    assert "passed" not in done.stdout


UNRELATED = """
import pytest

@pytest.mark.mpi
def test_unrelated():
    from mpi4py import MPI
    assert MPI.COMM_WORLD.size == 2
"""


@pytest.mark.any_mpi
def test_a_run_without_our_fixtures_is_as_without_the_plugin(pytest_on):
    done = pytest_on(UNRELATED, "--with-mpi", "-q")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("1 passed in ") == RANKS


def test_ranks_that_nobody_told_of_each_other_are_refused(pytest_on):
    done = pytest_on(MINE)
    assert done.returncode == 4
    assert "started 2 processes" in done.stdout
    assert "expected the option --with-mpi" in done.stdout
    assert "passed" not in done.stdout


@pytest.mark.any_mpi
def test_a_launcher_of_another_mpi_is_refused(pytest_on):
    done = pytest_on(MINE, "--with-mpi", ranks=0, PMI_SIZE="4", PMI_RANK="0")
    assert done.returncode == 4
    assert done.told.startswith("cec-mpi: error: ")
    assert "runs each of them alone" in done.told
