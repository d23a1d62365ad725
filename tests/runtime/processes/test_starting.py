"""The time limit of a start."""

import pytest

from cec_mpi import open_operator
from cec_mpi.errors import InputError
from cec_mpi.runtime.processes.start import start_limit_seconds


def test_more_ranks_have_more_time():
    assert 60 <= start_limit_seconds(None, 1) < start_limit_seconds(None, 100)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "soon", [3]])
def test_the_limit_must_be_a_positive_number(seconds, small_store):
    with pytest.raises(InputError, match="start_timeout"):
        open_operator(small_store, None, start_timeout=seconds)
