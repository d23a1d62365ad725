"""What is computed with X: the tasks on plain SciPy operators, and tasks of the user's."""

import sys

import numpy as np
import pytest
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from cec_mpi.errors import InputError
from cec_mpi.tasks import TASKS, find_task, matvec, options_of, power

RNG = np.random.default_rng(11)


def with_eigenvalues(values, symmetric):
    """A matrix with these eigenvalues and random eigenvectors."""
    basis = RNG.standard_normal((len(values), len(values)))
    if symmetric:
        basis, _ = np.linalg.qr(basis)
    return basis @ np.diag(values) @ np.linalg.inv(basis)


def residual(matrix, found):
    v, rho = found["result"], found["eigenvalue"]
    return np.linalg.norm(matrix @ v - rho * v) / abs(rho)


class Counted(LinearOperator):
    """An operator that counts its products."""

    def __init__(self, matrix):
        super().__init__(matrix.dtype, matrix.shape)
        self.matrix = matrix
        self.products = 0

    def _matvec(self, w):
        self.products += 1
        return self.matrix @ w


# --- matvec -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "?"])
@pytest.mark.parametrize("number", [0, 1, 5])
def test_products_with_each_vector(number, dtype):
    matrix = RNG.standard_normal((9, 4))
    vectors = RNG.uniform(0, 3, (number, 4)).astype(dtype)
    result = matvec(aslinearoperator(matrix), vectors=vectors)["result"]
    assert result.shape == (number, 9)
    assert result.dtype == np.float64
    assert np.allclose(result, vectors @ matrix.T, rtol=1e-6)


def test_products_go_where_they_are_wanted():
    matrix, vectors = RNG.standard_normal((9, 4)), RNG.standard_normal((3, 4))
    out = np.zeros((3, 9))
    assert matvec(aslinearoperator(matrix), vectors=vectors, out=out)["result"] is out
    assert np.allclose(out, vectors @ matrix.T)


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 5), (2, 4, 1), (4, 2)])
def test_vectors_of_another_shape_are_refused(shape):
    with pytest.raises(InputError, match=r"expected \(T, 4\)"):
        matvec(aslinearoperator(np.ones((9, 4))), vectors=np.ones(shape))


# --- power iteration ----------------------------------------------------------------------


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(
    "values",
    [[5.0, 3.0, -2.0, 1.0, 0.0], [-5.0, 3.0, 2.0, 1.0, 0.5], [1.0, 0.999, 0.5], [7.0], [-1e-3]],
    ids=str,
)
def test_the_dominant_eigenpair_as_numpy_finds_it(values, symmetric):
    matrix = with_eigenvalues(values, symmetric)
    found = power(aslinearoperator(matrix), tol=1e-10, steps=100_000)
    numbers, vectors = np.linalg.eig(matrix)
    largest = np.abs(numbers).argmax()
    assert found["converged"] is True
    assert found["eigenvalue"] == pytest.approx(numbers[largest].real, rel=1e-7)
    assert found["residual"] <= 1e-10
    assert residual(matrix, found) == pytest.approx(found["residual"], abs=1e-14)
    assert np.linalg.norm(found["result"]) == pytest.approx(1)
    aligned = abs(np.vdot(vectors[:, largest], found["result"]))
    assert aligned == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("tol", [1e-2, 1e-6, 1e-11])
def test_a_smaller_tolerance_takes_more_steps(tol):
    operator = Counted(with_eigenvalues([3.0, 2.0, 1.0], symmetric=True))
    found = power(operator, tol=tol)
    assert found["converged"]
    assert residual(operator.matrix, found) <= tol
    assert found["iterations"] == operator.products
    assert power(operator, tol=tol, steps=found["iterations"])["converged"]
    assert not power(operator, tol=tol, steps=found["iterations"] - 1)["converged"]


NOT_CONVERGENT = [
    (np.array([[0.0, 1.0], [-1.0, 0.0]]), 100),  # a rotation: no real eigenvalue
    (np.diag([2.0, -2.0, 1.0]), 100),  # two of the same size
    (with_eigenvalues([1.0, 0.9999, 0.5], symmetric=True), 10),  # too few steps
]


@pytest.mark.parametrize(("matrix", "steps"), NOT_CONVERGENT)
def test_what_does_not_converge_says_so(matrix, steps):
    found = power(aslinearoperator(matrix), steps=steps)
    assert found["converged"] is False
    assert found["iterations"] == steps
    assert found["residual"] > 1e-8
    assert np.linalg.norm(found["result"]) == pytest.approx(1)


@pytest.mark.parametrize("steps", [1, 3, 10])
def test_what_is_returned_belongs_together_converged_or_not(steps):
    matrix = with_eigenvalues([3.0, 2.9, 1.0, 0.5], symmetric=True)
    found = power(aslinearoperator(matrix), steps=steps)
    v = found["result"]
    assert found["eigenvalue"] == pytest.approx(v @ matrix @ v)
    assert found["residual"] == pytest.approx(residual(matrix, found))


@pytest.mark.parametrize("seed", range(3))
def test_the_first_vector_comes_from_the_seed(seed):
    matrix = aslinearoperator(with_eigenvalues([3.0, 2.0, 1.0], symmetric=True))
    first, second = power(matrix, seed=seed), power(matrix, seed=seed)
    assert np.array_equal(first["result"], second["result"])
    assert not np.array_equal(first["result"], power(matrix, seed=seed + 1)["result"])


@pytest.mark.parametrize("matrix", [np.zeros((4, 4)), np.eye(3)[[1, 2, 0]] * [0, 1, 1]])
def test_a_matrix_that_turns_every_vector_into_zero(matrix):
    found = power(aslinearoperator(matrix), steps=20)
    assert found["converged"] is True
    assert found["eigenvalue"] == found["residual"] == 0
    assert np.isfinite(found["result"]).all()
    assert np.allclose(matrix @ found["result"], 0)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-100, 1e100, 1e160, 1e300])
def test_the_scale_of_the_matrix_does_not_matter(scale):
    matrix = with_eigenvalues([3.0, 1.0, -0.5], symmetric=True)
    plain = power(aslinearoperator(matrix))
    found = power(aslinearoperator(scale * matrix))
    assert found["converged"]
    assert found["eigenvalue"] == pytest.approx(3 * scale, rel=1e-9, abs=0)
    assert np.allclose(np.abs(found["result"]), np.abs(plain["result"]))


@pytest.mark.parametrize(
    ("shape", "options", "says"),
    [
        ((3, 4), {}, "3 x 4 matrix: expected a square one"),
        ((3, 3), {"tol": 0}, "tol 0"),
        ((3, 3), {"tol": 1.0}, r"tol 1\.0"),
        ((3, 3), {"tol": -1e-8}, "tol -1e-08"),
        ((3, 3), {"tol": float("nan")}, "tol nan"),
        ((3, 3), {"tol": "small"}, "tol"),
        ((3, 3), {"steps": 0}, "steps 0"),
        ((3, 3), {"steps": -3}, "steps -3"),
        ((3, 3), {"steps": "many"}, "steps"),
        ((3, 3), {"seed": -1}, "seed"),
        ((3, 3), {"seed": "one"}, "seed"),
    ],
)
def test_power_refuses_what_it_cannot_do(shape, options, says):
    with pytest.raises(InputError, match=says):
        power(aslinearoperator(np.ones(shape)), **options)


# --- finding a task -----------------------------------------------------------------------


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module in the working directory, as a user has it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    name = f"task_module_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(
        "CONSTANT = 3\n"
        "def first(X, *, checkpoint, a, b=2):\n"
        "    return {'result': [a, b]}\n"
        "def any(X, *, checkpoint, **options):\n"
        "    return {'result': sorted(options)}\n"
    )
    return name


def test_tasks_by_name():
    assert find_task("matvec") is matvec
    assert find_task("power") is power
    assert set(TASKS) >= {"matvec", "power"}


def test_a_task_in_a_module_of_the_working_directory(module):
    assert find_task(f"{module}:first")(None, checkpoint=None, a=1) == {"result": [1, 2]}


@pytest.mark.parametrize(
    "name",
    [
        "",
        "nothing",
        "Power",
        "power:",
        ":function",
        "no_such_module:function",
        "{}:missing",
        "{}:",
        "{}:CONSTANT",
        "{}:first:a",
        "{}.first:a",
        "{}",
        ".{}:first",
        "..:first",
    ],
)
def test_a_task_that_is_none_is_refused_by_name(module, name):
    name = name.format(module)
    with pytest.raises(InputError, match=f"task {name!r}"):
        find_task(name)


def test_options_that_a_task_takes(module):
    assert options_of(power) == {"tol", "steps", "seed"}
    assert options_of(find_task(f"{module}:first")) == {"a", "b"}
    assert options_of(find_task(f"{module}:any")) is None
