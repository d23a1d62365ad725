"""Decoding with ill-conditioned matrices."""

from fractions import Fraction

import numpy as np
import pytest

from cec_mpi.core.code.decoder import Decoder, refine_inverse
from cec_mpi.core.code.families import make_generator
from cec_mpi.core.paper import solve
from cec_mpi.errors import InputError


def hilbert(size):
    return 1 / (np.arange(size) + np.arange(size)[:, None] + 1.0)


@pytest.mark.parametrize(
    "matrix",
    [
        np.array([[3.0]]),
        hilbert(4),  # condition number 1e4
        hilbert(10),  # 1e13
        1e200 * hilbert(6),
        1e-200 * hilbert(6),
        make_generator("gaussian", 24, 12)[:12],
        np.diag([1.0, 1e-9, 1e9]) @ hilbert(3)[[2, 0, 1]],
    ],
)
def test_a_refined_inverse_is_accurate_to_the_last_digit(matrix):
    exact = np.array(solve(matrix.tolist(), np.eye(len(matrix), dtype=int).tolist())).astype(float)
    refined = refine_inverse(matrix, np.linalg.inv(matrix))
    assert np.allclose(refined, exact, rtol=1e-15, atol=1e-30 * np.abs(exact).max())


@pytest.mark.parametrize(
    ("matrix", "inverse"),
    [
        (hilbert(13), np.linalg.pinv(hilbert(13)) + 1e13),
        (np.ones((3, 3)) + 1e-16 * np.eye(3), np.full((3, 3), 1e13)),
        (hilbert(3), np.full((3, 3), np.inf)),
        (hilbert(3), np.full((3, 3), np.nan)),
    ],
)
def test_an_inaccurate_inverse_is_not_refined(matrix, inverse):
    assert refine_inverse(matrix, inverse) is None


@pytest.mark.parametrize("size", [6, 9, 12, 14])
def test_ill_conditioned_answers_are_decoded_as_accurately_as_they_are_known(size):
    matrix = hilbert(size)
    try:
        decoder = Decoder(matrix, range(1, size + 1))
    except InputError:  # singular with this LAPACK
        return
    exact = np.random.default_rng(size).integers(-8, 9, (size, 40))
    answers = (np.vectorize(Fraction, otypes=[object])(matrix) @ exact.astype(object)).astype(float)
    strided = np.full((size, 80), 7.0)
    decoder.decode(answers, strided[:, ::2])
    bounds = np.abs(decoder.inverse) @ np.abs(answers) * 2.0**-53
    factor = size + 2 if decoder.condition < 1e15 else 1e3 * size
    assert (np.abs(strided[:, ::2] - exact) <= factor * bounds + 1e-13).all()
    assert (strided[:, 1::2] == 7.0).all()
