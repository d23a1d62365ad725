"""Benchmarks of ranks, on the ranks that are there."""

import pytest

from cec_mpi.bench.steps.step import Step
from cec_mpi.errors import InputError

pytestmark = pytest.mark.mpi(min_size=4)

SMALL = {"rows": 31, "columns": 8, "recovery": 2, "block": 3, "steps": 3, "turns": 2}


def test_steps_of_all_kinds(comm, shared_directory):
    figures = Step(**SMALL, directory=str(shared_directory)).measure_together(comm)
    assert bool(figures) == (comm.rank == 0)
    comm.Barrier()  # rank 0 has removed it before it comes
    assert not list(shared_directory.glob("cec-mpi-bench-*"))
    assert len({each.key for each in figures}) == len(figures)
    for each in figures:
        assert 0 < each.low <= each.value <= each.high
        assert each.unit == ("ratio" if each.over else "s")
    overs = {each.over for each in figures if each.name == "X w"}
    assert comm.rank or overs == {"", "bare Bcast, products, Gatherv", "the published program"}


def test_a_directory_that_is_none_is_refused_by_all(comm, shared_directory):
    step = Step(**SMALL, directory=str(shared_directory / "none"))
    with pytest.raises(InputError, match="none is not a directory"):
        step.measure_together(comm)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_that_are_too_few(ranks):
    with pytest.raises(InputError, match=f"--recovery 3 with {ranks} rank.*at least 4 ranks"):
        Step(recovery=3).check(ranks)
