"""PageRank against the solution of the dense linear system."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.linalg import aslinearoperator

from cec_mpi import encode, open_operator
from cec_mpi.errors import InputError
from cec_mpi.tasks import pagerank
from helpers.operators import CountingOperator, NoisyOperator

RNG = np.random.default_rng(5)


def random_links(size, rng, density=0.3):
    """Return the weights of links; some nodes have no links."""
    links = rng.uniform(0.5, 3, (size, size)) * (rng.random((size, size)) < density)
    links[rng.random(size) < 0.2] = 0
    return links


def exact_scores(links, damping=0.85, jump=None):
    """Solve x = d M x + (1 - d) p; the transition matrix M is divided without rounding."""
    size = len(links)
    jump = np.full(size, 1 / size) if jump is None else np.asarray(jump) / np.sum(jump)
    rows = [[Fraction(weight) for weight in row] for row in links.tolist()]
    transition = [[float(w / sum(row)) for w in row] if any(row) else list(jump) for row in rows]
    system = np.eye(size) - damping * np.array(transition).T
    return np.linalg.solve(system, (1 - damping) * jump)


@given(
    size=st.integers(1, 12),
    seed=st.integers(0, 1000),
    damping=st.sampled_from([0, 0.5, 0.85, 0.95]),
    has_jump=st.booleans(),
    links=st.sampled_from(["rows", "columns"]),
)
def test_scores_are_those_of_a_dense_solve(size, seed, damping, has_jump, links):
    rng = np.random.default_rng(seed)
    weights = random_links(size, rng)
    jump = rng.integers(0, 3, size) + np.eye(size)[0] if has_jump else None
    matrix = weights if links == "rows" else weights.T
    found = pagerank(
        aslinearoperator(matrix), damping=damping, personalization=jump, tol=1e-12, links=links
    )
    assert found["converged"] is True
    assert found["change"] < 1e-12
    assert found["result"].sum() == pytest.approx(1)
    assert np.allclose(found["result"], exact_scores(weights, damping, jump), atol=1e-10)


SIZES = st.one_of(
    st.just(0), st.sampled_from([1e-18, 1e-200, 1e150, 1e300, 5e-324, 3e-310]), st.floats(0.5, 3)
)


@given(size=st.integers(2, 10), seed=st.integers(0, 1000), data=st.data())
def test_nodes_with_tiny_links_are_not_dangling(size, seed, data):
    sizes = np.array(data.draw(st.lists(SIZES, min_size=size, max_size=size)))
    weights = np.random.default_rng(seed).integers(0, 4, (size, size)) * sizes[:, None]
    found = pagerank(aslinearoperator(weights), tol=1e-12)
    assert found["dangling"] == (weights == 0).all(axis=1).sum()
    np.testing.assert_allclose(found["result"], exact_scores(weights), atol=1e-10)


@pytest.mark.parametrize(
    ("links", "options"),
    [
        ("rows", {"recovery": 2}),
        ("columns", {"recovery": 2, "scaling": "none"}),
        ("rows", {"copies": 2}),
        ("columns", {"copies": 2}),
    ],
)
def test_a_store_keeps_tiny_links(links, options, tmp_path):
    sizes = np.array([1, 0, 1e-18, 1e-120, 1e50, 1, 0, 1e100, 1e-110, 2.0])
    weights = np.random.default_rng(3).integers(1, 4, (10, 10)) * sizes[:, None]
    matrix = weights if links == "rows" else weights.T
    encode(csr_array(matrix) if "copies" in options else matrix, tmp_path / "s", 3, **options)
    with open_operator(tmp_path / "s", None) as X:
        found = pagerank(X, links=links, tol=1e-12)
    assert found["dangling"] == 2
    np.testing.assert_allclose(found["result"], exact_scores(weights), atol=1e-10)


# --- rounding errors ----------------------------------------------------------------------


@pytest.mark.parametrize("product_error", [1e-16, 1e-7])
@pytest.mark.parametrize("links", ["rows", "columns"])
def test_dangling_nodes_are_recognised_despite_rounding_errors(product_error, links):
    weights = random_links(40, RNG)
    assert not weights.sum(axis=1).all()
    operator = NoisyOperator(weights if links == "rows" else weights.T, product_error, RNG)
    found = pagerank(operator, tol=1e-5, links=links)
    assert found["converged"]
    assert found["dangling"] == (weights.sum(axis=1) == 0).sum()
    assert np.allclose(found["result"], exact_scores(weights), atol=1e-4 / 5)


def test_links_that_may_be_rounding_errors_are_refused(tmp_path):
    weights = np.zeros((50, 50))
    weights[0] = 1  # a hub; other nodes have one link or none
    weights[range(1, 49), range(2, 50)] = 1
    assert pagerank(NoisyOperator(weights, 1e-6, RNG))["dangling"] == 1
    with pytest.raises(InputError, match=r"nodes without links cannot be recognised.*float64"):
        pagerank(NoisyOperator(weights, 1e-2, RNG))
    # Rows of very different sizes are scaled, so that sums of columns lose small terms.
    encode(np.array([[1.0, 0, 0], [1, 0, 1e-18], [0, 1, 0]]), tmp_path / "s", 3, 2)
    with (
        open_operator(tmp_path / "s", None) as X,
        pytest.raises(InputError, match=r"cannot be recognised: .* scaling none"),
    ):
        pagerank(X, links="columns")


def test_scores_are_not_negative_despite_rounding_errors():
    weights = np.zeros((30, 30))
    weights[0, 1] = weights[1, 0] = 1  # other nodes are never reached
    found = pagerank(NoisyOperator(weights, 1e-7, RNG), personalization=np.eye(30)[0])
    assert found["converged"]
    assert found["result"].min() == 0
    assert found["result"].sum() == pytest.approx(1)


# --- iterations and errors ----------------------------------------------------------------


@pytest.mark.parametrize("links", ["rows", "columns"])
def test_an_iteration_is_one_product(links):
    operator = CountingOperator(random_links(20, RNG))
    found = pagerank(operator, links=links)
    first, later = ("X", "X'") if links == "rows" else ("X'", "X")
    assert [name for name, _ in operator.calls] == [first] + [later] * found["iterations"]
    short = pagerank(operator, links=links, iterations=2)
    assert (short["converged"], short["iterations"]) == (False, 2)
    assert short["change"] > 1e-6
    assert short["result"].sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("matrix", "links", "message"),
    [
        ([[0, 1.0], [-1, 0]], "rows", r"row 1 of X \(counted from 0\) has the sum -1\.0"),
        ([[0, -1.0], [1, 0]], "columns", r"column 1 of X \(counted from 0\) has the sum -1"),
        ([[0, 2, -1], [1, 0, 0], [0, 1, 0]], "rows", "column 2 .* negative weights"),
        ([[0, 1, 0], [2, 0, 1], [-1, 0, 0]], "columns", "row 2 .* negative weights"),
    ],
)
def test_negative_weights_are_refused(matrix, links, message):
    with pytest.raises(InputError, match=message):
        pagerank(aslinearoperator(np.array(matrix)), links=links)
