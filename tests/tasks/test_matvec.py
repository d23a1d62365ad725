"""Products with a sequence of vectors."""

import numpy as np
import pytest
from scipy.sparse.linalg import aslinearoperator

from cec_mpi.errors import InputError
from cec_mpi.tasks import matvec

RNG = np.random.default_rng(11)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "?"])
@pytest.mark.parametrize("number", [0, 1, 5])
def test_products_with_each_vector_go_where_they_are_wanted(number, dtype):
    matrix = RNG.standard_normal((9, 4))
    vectors = RNG.uniform(0, 3, (number, 4)).astype(dtype)
    result = matvec(aslinearoperator(matrix), vectors=vectors)["result"]
    assert result.shape == (number, 9)
    assert result.dtype == np.float64
    assert np.allclose(result, vectors @ matrix.T, rtol=1e-6)
    out = np.zeros((number, 9))
    assert matvec(aslinearoperator(matrix), vectors=vectors, out=out)["result"] is out
    assert np.array_equal(out, result)


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 5), (2, 4, 1), (4, 2)])
def test_vectors_of_another_shape_are_refused(shape):
    with pytest.raises(InputError, match=r"expected \(T, 4\)"):
        matvec(aslinearoperator(np.ones((9, 4))), vectors=np.ones(shape))


@pytest.mark.parametrize("number", [1, 3, 5])
def test_going_on_computes_only_the_products_that_are_missing(number, counted, memory, state_after):
    matrix, vectors = RNG.standard_normal((9, 4)), RNG.standard_normal((5, 4))
    out = np.zeros((5, 9))
    state = state_after(number, matvec, aslinearoperator(matrix), vectors=vectors, out=out)
    assert not out[number:].any()
    operator = counted(matrix)
    found = matvec(operator, vectors=vectors, out=out, checkpoint=memory(state))
    assert operator.products == 5 - number
    assert np.allclose(found["result"], vectors @ matrix.T)


@pytest.mark.parametrize(
    ("state", "out"),
    [
        ({"done": np.array(2)}, None),
        ({"done": np.array(4)}, np.zeros((3, 9))),
        ({"done": np.array(-1)}, np.zeros((3, 9))),
        ({"done": np.zeros(2)}, np.zeros((3, 9))),
        ({"x": np.zeros(2)}, np.zeros((3, 9))),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(state, out, memory):
    with pytest.raises(InputError, match="the checkpoint does not fit"):
        matvec(
            aslinearoperator(np.ones((9, 4))),
            vectors=np.ones((3, 4)),
            out=out,
            checkpoint=memory(state),
        )
