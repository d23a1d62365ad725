"""Inverses of badly conditioned matrices, to the last digit."""

from fractions import Fraction

import numpy as np
import pytest

from cec_mpi.core.code.decoder import Decoder, refine_inverse
from cec_mpi.core.code.families import make_generator
from cec_mpi.core.paper import solve
from cec_mpi.errors import InputError


def hilbert(size):
    return 1 / (np.arange(size) + np.arange(size)[:, None] + 1.0)


def exact_inverse(matrix):
    """Solve in fractions, and round at the end."""
    return np.array(solve(matrix.tolist(), np.eye(len(matrix), dtype=int).tolist())).astype(float)


@pytest.mark.parametrize(
    "matrix",
    [
        pytest.param(np.array([[3.0]]), id="one number"),
        pytest.param(hilbert(4), id="1e4"),
        pytest.param(hilbert(8), id="1e10"),
        pytest.param(hilbert(10), id="1e13"),
        pytest.param(1e200 * hilbert(6), id="large"),
        pytest.param(1e-200 * hilbert(6), id="small"),
        pytest.param(make_generator("gaussian", 24, 12)[:12], id="a code"),
        pytest.param(np.diag([1.0, 1e-9, 1e9]) @ hilbert(3)[[2, 0, 1]], id="scaled rows"),
    ],
)
def test_a_refined_inverse_is_exact_but_for_its_last_digit(matrix):
    exact = exact_inverse(matrix)
    refined = refine_inverse(matrix, np.linalg.inv(matrix))
    assert np.allclose(refined, exact, rtol=1e-15, atol=1e-30 * np.abs(exact).max())


@pytest.mark.parametrize("matrix", [hilbert(13), np.ones((3, 3)) + 1e-16 * np.eye(3)])
def test_what_is_singular_to_working_precision_is_not_refined(matrix):
    inverse = np.linalg.pinv(matrix) + 1e13
    assert refine_inverse(matrix, inverse) is None


def test_infinities_are_not_refined():
    assert refine_inverse(hilbert(3), np.full((3, 3), np.inf)) is None
    assert refine_inverse(hilbert(3), np.full((3, 3), np.nan)) is None


@pytest.mark.parametrize("size", [6, 9, 12, 14])
def test_badly_conditioned_answers_are_decoded_as_well_as_they_are_known(size):
    matrix = hilbert(size)
    try:
        decoder = Decoder(matrix, range(1, size + 1))
    except InputError:  # singular to this LAPACK
        return
    exact = np.random.default_rng(size).integers(-8, 9, (size, 40))
    fractions = np.vectorize(Fraction, otypes=[object])(matrix)
    answers = (fractions @ exact.astype(object)).astype(float)
    decoded = np.empty_like(answers)
    decoder.decode(answers, decoded)
    assert np.isfinite(decoded).all()
    known = np.abs(decoder.inverse) @ np.abs(answers) * 2.0**-53
    slack = size + 2 if decoder.condition < 1e15 else 1e3 * size
    assert (np.abs(decoded - exact) <= slack * known + 1e-13).all()


def test_the_transposed_decoder_is_the_transpose():
    decoder = Decoder(hilbert(9), range(1, 10))
    once, unit = np.empty((9, 9)), np.eye(9)
    transposed = np.empty((9, 9))
    decoder.decode(unit, once)
    decoder.decode_transposed(unit, transposed)
    assert np.allclose(transposed, once.T, rtol=1e-12, atol=0)
