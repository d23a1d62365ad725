"""Answers of a plan become the rows of X W, and V the machines' coefficients, whatever the plan."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi import make_code
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.core.step.codec import Codec, make_scratch, panel_width
from cec_mpi.core.threads import PARALLEL_THRESHOLD


class Coded:
    """A plan, and what its machines answer where X_1 W .. X_L W are known."""

    def __init__(self, code, speeds, rows, columns, seed=0, threads=1):
        machines = range(1, code.machines + 1)
        self.plan = plan_step(machines, speeds, code.recovery, rows)
        rng = np.random.default_rng(seed)
        self.parts = rng.standard_normal((code.recovery, rows * columns))
        self.given = rng.standard_normal(self.parts.shape)
        whole = (code.generator @ self.parts).reshape(code.machines, rows, columns)
        assignment = self.plan.assignment
        self.answers = np.concatenate(
            [whole[n - 1, a:b].ravel() for n in machines for a, b in assignment.intervals(n)]
        )
        work = make_scratch(code.recovery, rows * columns, threads)
        for scratch in work:
            scratch.fill(np.nan)
        self.codec = Codec(self.plan, code, columns, work)

    def decoded(self, dtype=np.float64):
        answers, parts = self.answers.astype(dtype), np.full(self.parts.shape, np.nan)
        before = answers.copy()
        self.codec.decode(answers, parts)
        np.testing.assert_array_equal(answers, before)  # they may still be looked at
        return parts

    def coefficients(self, dtype=np.float64):
        coded = np.full(self.answers.size, np.nan, dtype)
        self.codec.coefficients(self.given, coded)
        return coded


@given(st.data())
def test_what_was_coded_is_decoded_and_the_adjoint_is_its_transpose(data):
    machines = data.draw(st.integers(1, 8), "machines")
    recovery = data.draw(st.integers(1, machines), "recovery")
    speeds = data.draw(
        st.lists(st.floats(0.1, 10), min_size=machines, max_size=machines)
        | st.just([1.0] * machines),
        "speeds",
    )
    rows, columns = data.draw(st.integers(1, 40), "rows"), data.draw(st.integers(1, 3), "columns")
    code = make_code(machines, recovery)
    coded = Coded(code, speeds, rows, columns)
    tolerance = 1e-13 * coded.codec.condition
    for dtype, exact in ((np.float64, 1), (np.float32, 1e8)):
        parts, coefficients = coded.decoded(dtype), coded.coefficients(dtype)
        np.testing.assert_allclose(parts, coded.parts, atol=10 * tolerance * exact)
        left, right = (parts * coded.given).sum(), coded.answers @ coefficients
        assert left == pytest.approx(right, abs=1000 * tolerance * exact)


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_more_numbers_than_are_decoded_at_a_time(equal, threads):
    rows, speeds = 3 * panel_width(2) // 2, [1.0] * 4 if equal else [1.0, 2.0, 3.0, 4.0]
    coded = Coded(make_code(4, 2), speeds, rows, 1, threads=threads)
    assert coded.parts.size > PARALLEL_THRESHOLD  # so that there are threads
    np.testing.assert_allclose(coded.decoded(), coded.parts, atol=1e-13)
    assert coded.decoded().ravel() @ coded.given.ravel() == pytest.approx(
        coded.answers @ coded.coefficients()
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_long_and_short_blocks(dtype):
    speeds = [1.0, 1.01, 1.5, 2.0, 2.02, 2.03, 4.0]
    coded = Coded(make_code(7, 3), speeds, 4_000, 1)
    sizes = np.diff([*coded.plan.assignment.starts, 4_000])
    assert min(sizes) <= 512 < max(sizes)
    tolerance = 1e-4 if dtype == np.float32 else 1e-12
    np.testing.assert_allclose(coded.decoded(dtype), coded.parts, atol=tolerance)
    left, right = coded.parts.ravel() @ coded.given.ravel(), coded.answers @ coded.coefficients()
    assert left == pytest.approx(right)


def test_many_short_blocks_among_long_ones_in_any_order():
    speeds = np.random.default_rng(3).uniform(1, 4, 196)
    coded = Coded(make_code(196, 10, "gaussian"), speeds, 38_426, 1)
    starts = coded.plan.assignment.starts
    assert (np.diff(starts) < 0).any()
    np.testing.assert_allclose(coded.decoded(), coded.parts, atol=1e-13 * coded.codec.condition)


def test_each_step_has_its_own_answers_in_the_same_array():
    coded = Coded(make_code(6, 3), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 60, 1)
    answers, parts = coded.answers.copy(), np.empty(coded.parts.shape)
    for factor in (1.0, -2.0, 0.5):
        np.multiply(coded.answers, factor, out=answers)
        coded.codec.decode(answers, parts)
        np.testing.assert_allclose(parts, factor * coded.parts, atol=1e-12)


def test_a_codec_factors_and_allocates_nothing_more():
    import tracemalloc

    coded = Coded(make_code(6, 3), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0], 30_000, 1)
    parts, coefficients = np.empty(coded.parts.shape), np.empty(coded.answers.size)
    coded.codec.decode(coded.answers, parts)
    tracemalloc.start()
    try:
        coded.codec.decode(coded.answers, parts)
        coded.codec.coefficients(coded.given, coefficients)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000
