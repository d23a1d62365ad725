"""Results of tasks for X and b times powers of two are those for X and b, times powers of two."""

import math

import numpy as np
import pytest

from cec_mpi.errors import InputError

SCALES = [1e-290, 1e-30, 1, 1e9, 1e155, 1e290]
EXPONENTS = [round(math.log2(scale)) for scale in SCALES]


def fits(values, exponent):
    """Whether the largest of these numbers is one of all digits, times a power of two."""
    return -1021 <= np.frexp(np.abs(values).max())[1] + exponent <= 1024


def check_units(run, expected, powers, x, b=0, rtol=0):
    """Check the results of a task for ``2**x X`` and ``2**b b``.

    Parameters
    ----------
    run : callable
        Calls the task, and returns its results.
    expected : dict
        The results for X and b.
    powers : dict
        The powers of X and of b that results are proportional to; those not named stay as they are.
        The first one must fit into float64, or the task refuses X.
    """
    exponents = {key: x * of_x + b * of_b for key, (of_x, of_b) in powers.items()}
    first = next(iter(powers), None)
    if first and not fits(expected[first], exponents[first]):
        size = "large" if exponents[first] > 0 else "small"
        with pytest.raises(InputError, match=f"too {size} for float64"):
            run()
        return
    found = run()
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        scaled = np.ldexp(value, exponents.get(key, 0))
        assert np.allclose(found[key], scaled, rtol=rtol, atol=0), key
