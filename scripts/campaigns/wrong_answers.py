"""Wrong answers at random: which are seen, who is named, and how often an innocent machine.

    python scripts/campaigns/wrong_answers.py [--seed I] [--seconds 100]

Encodes random matrices by codes of several sizes and families, multiplies them as machines do, and
spoils answers of one machine, of two or of none, in one row, in a few or in all, by errors from a
hundredth of what L + 1 machines see to 1e8 times as much; those of two are mostly in the same rows.
The scale is the sum over the columns of their largest entries, times |w|. In some steps w is such
that X w cancels and is no more than rounding. The table counts, for L + 1 to L + 4 answers,

- `clean`, of answers of which none is wrong: alarms, which may not be
- `one`: errors above `detectable` that raise no alarm, which may not be; nor may there be one that
  names nobody with L + 3 answers or more. With L + 2 nobody is named
- `two` wrong machines, whose errors are independent, equal, the same flipped bit, or such that they
  look like one of a third: how often nobody is named. A third may never be
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from itertools import product

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.checks.parity import answer_checker
from cec_mpi.core.checks.sensitivity import measure_sensitivity
from cec_mpi.core.code.mds import MDSCode, make_code

Floats = NDArray[np.float64]

CODES = ((4, 1), (6, 3), (7, 4), (9, 5), (12, 8), (20, 10))
FAMILIES = ("fourier", "orthonormal", "gaussian")
DTYPES = ("float32", "float64")
ROWS, COLUMNS = 60, 50
MADE = 30  # cases of one code and matrix


class Coded:
    """A code, its checker, and what it sees."""

    def __init__(self, machines: int, recovery: int, family: str, dtype: str) -> None:
        self.dtype = dtype
        self.code: MDSCode = make_code(machines, recovery, family, seed=0, dtype=dtype)
        self.checker = answer_checker(self.code.generator, dtype, COLUMNS)
        seen = measure_sensitivity(self.code.generator, dtype, COLUMNS, arithmetic=dtype)
        self.seen_from = seen.detectable * float(np.finfo(dtype).eps)


class Made:
    """Shards of a random matrix."""

    def __init__(self, coded: Coded, rng: np.random.Generator) -> None:
        self.coded, self.code = coded, coded.code
        parts = rng.standard_normal((self.code.recovery, ROWS, COLUMNS))
        if rng.random() < 0.5:  # products with what adds up to 0 cancel
            parts = 1 + 10.0 ** -rng.integers(1, 9) * parts
        self.parts = parts.astype(coded.dtype)
        self.shards = np.empty((self.code.machines, ROWS, COLUMNS), coded.dtype)
        self.code.encode(self.parts, self.shards)

    def answers(self, rng: np.random.Generator) -> tuple[Floats, float]:
        """Answers of all machines, and their scale."""
        w = rng.standard_normal(COLUMNS)
        w = (w - w.mean() if rng.random() < 0.5 else w).astype(self.coded.dtype)
        largest = np.abs(self.parts).max(axis=(0, 1)).astype(float)
        answers = (self.shards @ w).astype(float)
        return answers, float(largest @ np.abs(w).astype(float))


def spoiled(rng: np.random.Generator) -> NDArray[np.int64]:
    """The rows in which an answer is wrong: one, a few or all."""
    count = (1, int(rng.integers(2, 6)), ROWS)[rng.integers(3)]
    return rng.choice(ROWS, count, replace=False)


def conspire(
    rng: np.random.Generator,
    answers: Floats,
    guilty: list[int],
    third: int,
    checks: Floats,
    chosen: list[int],
) -> None:
    """Spoil one row of the answers of two machines alike; ``checks`` are those of `chosen`."""
    row, mine = rng.integers(ROWS), np.array(guilty) - 1
    kind, size = rng.integers(3), np.abs(answers[:, row]).max()
    if kind == 0:
        answers[mine, row] += size * rng.standard_normal()
    elif kind == 1:
        bit = np.uint64(1) << np.uint64(rng.integers(20, 62))
        answers[mine, row] = (answers[mine, row].view(np.uint64) ^ bit).view(float)
    else:
        places = [chosen.index(n) for n in guilty]
        towards = np.linalg.lstsq(checks[:, places], checks[:, chosen.index(third)])[0]
        answers[mine, row] += size * towards


def work(made: Made, rng: np.random.Generator, counts: Counter[tuple[str, str, int]]) -> None:
    """One step with answers that are right, or of which one or two are wrong."""
    answers, scale = made.answers(rng)
    machines, recovery = made.code.machines, made.code.recovery
    wrong = int(rng.integers(3))
    more = int(rng.integers(1, min(4, machines - recovery) + 1))
    chosen = sorted((rng.choice(machines, recovery + more, replace=False) + 1).tolist())
    guilty = rng.choice(chosen, wrong, replace=False).tolist()
    checker, seen_from = made.coded.checker, made.coded.seen_from * scale
    factors = 10 ** (rng.uniform(-1, 7) + rng.uniform(-1, 1, wrong))
    rows = spoiled(rng)
    alike = wrong == 2 and more > 1 and rng.random() < 0.5
    if alike:
        third = int(rng.choice([n for n in chosen if n not in guilty]))
        conspire(rng, answers, guilty, third, checker.checks(tuple(chosen)), chosen)
    for n, factor in zip(guilty, [] if alike else factors.tolist(), strict=not alike):
        errors = factor * seen_from * 10 ** (rng.random(rows.size) * rng.integers(2))
        answers[n - 1, rows] += errors * rng.choice([-1.0, 1.0], rows.size)
        if rng.random() < 0.2:  # the next one in other rows
            rows = spoiled(rng)
    given = answers[np.array(chosen) - 1]
    alarm = checker.disagree(chosen, given, scale)
    named: tuple[int, ...] = ()
    if alarm and more > 1:
        named = checker.find_wrong(chosen, given, scale).wrong

    def count(what: str) -> None:
        counts["two alike" if alike else ("clean", "one", "two")[wrong], what, more] += 1

    count("cases")
    if set(named) - set(guilty):
        count("innocent named")
    if not wrong:
        if alarm:
            count("alarms")
        return
    if not alike and min(factors) > 1:
        count("above")
        if not alarm:
            count("above, missed")
        if not named:
            count("above, nobody named")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=100.0)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    counts: Counter[tuple[str, str, int]] = Counter()
    codes = [
        coded
        for (machines, recovery), family, dtype in product(CODES, FAMILIES, DTYPES)
        if np.isfinite((coded := Coded(machines, recovery, family, dtype)).seen_from)
    ]
    end = time.monotonic() + arguments.seconds
    while time.monotonic() < end:
        made = Made(codes[rng.integers(len(codes))], rng)
        for _ in range(MADE):
            work(made, rng, counts)
    print(f"{'':28}{'L + 1':>9}{'L + 2':>9}{'L + 3':>9}{'L + 4':>9}")
    for kind in ("clean", "one", "two", "two alike"):
        for what in sorted({each[1] for each in counts if each[0] == kind}):
            row = "".join(f"{counts[kind, what, more]:9d}" for more in range(1, 5))
            print(f"{kind + ': ' + what:28}{row}")
    bad = sum(
        count
        for (kind, what, more), count in counts.items()
        if what in ("alarms", "innocent named")
        or (kind == "one" and what == "above, missed")
        or (kind == "one" and what == "above, nobody named" and more > 2)
    )
    print(f"{bad} that may not be")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
