"""How badly sets of machines are conditioned, and what decoding makes of it.

    python scripts/benchmarks/bench_conditioning.py [worst] [families] [decode] [sets] [--seed 1]

- worst: of large codes the worst condition number of 2,000 sets, which took the place of a
  measurement before, and what the search finds; its effort in sets, and in seconds here.
- families: for pairs of N and L that are drawn, what `auto` found over the least that was found for
  any family, and the same by a search of four times the effort.
- decode: errors of answers of 100 terms that badly conditioned sets decode, over the unit roundoff
  times the condition number: by triangular solves, with a residual in each step, and with the
  refined inverse that is used.
- sets: 1,000 random plans with S stragglers: the largest condition number and the error of a step
  that decodes the first L answers, and of one that decodes rows again while it waits for others.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lu_factor, lu_solve

from cec_mpi.core.code.choosing import choose_machines
from cec_mpi.core.code.conditioning import sample_subsets
from cec_mpi.core.code.decoder import Decoder
from cec_mpi.core.code.families import FAMILIES, matrices_of
from cec_mpi.core.code.mds import MDSCode, make_code
from cec_mpi.core.code.worst import condition_numbers, search_worst
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.core.step.answers import RowAnswers
from cec_mpi.core.step.decoders import Decoders
from cec_mpi.errors import InputError

Floats = NDArray[np.float64]

LARGE = [(24, 12), (30, 15), (40, 20), (60, 30), (100, 10), (100, 50), (100, 90), (300, 200)]
UNIT = 2.0**-53
PLANS = 1_000


def worst(seed: int) -> None:
    """Sampled and found."""
    print("  N    L  family       sample    found  sets compared  seconds")
    for machines, recovery in LARGE:
        for family in ("fourier", "orthonormal", "gaussian"):
            generator = matrices_of(family, machines, recovery, False, seed)[0]
            sets = np.array(
                list(sample_subsets(machines, recovery, 2_000 if recovery < 99 else 50))
            )
            sampled = max(condition_numbers(some).max() for some in batches(generator, sets))
            if sampled > 1e15:
                continue
            begin = time.perf_counter()
            found = search_worst(generator)
            print(
                f"{machines:3}  {recovery:3}  {family:11} {sampled:7.1e}  {found.number:7.1e}"
                f"  {found.compared:13,}  {time.perf_counter() - begin:7.2f}"
            )


def batches(generator: Floats, sets: NDArray[np.int64]) -> Iterator[Floats]:
    """L x L matrices, some at a time."""
    for some in np.array_split(sets, -(-sets.size * sets.shape[1] // 1_000_000)):
        yield generator[some]


def families(seed: int) -> None:
    """Whether `auto` takes a good one."""
    rng = np.random.default_rng(seed)
    print("  N    L  auto         found  over the best  by a longer search")
    for _ in range(12):
        machines = int(rng.integers(4, 101))
        recovery = int(rng.integers(2, machines))
        auto = make_code(machines, recovery)
        others = {}
        for family in FAMILIES:
            try:
                others[family] = make_code(machines, recovery, family)
            except InputError:
                continue
        least = min(code.conditioning.worst for code in others.values())
        longer = {name: longer_search(code) for name, code in others.items()}
        print(
            f"{machines:3}  {recovery:3}  {auto.family:11} {auto.conditioning.worst:7.1e}"
            f"  {auto.conditioning.worst / least:13.2f}"
            f"  {longer_search(auto) / min(longer.values()):18.2f}",
            flush=True,
        )


def longer_search(code: MDSCode) -> float:
    """Four times the effort, or exact as it is."""
    if code.conditioning.complete:
        return code.conditioning.worst
    known = np.array([code.conditioning.worst_machines]) - 1
    return search_worst(code.generator, 4.0, known).number


def decode(seed: int) -> None:
    """Errors of three ways to decode."""
    rng = np.random.default_rng(seed)
    print("  N    L  family       condition   solves  residual  refined")
    for machines, recovery, family in (
        *((20, 10, "chebyshev"), (20, 16, "cauchy"), (30, 15, "fourier"), (40, 20, "fourier")),
        *((40, 20, "gaussian"), (60, 30, "orthonormal"), (100, 50, "orthonormal")),
    ):
        generator = matrices_of(family, machines, recovery, False, seed)[0]
        rows = list(search_worst(generator, 0.1).rows)
        matrix = generator[rows]
        condition = float(np.linalg.cond(matrix))
        factors, decoder = lu_factor(matrix), Decoder(generator, [n + 1 for n in rows])
        errors = []
        for _ in range(30):
            parts, w = rng.standard_normal((recovery, 40, 100)), rng.standard_normal(100)
            exact = parts.astype(np.longdouble) @ w
            answers = np.einsum("nl,lij->nij", matrix, parts) @ w
            solved = lu_solve(factors, answers)
            again = solved + lu_solve(factors, answers - matrix @ solved)
            refined = np.empty_like(solved)
            decoder.decode(answers[list(decoder.order)], refined)
            largest = float(np.abs(exact).max())
            errors.append(
                [float(np.abs(found - exact).max()) / largest for found in (solved, again, refined)]
            )
        one, two, three = np.median(errors, axis=0) / (UNIT * condition)
        print(
            f"{machines:3}  {recovery:3}  {family:11} {condition:9.1e}  {one:7.2f}  {two:8.2f}"
            f"  {three:7.2f}"
        )


def sets(seed: int) -> None:
    """What it gains to decode again with better sets."""
    rng = np.random.default_rng(seed)
    codes = [make_code(*size) for size in ((6, 3), (10, 5), (20, 10), (20, 16), (30, 15))]
    found: dict[tuple[int, int], list[list[float]]] = {}
    for _ in range(PLANS):
        code = codes[rng.integers(len(codes))]
        spare = int(rng.integers(1, min(4, code.machines - code.recovery + 1)))
        first, again = two_steps(code, spare, rng)
        one_more = with_one_to_spare(code, rng)
        found.setdefault((code.machines, code.recovery), []).append([*first, *again, *one_more])
    print(
        "medians over plans: the largest condition number of a step; in how many of them it became"
    )
    print(
        "smaller; the error of all rows (root mean square) over that of the first L answers, in the"
    )
    print("best of ten plans; condition numbers of L of L + 1 machines whose answers are compared")
    print(" N   L  plans  first L    again  smaller  errors  first L of L + 1  best")
    for (machines, recovery), lines in sorted(found.items()):
        columns = np.array(lines).T
        gain = columns[3] / columns[1]
        low, best, bad, good = np.median(columns[[0, 2, 4, 5]], axis=1)
        print(
            f"{machines:2}  {recovery:2}  {len(lines):5}  {low:7.1f}  {best:7.1f}"
            f"  {np.mean(columns[2] < 0.99 * columns[0]):7.0%}  {np.quantile(gain, 0.1):6.2f}"
            f"  {bad:16.1f}  {good:4.1f}"
        )


def two_steps(
    code: MDSCode, spare: int, rng: np.random.Generator
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Condition number and error of the same step, without and with better sets."""
    rows = 120
    least = code.recovery + spare
    count = int(rng.integers(least, code.machines + 1))
    available = np.sort(1 + rng.choice(code.machines, count, replace=False)).tolist()
    speeds = np.exp(rng.normal(0, 0.5, code.machines))
    plan = plan_step(available, speeds.tolist(), least, rows).assignment
    took = plan.counts(code.machines) / speeds * np.exp(rng.normal(0, 0.3, code.machines))
    exact = rng.standard_normal((code.recovery, rows))
    answers = code.generator @ exact
    results = []
    for improves in (False, True):
        parts = np.empty_like(exact)
        step = RowAnswers(Decoders(code), code.recovery, rows, 1, parts, np.empty(parts.size))
        for machine in sorted(plan.available, key=lambda n: took[n - 1]):
            for start, stop in plan.intervals(machine):
                step.give(machine, start, stop, answers[machine - 1, start:stop])
            if not step.undecoded:
                break
            while improves and step.improve():
                pass
        results.append((step.condition, float(np.linalg.norm(parts - exact))))
    return results[0], results[1]


def with_one_to_spare(code: MDSCode, rng: np.random.Generator) -> tuple[float, float]:
    """Condition numbers of the first L of L + 1 machines, and of those that are chosen."""
    machines = np.sort(1 + rng.choice(code.machines, code.recovery + 1, replace=False)).tolist()
    chosen = choose_machines(code.generator, machines)
    first, best = (
        float(np.linalg.cond(code.generator[np.array(some) - 1], 1))
        for some in (machines[:-1], chosen)
    )
    return first, best


PARTS = {"worst": worst, "families": families, "decode": decode, "sets": sets}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    for name in arguments.parts:
        print(f"--- {name}")
        PARTS[name](arguments.seed)


if __name__ == "__main__":
    main()
