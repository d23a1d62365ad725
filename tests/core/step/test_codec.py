"""The codec of a plan decodes its answers, and its adjoint is the transpose."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import ThreadpoolController

from cec_mpi import make_code
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.core.step.codec import Codec, make_scratch, panel_width
from cec_mpi.core.threads import PARALLEL_THRESHOLD, run_in_threads


class Product:
    """The exact parts of X W, the answers of a plan, and its codec."""

    def __init__(self, code, speeds, rows, columns=1, threads=1):
        machines = range(1, code.machines + 1)
        plan = plan_step(machines, speeds, code.recovery, rows)
        self.assignment = plan.assignment
        self.parts, self.vectors = np.random.default_rng(0).standard_normal(
            (2, code.recovery, rows * columns)
        )
        coded = (code.generator @ self.parts).reshape(code.machines, rows, columns)
        self.answers = np.concatenate(
            [coded[n - 1, a:b].ravel() for n in machines for a, b in self.assignment.intervals(n)]
        )
        scratch = make_scratch(code.recovery, rows * columns, threads)
        for array in scratch:
            array.fill(np.nan)
        self.codec = Codec(plan, code, columns, scratch)

    def check(self, dtype=np.float64):
        """Check the decoded parts, and that coefficients are those of the transpose."""
        tolerance = 1e-12 * self.codec.condition * (1e8 if dtype == np.float32 else 1)
        answers, parts = self.answers.astype(dtype), np.full(self.parts.shape, np.nan)
        self.codec.decode(answers, parts)
        np.testing.assert_array_equal(answers, self.answers.astype(dtype))
        np.testing.assert_allclose(parts, self.parts, atol=tolerance)
        coefficients = np.full(self.answers.size, np.nan, dtype)
        self.codec.compute_coefficients(self.vectors, coefficients)
        expected = self.parts.ravel() @ self.vectors.ravel()
        assert self.answers @ coefficients == pytest.approx(expected, rel=1e-4, abs=1e3 * tolerance)


@given(st.data())
def test_answers_of_any_plan_are_decoded(data):
    machines = data.draw(st.integers(1, 8), "machines")
    code = make_code(machines, data.draw(st.integers(1, machines), "recovery"))
    equal, speed = st.just([1.0] * machines), st.floats(0.1, 10)
    speeds = data.draw(equal | st.lists(speed, min_size=machines, max_size=machines), "speeds")
    rows, columns = data.draw(st.integers(1, 40), "rows"), data.draw(st.integers(1, 3), "columns")
    product = Product(code, speeds, rows, columns)
    for dtype in (np.float64, np.float32):
        product.check(dtype)


@pytest.mark.parametrize("speeds", [[1.0] * 4, [1.0, 2.0, 3.0, 4.0]])
@pytest.mark.parametrize("threads", [1, 3])
def test_long_shards_are_decoded_in_panels_and_threads(speeds, threads):
    product = Product(make_code(4, 2), speeds, 3 * panel_width(2) // 2, threads=threads)
    assert product.parts.size > PARALLEL_THRESHOLD
    product.check()


@pytest.mark.parametrize(
    ("machines", "recovery", "rows"), [(7, 3, 16_000), (196, 10, 80_000)], ids=["few", "many"]
)
def test_long_and_short_blocks_are_decoded(machines, recovery, rows):
    speeds = np.random.default_rng(3).uniform(1, 4, machines)
    product = Product(make_code(machines, recovery, "gaussian"), speeds, rows)
    sizes = product.assignment.stops - product.assignment.starts
    assert min(sizes) <= 2048 < max(sizes)
    assert (np.diff(product.assignment.starts) < 0).any()
    product.check()


@pytest.mark.parametrize("rows", [60, 30_000])
def test_answers_may_change_in_the_same_array_without_allocations(rows):
    product = Product(make_code(6, 3), [1.0, 1.0, 2.0, 2.0, 3.0, 4.0], rows)
    exact, answers = product.answers.copy(), product.answers
    parts, coefficients = np.empty(product.parts.shape), np.empty(answers.size)
    product.codec.decode(answers, parts)
    product.codec.compute_coefficients(product.vectors, coefficients)
    tracemalloc.start()
    try:
        np.multiply(exact, -2.0, out=answers)
        product.codec.decode(answers, parts)
        product.codec.compute_coefficients(product.vectors, coefficients)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    np.testing.assert_allclose(parts, -2.0 * product.parts, atol=1e-12)
    assert peak < 20_000


def test_blas_has_one_thread_while_several_threads_compute():
    blas, counts = ThreadpoolController().select(user_api="blas"), []

    def record_threads():
        counts.append(max(library["num_threads"] for library in blas.info()))

    with blas.limit(limits=2):
        run_in_threads([record_threads, lambda: None])
        record_threads()
    assert counts == [1, 2]
