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

RNG = np.random.default_rng(5)


def graph(size, rng, density=0.3):
    """Weights of links, with some nodes that have none."""
    links = rng.uniform(0.5, 3, (size, size)) * (rng.random((size, size)) < density)
    links[rng.random(size) < 0.2] = 0
    return links


def dense_scores(links, damping=0.85, jump=None):
    """x = d M x + (1 - d) p, with a jump from each node without links."""
    size = len(links)
    jump = np.full(size, 1 / size) if jump is None else np.asarray(jump) / np.sum(jump)
    transition = np.array([row / row.sum() if row.any() else jump for row in links]).T
    return np.linalg.solve(np.eye(size) - damping * transition, (1 - damping) * jump)


@given(
    size=st.integers(1, 12),
    seed=st.integers(0, 1000),
    damping=st.sampled_from([0, 0.5, 0.85, 0.95]),
    personal=st.booleans(),
    links=st.sampled_from(["rows", "columns"]),
)
def test_scores_as_a_dense_solve_finds_them(size, seed, damping, personal, links):
    rng = np.random.default_rng(seed)
    weights = graph(size, rng)
    jump = rng.integers(0, 3, size) + np.eye(size)[0] if personal else None
    matrix = weights if links == "rows" else weights.T
    found = pagerank(
        aslinearoperator(matrix), damping=damping, personalization=jump, tol=1e-12, links=links
    )
    assert found["converged"] is True
    assert found["change"] < 1e-12
    assert found["result"].sum() == pytest.approx(1)
    assert np.allclose(found["result"], dense_scores(weights, damping, jump), atol=1e-10)


@pytest.mark.parametrize("accuracy", [1e-16, 1e-7])
@pytest.mark.parametrize("links", ["rows", "columns"])
def test_nodes_without_links_are_known_despite_rounding_errors(accuracy, links, noisy):
    weights = graph(40, RNG)
    assert not weights.sum(axis=1).all()
    operator = noisy(weights if links == "rows" else weights.T, accuracy, RNG)
    found = pagerank(operator, tol=1e-5, links=links)
    assert found["converged"]
    assert found["dangling"] == (weights.sum(axis=1) == 0).sum()
    assert (found["result"] >= 0).all()
    assert np.allclose(found["result"], dense_scores(weights), atol=1e-4 / 5)


SIZES = st.one_of(
    st.just(0), st.sampled_from([1e-18, 1e-200, 1e150, 1e300, 5e-324, 3e-310]), st.floats(0.5, 3)
)


def exact_scores(links, damping=0.85):
    """The dense solve, of a transition matrix that is divided without rounding."""
    size = len(links)
    rows = [[Fraction(weight) for weight in row] for row in links.tolist()]
    transition = [
        [float(weight / sum(row)) if any(row) else 1 / size for weight in row] for row in rows
    ]
    system = np.eye(size) - damping * np.array(transition).T
    return np.linalg.solve(system, np.full(size, (1 - damping) / size))


@given(size=st.integers(2, 10), seed=st.integers(0, 1000), data=st.data())
def test_a_node_with_the_smallest_links_has_links(size, seed, data):
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
def test_a_store_keeps_the_smallest_links(links, options, tmp_path):
    sizes = np.array([1, 0, 1e-18, 1e-120, 1e50, 1, 0, 1e100, 1e-110, 2.0])
    weights = np.random.default_rng(3).integers(1, 4, (10, 10)) * sizes[:, None]
    given = weights if links == "rows" else weights.T
    encode(csr_array(given) if "copies" in options else given, tmp_path / "s", 3, **options)
    with open_operator(tmp_path / "s", None) as X:
        found = pagerank(X, links=links, tol=1e-12)
    assert found["dangling"] == 2
    np.testing.assert_allclose(found["result"], exact_scores(weights), atol=1e-10)


def test_sums_of_scaled_columns_that_may_be_errors_are_refused(tmp_path):
    """Rows of very different sizes are scaled, so that the sums of columns lose small terms."""
    weights = np.array([[1.0, 0, 0], [1, 0, 1e-18], [0, 1, 0]])
    encode(weights, tmp_path / "s", 3, 2)
    with (
        open_operator(tmp_path / "s", None) as X,
        pytest.raises(InputError, match=r"cannot be recognised: .* scaling none"),
    ):
        pagerank(X, links="columns")


def test_links_that_may_be_rounding_errors_are_not_guessed(noisy):
    weights = np.zeros((50, 50))
    weights[0] = 1  # a hub; the other nodes have one link or none
    weights[range(1, 49), range(2, 50)] = 1
    assert pagerank(noisy(weights, 1e-6, RNG))["dangling"] == 1
    with pytest.raises(InputError, match=r"nodes without links cannot be recognised.*float64"):
        pagerank(noisy(weights, 1e-2, RNG))


def test_no_score_is_negative_despite_rounding_errors(noisy):
    weights = np.zeros((30, 30))
    weights[0, 1] = weights[1, 0] = 1  # all the others are never reached
    found = pagerank(noisy(weights, 1e-7, RNG), personalization=np.eye(30)[0])
    assert found["converged"]
    assert found["result"].min() == 0
    assert found["result"].sum() == pytest.approx(1)


@pytest.mark.parametrize("weights", [np.zeros((3, 3)), np.array([[0, 1, 1], [0, 0, 1], [0] * 3])])
def test_a_graph_without_links_and_one_of_whole_numbers(weights):
    found = pagerank(aslinearoperator(weights), personalization=[1, 3, 0], tol=1e-12)
    assert found["converged"]
    assert np.allclose(found["result"], dense_scores(weights, jump=[1, 3, 0]))


@pytest.mark.parametrize("links", ["rows", "columns"])
def test_an_iteration_is_one_product(links, counted):
    operator = counted(graph(20, RNG))
    found = pagerank(operator, links=links)
    assert operator.products == found["iterations"] + 1
    first, then = ("X", "X'") if links == "rows" else ("X'", "X")
    assert [name for name, _ in operator.calls] == [first] + [then] * found["iterations"]


def test_too_few_steps_say_so():
    found = pagerank(aslinearoperator(graph(20, RNG)), iterations=2)
    assert found["converged"] is False
    assert found["iterations"] == 2
    assert found["change"] > 1e-6
    assert found["result"].sum() == pytest.approx(1)


@pytest.mark.parametrize("number", [1, 5, 12])
def test_going_on_gives_the_same_scores_as_no_break(number, counted, memory, state_after):
    weights = graph(20, np.random.default_rng(1))
    expected = pagerank(aslinearoperator(weights), tol=1e-12)
    state = state_after(number, pagerank, aslinearoperator(weights), tol=1e-12)
    operator = counted(weights)
    found = pagerank(operator, tol=1e-12, checkpoint=memory(state))
    assert np.array_equal(found["result"], expected["result"])
    assert found["iterations"] == expected["iterations"]
    assert operator.products == expected["iterations"] - (number - 1)


@pytest.mark.parametrize(
    ("matrix", "options", "message"),
    [
        (np.ones((3, 4)), {}, "pagerank needs a square matrix, found 3 x 4"),
        (np.array([[0, 1.0], [-1, 0]]), {}, r"row 1 of X has the sum -1\.0"),
        (np.array([[0, -1.0], [1, 0]]), {"links": "columns"}, r"column 1 of X has the sum -1"),
        (np.array([[0, 2, -1], [1, 0, 0], [0, 1, 0]]), {}, "column 2 .* negative weights"),
        (
            np.array([[0, 1, 0], [2, 0, 1], [-1, 0, 0]]),
            {"links": "columns"},
            "row 2 .* negative weights",
        ),
        (np.ones((2, 2)), {"damping": 1}, "damping 1: expected 0 or a number between 0 and 1"),
        (np.ones((2, 2)), {"tol": 0}, "tol 0"),
        (np.ones((2, 2)), {"iterations": 0}, "iterations 0"),
        (np.ones((2, 2)), {"links": "in"}, "links 'in': expected one of rows, columns"),
        (np.ones((2, 2)), {"personalization": [1, 2, 3]}, r"has shape \(3,\), expected \(2,\)"),
        (np.ones((2, 2)), {"personalization": [1, -2]}, r"from -2\.0 to 1\.0"),
        (np.ones((2, 2)), {"personalization": [0, 0]}, "not all 0"),
    ],
)
def test_pagerank_refuses_what_it_cannot_do(matrix, options, message):
    with pytest.raises(InputError, match=message):
        pagerank(aslinearoperator(matrix), **options)


def test_a_checkpoint_of_another_task_is_refused(memory):
    state = {"vector": np.ones(3), "iterations": np.array(2)}
    with pytest.raises(InputError, match="the checkpoint does not fit"):
        pagerank(aslinearoperator(np.ones((3, 3))), checkpoint=memory(state))
