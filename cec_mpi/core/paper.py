"""The paper in exact fractions, with its own notation.

N. Woolsey, R.-R. Chen and M. Ji, "Heterogeneous Computation Assignments in Coded Elastic
Computing". Numbers in parentheses refer to its equations, and machines are counted from 1.
Functions take and return int and Fraction. Other modules have faster versions, in floats or in
whole rows: their docstrings name the function here, and tests compare the results.

X is cut into L parts of q/L rows, and machine n stores one coded combination of them (1). In time
step t the machines of N_t are available, with speeds s[n] in rows per unit of time. Each row of the
shards needs the answers of any L machines. Machine n computes the fraction mu[n] of its rows (4),
and the step takes as long as its slowest machine (5). Theorem 1 finds the loads mu with which this
time is shortest. Algorithm 1 finds blocks of rows M_f and their machines P_f with these loads.

Where the paper's text is wrong or silent:

- mu depends on the rows M_t and the machines P_t of an assignment, not on M_t and N_t as (7) says.
- (7) needs two more constraints: the M_f are disjoint, and each P_f is a subset of N_t.
- Theorem 1 needs N_t > L. If N_t = L, all machines compute all rows; if N_t < L, no step is
  possible.
- The proof of Theorem 1 says both that k* minimises c_k and that it maximises it. It maximises: c*
  is the largest c_k with k from N_t - L + 1 to N_t, and k* is the largest k that attains it.
- Algorithm 1 does not order machines with equal loads. To reproduce the sets P_f of the example,
  the machine with the lower number must count as smaller.
- If L = 1, P_f has one machine: its second part, the last L - 1 of the list, is empty.
- Section III, t = 2: "machines 3, 5 and 6 require 2/5" should name machines 2, 5 and 6.
- In floating point Algorithm 1 fails: rounding errors such as 1e-17 count as remaining rows.

Examples
--------
The example of Sections III to V: N = 6 machines, any L = 3 of them suffice.

>>> s = {1: 2, 2: 2, 3: 3, 4: 3, 5: 4, 6: 4}  # (8)
>>> for preempted in set(), {4}, {4, 6}, {1, 4, 6}:
...     available = {n: s[n] for n in s if n not in preempted}
...     mu, c, k = optimal_load(available, L=3)
...     print("c* =", c, " k* =", k, " mu =", *mu.values())
...     for block in algorithm_1(mu, L=3):
...         print("   ", block.alpha, "on", *block.P)
c* = 1/6  k* = 6  mu = 1/3 1/3 1/2 1/2 2/3 2/3
    1/3 on 1 5 6
    1/3 on 2 3 4
    1/6 on 3 5 6
    1/6 on 4 5 6
c* = 1/5  k* = 5  mu = 2/5 2/5 3/5 4/5 4/5
    2/5 on 1 5 6
    1/5 on 2 3 6
    1/5 on 2 3 5
    1/5 on 3 5 6
c* = 2/7  k* = 3  mu = 4/7 4/7 6/7 1
    3/7 on 1 3 5
    1/7 on 1 2 5
    3/7 on 2 3 5
c* = 1/2  k* = None  mu = 1 1 1
    1 on 2 3 5
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.text import plural

Exact = int | Fraction
ExactByMachine = Mapping[int, Exact]
"""A number for each available machine, by machine number."""


class Load(NamedTuple):
    """The optimal load of Theorem 1.

    Attributes
    ----------
    mu : dict of int to Fraction
        The fraction of its shard that each machine computes.
    c : Fraction
        c*, the time of the step in shards per unit of speed.
    k : int or None
        k*: the k* slowest machines all finish at c*. None if there are only L machines.
    """

    mu: dict[int, Fraction]
    c: Fraction
    k: int | None


class Block(NamedTuple):
    """A block of rows, and the iteration of Algorithm 1 that assigns it.

    Attributes
    ----------
    alpha : Fraction or int
        alpha_f, the size of the block, in the units of the loads.
    P : tuple of int
        P_f, the L machines that compute it, ascending.
    m : dict of int to Fraction or int
        Remaining load of each machine before the iteration.
    total : Fraction or int
        L', the sum of m.
    smallest : int
        l[1], the machine with the smallest remaining load.
    next_largest : int or None
        l[N' - L + 1], the machine with the largest remaining load outside P_f. None if P_f has all
        machines with remaining load.
    """

    alpha: Exact
    P: tuple[int, ...]
    m: dict[int, Exact]
    total: Exact
    smallest: int
    next_largest: int | None


def coded_shards(G: ArrayLike, X: ArrayLike) -> NDArray[Any]:
    """Return the shards of machines 1..N: weighted sums of the L parts of X (1).

    Parameters
    ----------
    G : (N, L) array_like
        Generator matrix. Any L of its rows must be invertible.
    X : (q, r) array_like
        q must be a multiple of L.

    Returns
    -------
    (N, q/L, r) ndarray

    Examples
    --------
    >>> coded_shards([[1, 0], [0, 1], [1, 1]], [[1, 2], [3, 4]]).tolist()
    [[[1, 2]], [[3, 4]], [[4, 6]]]
    """
    G, X = np.asarray(G, object), np.asarray(X, object)
    L, (q, r) = G.shape[1], X.shape
    if q % L:
        raise InputError(f"X has {q} rows: expected a multiple of L = {L}")
    parts = X.reshape(L, q // L, r)  # X_1 .. X_L
    shards: NDArray[Any] = np.tensordot(G, parts, axes=1)
    return shards


def computation_time(mu: ExactByMachine, s: ExactByMachine) -> Fraction:
    """Return the time of the slowest machine (5).

    Examples
    --------
    >>> print(computation_time({1: Fraction(1, 2), 2: Fraction(3, 4)}, {1: 1, 2: 3}))
    1/2
    """
    return max(Fraction(mu[n]) / s[n] for n in mu)


# Proof of Theorem 1. In time c machine n computes at most min(1, c s[n]) of its shard, and all
# machines must compute L shards in total. The sum of min(1, c s[n]) grows with c and equals L at
# c*. In less time the machines compute fewer than L shards, so no load is faster. Machines with
# c* s[n] <= 1 all finish at c*; with ascending speeds they are the first k. Faster machines finish
# their whole shards earlier. So c (s[1] + .. + s[k]) + N_t - k = L, the equation in (15).
# In (15), the right inequality says that machine k computes at most its shard, the left one that
# machine k + 1 could compute more than its shard. If the right one fails for k, that is
# c_k > 1 / s[k], the left one holds for k - 1 (25). So a search downwards from N_t needs only the
# right one. It ends at N_t - L + 1 at the latest, where c_k = 1 / (s[1] + .. + s[k]) <= 1 / s[k].


def optimal_load(s: ExactByMachine, L: int) -> Load:
    """Return the load that minimises the time of the slowest machine (Theorem 1), solving (13).

    Parameters
    ----------
    s : dict of int to int or Fraction
        Speeds of the available machines, positive.
    L : int
        Number of machines that compute each row.

    Raises
    ------
    InputError
        L is less than 1, or a speed is not positive, or neither an int nor a Fraction.
    InfeasibleError
        Fewer than L machines are available.
    """
    _check_exact(s, L)
    if min(s.values()) <= 0:
        raise InputError(f"speeds {list(s.values())}: expected positive numbers")
    N_t = len(s)
    ascending = sorted(s.values())
    if N_t == L:
        return Load(dict.fromkeys(s, Fraction(1)), 1 / Fraction(ascending[0]), None)
    for k in range(N_t, N_t - L, -1):
        c = Fraction(k + L - N_t) / sum(ascending[:k])
        if c * ascending[k - 1] <= 1:  # the right inequality of (15)
            break
    mu = {n: min(Fraction(1), c * s[n]) for n in s}  # (14): c* s[n] > 1 for n > k*
    return Load(mu, c, k)


def algorithm_1(mu: ExactByMachine, L: int) -> list[Block]:
    """Run Algorithm 1: return at most N_t blocks of rows with which each machine gets its load.

    Parameters
    ----------
    mu : dict of int to int or Fraction
        Load of each available machine, in shards (with sum L) or in rows.
    L : int
        Number of machines that compute each row.

    Returns
    -------
    list of Block
        Each iteration finishes a machine, or adds a machine to all further blocks.

    Raises
    ------
    InputError
        No such blocks exist, because a load is negative or exceeds 1/L of the sum (26). Or L is
        less than 1, or a load is neither an int nor a Fraction.
    InfeasibleError
        There are fewer than L machines.

    Examples
    --------
    Figure 2 of the paper: t = 2, in fifths of a shard.

    >>> for block in algorithm_1({1: 2, 2: 2, 3: 3, 5: 4, 6: 4}, L=3):
    ...     print(block.alpha, block.P, *block.m.values(), block.total)
    2 (1, 5, 6) 2 2 3 4 4 15
    1 (2, 3, 6) 0 2 3 2 2 9
    1 (2, 3, 5) 0 1 2 2 1 6
    1 (3, 5, 6) 0 0 1 1 1 3
    """
    _check_exact(mu, L)
    if min(mu.values()) < 0 or max(mu.values()) * L > sum(mu.values()):
        raise InputError(
            f"loads {[str(load) for load in mu.values()]} cannot be met with each row on "
            f"{plural(L, 'machine')}: expected values from 0 to 1/{L} of their sum"
        )
    m = dict(mu)
    blocks = []
    while any(m.values()):
        total = sum(m.values())  # L'
        # Machines with remaining load, from the smallest to the largest (ties: by number).
        l = sorted((n for n in sorted(m) if m[n]), key=lambda n: m[n])  # noqa: E741
        k = len(l) - L  # N' - L; the paper counts from 1, so its l[N' - L + 1] is l[k]
        P = [l[0], *l[k + 1 :]]
        alpha, next_largest = m[l[0]], None
        if k >= 1:
            next_largest = l[k]
            alpha = min(Fraction(total) / L - m[next_largest], alpha)
        blocks.append(Block(alpha, tuple(sorted(P)), dict(m), total, l[0], next_largest))
        for n in P:
            m[n] -= alpha
    return blocks


def row_sets(blocks: Sequence[Block], rows: int) -> list[range]:
    """Return the rows M_f of each block, one after the other: the last line of Algorithm 1.

    Parameters
    ----------
    blocks : sequence of Block
        With sizes in fractions of a shard.
    rows : int
        Rows of a shard, q/L.

    Raises
    ------
    InputError
        The size of a block is not a whole number of rows.

    Examples
    --------
    >>> row_sets(algorithm_1(optimal_load({1: 2, 2: 2, 3: 3, 5: 4}, 3).mu, 3), 14)
    [range(0, 6), range(6, 8), range(8, 14)]
    """
    sets, start = [], 0
    for block in blocks:
        size = Fraction(block.alpha) * rows
        if size.denominator != 1:
            raise InputError(f"a block of {block.alpha} of {rows} rows: expected whole rows")
        sets.append(range(start, start + int(size)))
        start += int(size)
    return sets


def assigned_rows(n: int, M: Sequence[range], P: Sequence[tuple[int, ...]]) -> list[int]:
    """Return the rows W_n that machine n computes: the rows of its blocks (6).

    Examples
    --------
    >>> assigned_rows(2, [range(0, 2), range(2, 3)], [(1, 2), (1, 3)])
    [0, 1]
    """
    return [i for rows, machines in zip(M, P, strict=True) for i in rows if n in machines]


def decode(
    G: ArrayLike,
    M: Sequence[range],
    P: Sequence[tuple[int, ...]],
    V: Mapping[int, Mapping[int, Exact]],
) -> NDArray[Any]:
    """Return y = X w (2) from the answers of L machines to each row.

    The answers for row i are L equations for entry i of each of ``X_1 w .. X_L w``. Their
    coefficients are the rows of G of the machines.

    Parameters
    ----------
    G : (N, L) array_like
    M, P : sequence
        The rows and machines of each block.
    V : dict
        V_n (3): the answers of each machine, by row.

    Returns
    -------
    (q,) ndarray of Fraction
    """
    G = np.asarray(G, object)
    parts = np.empty((G.shape[1], sum(map(len, M))), object)
    for rows, machines in zip(M, P, strict=True):
        answers = np.array([[V[n][i] for i in rows] for n in machines], object)
        parts[:, rows] = solve(G[np.array(machines) - 1], answers)
    return parts.ravel()


def solve(A: ArrayLike, B: ArrayLike) -> NDArray[Any]:
    """Solve A Z = B exactly, by Gauss-Jordan elimination.

    Examples
    --------
    >>> print(*solve([[1, 1], [1, 3]], [[1], [2]]).ravel())
    1/2 1/2
    """
    A = np.asarray(A, object)
    Z = np.vectorize(Fraction, otypes=[object])(np.hstack([A, np.asarray(B, object)]))
    for column in range(len(A)):
        pivots = np.flatnonzero(Z[column:, column])
        if not pivots.size:
            raise InputError("a matrix is singular: any L rows of G must be invertible")
        pivot = column + int(pivots[0])
        Z[[column, pivot]] = Z[[pivot, column]]
        Z[column] = Z[column] / Z[column, column]
        is_other = np.arange(len(A)) != column
        Z[is_other] -= np.outer(Z[is_other, column], Z[column])
    solution: NDArray[Any] = Z[:, len(A) :]
    return solution


def multiply(G: ArrayLike, X: ArrayLike, w: ArrayLike, s: ExactByMachine) -> NDArray[Any]:
    """Return y = X w (2) as the available machines compute it in one time step.

    Parameters
    ----------
    G : (N, L) array_like
    X : (q, r) array_like
    w : (r,) array_like
    s : dict of int to int or Fraction
        Speeds of the available machines.

    Examples
    --------
    >>> G = [[1, n, n**2] for n in range(1, 7)]  # any three rows are invertible
    >>> X = np.arange(84).reshape(42, 2)
    >>> y = multiply(G, X, [1, 2], {1: 2, 2: 2, 3: 3, 5: 4})  # t = 3: without machines 4 and 6
    >>> bool((y == X @ [1, 2]).all())
    True
    """
    L = np.asarray(G).shape[1]
    shards, w = coded_shards(G, X), np.asarray(w, object)
    blocks = algorithm_1(optimal_load(s, L).mu, L)
    M, P = row_sets(blocks, shards.shape[1]), [block.P for block in blocks]
    V = {n: {i: shards[n - 1, i] @ w for i in assigned_rows(n, M, P)} for n in s}  # (3)
    return decode(G, M, P, V)


def _check_exact(values: ExactByMachine, L: int) -> None:
    """Raise unless ``L >= 1``, L or more machines have values, and all are int or Fraction."""
    if L < 1:
        raise InputError(f"L = {L}: expected at least 1")
    if not all(isinstance(value, int | Fraction) for value in values.values()):
        raise InputError("expected whole numbers or Fractions, because floats are rounded")
    if len(values) < L:
        raise InfeasibleError(f"{plural(len(values), 'machine')} available: each row needs {L}")
