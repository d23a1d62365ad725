"""Wrong terms of X' v at random, and three ways to see them.

    python scripts/campaigns/wrong_terms.py [--seed I] [--cases 2000] [--dtype float64|float32]

Six machines hold a random matrix, any three are enough. Each computes its term of X' v, and one of
them, in half of the cases, a wrong one: one entry is off, or all are, by 1e-15 to 1 of the largest
entry of X' v. Who looks at it is

- `probe`: what a machine answers to a random vector is known, as `--check` has it
- `pairs`: machines multiply a second vector, so chosen that the differences of their two answers
  add up to what a fourth machine answers to a random vector, on the rows of a block
- `again`: the term of one machine at random is computed again from three others

For each size of the error the table has the share of the errors that are seen; then false alarms,
the share of errors above 1e-6 whose machine is named, what machines compute more in a step, and
milliseconds in all, here in one process.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.accuracy.rounding import encoding_error, summing_error
from cec_mpi.core.checks.terms import TermChecks
from cec_mpi.core.code.mds import make_code

Floats = NDArray[np.float64]

MACHINES, RECOVERY, ROWS, COLUMNS = 6, 3, 3000, 200
WAYS = ("probe", "pairs", "again")
MORE = ("none", "a second product, and one machine more", "as much again")
DECADES = range(-15, 1)


class Store:
    """Shards of a random matrix, and the three ways to check terms of its adjoint."""

    def __init__(self, rng: np.random.Generator, dtype: str) -> None:
        self.rng = rng
        self.code = make_code(MACHINES, RECOVERY, dtype=dtype)
        X = rng.standard_normal((RECOVERY, ROWS, COLUMNS)).astype(dtype)
        shards = np.empty((MACHINES, ROWS, COLUMNS), dtype)
        self.code.encode(X, shards)
        self.shards = shards.astype(np.float64)  # as products are computed
        self.largest = np.abs(X).max(axis=(0, 1)).astype(float)
        self.sizes = 1.0001 * np.abs(self.code.generator).sum(axis=1)
        self.errors = encoding_error(self.code.generator, dtype)
        self.errors += summing_error(ROWS, np.float64) * self.sizes
        self.checks = TermChecks(self.sizes, self.largest, ROWS, np.float64, rng)
        for n, shard in enumerate(self.shards, start=1):
            self.checks.take(n, [(0, ROWS)], shard @ self.checks.probe[0])

    def probe(self, terms: Floats, u: Floats, machines: list[int]) -> set[int]:
        """Who fails by what it answered to the probe."""
        rows = [(0, ROWS)]
        return {n for n, t, each in zip(machines, terms, u, strict=True)
                if self.checks.fails(n, rows, each, t)}  # fmt: skip

    def pairs(self, terms: Floats, u: Floats, machines: list[int]) -> set[int]:
        """Everybody, if differences do not add up to what one machine more answers."""
        other = int(self.rng.choice([n for n in range(1, MACHINES + 1) if n not in machines]))
        z = self.rng.standard_normal(ROWS)
        weights = self.code.stand_in_weights(other, tuple(machines))
        total = -self.shards[other - 1].T @ z
        limit = self.errors[other - 1] * np.abs(z).sum()
        for n, t, each, c in zip(machines, terms, u, weights.tolist(), strict=True):
            second = each + c * z
            total += self.shards[n - 1].T @ second - t
            limit += self.errors[n - 1] * (np.abs(second).sum() + np.abs(each).sum())
        return set(machines) if (np.abs(total) > limit * self.largest).any() else set()

    def again(self, terms: Floats, u: Floats, machines: list[int]) -> set[int]:
        """One machine, if others have another term in its place."""
        which = int(self.rng.integers(RECOVERY))
        n = machines[which]
        others = tuple(m for m in range(1, MACHINES + 1) if m != n)[:RECOVERY]
        weights = self.code.stand_in_weights(n, others)
        total = terms[which].copy()
        limit = self.errors[n - 1]
        for m, c in zip(others, weights.tolist(), strict=True):
            total -= self.shards[m - 1].T @ (c * u[which])
            limit += abs(c) * self.errors[m - 1]
        limit *= float(np.abs(u[which]).sum())
        return {n} if (np.abs(total) > limit * self.largest).any() else set()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--dtype", choices=["float64", "float32"], default="float64")
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    store = Store(rng, arguments.dtype)
    seen: Counter[tuple[str, object]] = Counter()
    seconds = dict.fromkeys(WAYS, 0.0)
    for case in range(arguments.cases):
        machines = sorted((rng.choice(MACHINES, RECOVERY, replace=False) + 1).tolist())
        v = rng.standard_normal((RECOVERY, ROWS))
        u = np.linalg.solve(store.code.generator[np.array(machines) - 1].T, v)
        terms = np.array(
            [store.shards[n - 1].T @ each for n, each in zip(machines, u, strict=True)]
        )
        wrong, kind = case % 2, ("one", "all")[case // 2 % 2]
        guilty = int(rng.integers(RECOVERY))
        exponent = rng.uniform(DECADES[0], DECADES[-1])
        decade = (kind, int(np.floor(exponent)))
        if wrong:
            error = 10**exponent * np.abs(terms.sum(axis=0)).max()
            where = rng.integers(COLUMNS) if kind == "one" else slice(None)
            terms[guilty, where] += error * (1 if kind == "one" else rng.standard_normal(COLUMNS))
        seen["cases", decade if wrong else "right"] += 1
        for way in WAYS:
            begin = time.perf_counter()
            found = getattr(store, way)(terms, u, machines)
            seconds[way] += time.perf_counter() - begin
            seen[way, decade if wrong else "right"] += bool(found)
            if wrong and exponent > -6:
                seen[way, "large"] += 1
                seen[way, "named"] += found == {machines[guilty]}
    print(f"{'error of':>28}" + "".join(f"{way:>12}" for way in WAYS))
    for kind in ("one", "all"):
        for decade in DECADES[:-1]:
            cases = seen["cases", (kind, decade)]
            shares = [seen[way, (kind, decade)] / max(cases, 1) for way in WAYS]
            text = f"{kind} by 1e{decade}..1e{decade + 1}"
            print(f"{text:>28}" + "".join(f"{share:12.0%}" for share in shares))
    alarms = {way: seen[way, "right"] for way in WAYS}
    text = f"false alarms of {seen['cases', 'right']}"
    print(f"{text:>28}" + "".join(f"{alarms[way]:12d}" for way in WAYS))
    named = [seen[way, "named"] / max(seen[way, "large"], 1) for way in WAYS]
    print(f"{'named':>28}" + "".join(f"{share:12.0%}" for share in named))
    print(f"{'ms of all that it computes':>28}" + "".join(
        f"{1e3 * seconds[way] / arguments.cases:12.2f}" for way in WAYS
    ))  # fmt: skip
    for way, more in zip(WAYS, MORE, strict=True):
        print(f"{way} has machines compute more: {more}")
    return 1 if any(alarms.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
