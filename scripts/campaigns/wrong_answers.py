"""Wrong answers at random: whether results are right, and whether an innocent machine is named.

    python scripts/campaigns/wrong_answers.py [--seed I] [--honest 10000] [--one 2000] [--two 2000]

Runs elastic steps with ``check=True`` on machines in this process, with random stores: codes of
several sizes and copies of sparse rows, float32 and float64, some with repaired shards. A quarter
of the products cancels: X w with w in the null space of X, and X' v with residuals of least
squares.
``--honest`` steps have right answers. Each of ``--one`` and ``--two`` attacks spoils the answers of
one machine or of two: by factors, zeros, swapped rows, single entries and noise of any size, NaN,
1e300, flipped bits and answers to an earlier vector; two machines mostly alike. The table counts

- `innocent named`: machines that are excluded and did answer rightly, which may not be
- `wrong`: results with an error above the bound of undetected errors. For X w the bound is that of
  decoding from L answers with the errors of `answer_error_bound`, one of them with the largest
  undetected error; for X' v it is the sum of the bounds of all terms and the largest undetected
  error of one entry. With one wrong machine the count must be 0, unless errors in several entries
  of a term cancel by chance
- `beyond rounding`: results with a larger error than the first part of this bound
- `cancel`: wrong results in which the errors of two machines cancel in some L + 1 answers
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).parents[2] / "tests"))

from cec_mpi import encode, repair
from cec_mpi.core.accuracy.rounding import answer_error_bound, summation_error_bound
from cec_mpi.core.checks.parity import answer_checker
from cec_mpi.core.checks.sensitivity import measure_sensitivity
from cec_mpi.core.checks.terms import TermChecker
from cec_mpi.errors import InfeasibleError, InputError, MachineError
from cec_mpi.store.reader import open_store
from helpers.elastic import master_of
from helpers.recording import MemoryRecorder

Floats = NDArray[np.float64]
Spoils = Callable[[Any, Floats], Floats]

STORES = (
    *(("fourier", *size) for size in ((4, 1), (6, 3), (7, 4), (9, 5))),
    *(("orthonormal", *size) for size in ((6, 3), (9, 5), (12, 8), (13, 10))),
    ("copies", 6, 4),
)
ROWS, COLUMNS = 120, 40
STEPS, SEED = 50, 0  # with one store; of a master


class World:
    """A random X and its store."""

    def __init__(self, path: Path, rng: np.random.Generator) -> None:
        code, machines, size = STORES[rng.integers(len(STORES))]
        self.path, self.is_sparse = path, code == "copies"
        self.dtype = str(rng.choice(["float32", "float64"]))
        self.precision = str(rng.choice(["double", "shard"]))
        X = rng.standard_normal((ROWS, COLUMNS)) * 10.0 ** rng.integers(-3, 4, COLUMNS)
        if rng.random() < 0.3:
            X = 1 + 10.0 ** -rng.integers(1, 7) * X
        if self.is_sparse:
            X *= rng.random(X.shape) < 0.2
        X[:, -1] = X[:, :-1].sum(axis=1)  # so that products with `null` cancel
        self.X = X.astype(self.dtype)
        self.null = np.where(np.arange(COLUMNS) == COLUMNS - 1, -1.0, 1.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if self.is_sparse:
                encode(sp.csr_array(self.X), path, machines, copies=size, dtype=self.dtype)
            else:
                given = {"code": code, "dtype": self.dtype}
                encode(self.X, path, machines, size, **given)
        self.is_repaired = bool(rng.random() < 0.3) and not self.is_sparse
        if self.is_repaired:
            for n in rng.choice(machines, min(2, machines - size), replace=False) + 1:
                (path / f"shard-{n:04d}.npy").unlink()
            repair(path)
        store = open_store(path)
        self.manifest, scaling = store.manifest, store.scaling()
        self.code = self.manifest.code
        self.largest = scaling.column_sizes
        self.rows = np.zeros(ROWS, int)
        if scaling.exponents is not None:
            self.rows = scaling.exponents.reshape(-1)[:ROWS].astype(int)
        arithmetic = self.dtype if self.precision == "shard" else "float64"
        self.arithmetic = arithmetic
        generator, given_errors = self.code.generator, self.manifest.shard_errors
        self.errors = answer_error_bound(generator, arithmetic, arithmetic, COLUMNS, given_errors)
        self.checker = answer_checker(generator, arithmetic, COLUMNS, given_errors)
        self.unseen = measure_sensitivity(self.checker, self.code.machines).error
        self.sizes = np.abs(generator).sum(axis=1) + given_errors
        seeded = np.random.default_rng(SEED)  # as the master makes it
        self.terms = TermChecker(self.sizes, self.largest, arithmetic, seeded)

    def open(self) -> tuple[Any, Any, MemoryRecorder]:
        """A master with machines in this process."""
        recorder = MemoryRecorder()
        given = {"check": True, "precision": self.precision, "seed": SEED}
        return *master_of(self.path, self.manifest, recorder, **given), recorder

    def vectors(self, rng: np.random.Generator, adjoint: bool) -> Floats:
        """W or V; a quarter of them makes the terms cancel."""
        k = int(rng.choice([1, 1, 3]))
        length = ROWS if adjoint else COLUMNS
        block = rng.standard_normal((length, k)) * 10.0 ** rng.integers(-5, 6)
        if rng.random() < 0.25:
            if not adjoint:
                return np.outer(self.null, block[0])
            X = self.X.astype(float)
            block -= X @ np.linalg.lstsq(X, block)[0]
        return block

    def forward_bounds(self, W: Floats, condition: float) -> tuple[Floats, Floats]:
        """Error bounds of X W: from rounding, and with an error that the check can miss."""
        W = W.astype(self.arithmetic).astype(float)
        scale = np.ldexp(self.largest @ np.abs(W), self.rows[:, None])
        least = np.linalg.norm(self.code.generator, axis=1).min()
        gain = condition / least * 1.01
        rounding = gain * np.sqrt(self.code.recovery) * self.errors.max()
        return rounding * scale, (rounding + gain * self.unseen) * scale

    def adjoint_bounds(
        self, lengths: Floats, exponents: Any, condition: float
    ) -> tuple[Floats, Floats]:
        """Error bounds of X' V; `lengths` are sums of absolute coefficients, (N, k)."""
        eps, arithmetic = np.finfo(float).eps, self.arithmetic
        per_row = summation_error_bound(ROWS, arithmetic) + np.finfo(arithmetic).eps
        own = self.sizes * (per_row + 20 * condition * self.code.recovery * eps)
        total = (own + self.manifest.shard_errors) @ lengths
        rounding = np.outer(self.largest, total)
        misses = [self.terms.limits(n, ROWS, each) for n, each in enumerate(lengths, start=1)]
        missed = 2 * np.max(misses, axis=0) / np.abs(self.terms.probe.T.astype(float))
        return np.ldexp(rounding, exponents), np.ldexp(rounding + missed, exponents)


def scale_of(world: World, job: Any) -> Floats:
    """S of each column of W as it was sent."""
    scale: Floats = np.abs(job.content.astype(float)) @ world.largest
    return np.where(scale > 0, scale, 1.0)


def one_entry(values: Floats, rng: np.random.Generator) -> NDArray[np.bool_]:
    return np.arange(values.size) == rng.integers(values.size)


def attack(world: World, guilty: list[int], rng: np.random.Generator) -> tuple[str, Spoils]:
    """A way to spoil answers; two machines spoil theirs alike."""
    kinds = ("factor", "zero", "swap", "entry", "all", "near", "odd", "huge", "bit", "stale")
    kind = str(rng.choice(kinds if len(guilty) == 1 else (*kinds, "equal", "equal", "opposite")))
    exponent, seed = rng.uniform(-17, 3), int(rng.integers(1 << 30))
    odd = float(rng.choice([np.nan, np.inf, -np.inf]))
    sign = float(rng.choice([-1, 1]))
    before: dict[int, Floats] = {}
    factor = float(rng.choice([1.5, 0.0, -1.0, 1 + 10.0**exponent]))
    only = int(rng.integers(4))  # whether X W, X' V or both are wrong

    def spoil(job: Any, values: Floats) -> Floats:
        if (
            job.machine not in guilty
            or (only == 1 and job.product.adjoint)
            or (only == 2 and not job.product.adjoint)
        ):
            return values
        same = np.random.default_rng(seed)  # alike in all machines
        terms = values if job.product.adjoint else scale_of(world, job)
        size = float(np.abs(terms).max()) or 1.0
        found = values.astype(float)
        stale = before.get(values.size)
        before[values.size] = found.copy()
        with np.errstate(all="ignore"):
            if kind == "factor":
                found *= factor
            elif kind == "zero":
                found[:] = 0
            elif kind == "swap":
                found = found[::-1].copy()
            elif kind == "entry":
                found[one_entry(found, same)] += sign * size * 10.0**exponent
            elif kind == "all":
                found += size * 10.0**exponent * same.standard_normal(found.size)
            elif kind == "near":
                found += sign * size * world.unseen * 10.0 ** same.uniform(-1.5, 0.5)
            elif kind == "odd":
                found[one_entry(found, same)] = odd
            elif kind == "huge":
                found[one_entry(found, same)] = sign * 1e300
            elif kind == "bit":
                where = one_entry(found, same)
                bit = np.uint64(1) << np.uint64(same.integers(20, 63))
                found[where] = (found[where].view(np.uint64) ^ bit).view(float)
            elif kind == "stale" and stale is not None:
                found = stale
            elif kind in ("equal", "opposite") and not job.product.adjoint:
                k, at = job.product.columns, 0
                errors = size * 10.0 ** (exponent / 4) * same.standard_normal(ROWS)
                errors *= sign if kind == "opposite" and job.machine == guilty[0] else 1.0
                for start, stop in job.intervals:
                    number = (stop - start) * k
                    found[at : at + number] += np.repeat(errors[start:stop], k)
                    at += number
            elif kind in ("equal", "opposite"):
                found[one_entry(found, same)] += sign * size * 10.0 ** (exponent / 4)
        return found

    return kind, spoil


class Campaign:
    """Counts what happens."""

    def __init__(self, rng: np.random.Generator, end: float) -> None:
        self.rng, self._end = rng, end
        self.counts: Counter[tuple[str, str]] = Counter()
        self.largest: dict[str, float] = {}

    def step(
        self, world: World, opened: tuple[Any, Any, MemoryRecorder], row: str, guilty: list[int]
    ) -> bool:
        """One product; whether others may follow."""
        master, hub, recorder = opened
        rng = self.rng
        adjoint = bool(rng.random() < 0.35)
        V = world.vectors(rng, adjoint)
        lengths = np.zeros((world.code.machines, V.shape[1]))
        send_jobs = type(hub).send_jobs

        def send_and_measure(rank: int, jobs: tuple[Any, ...]) -> None:
            for job in jobs:
                if job.product.adjoint:
                    lengths[job.machine - 1] += np.abs(
                        np.asarray(job.content, dtype=float).reshape(-1, V.shape[1])
                    ).sum(axis=0)
            send_jobs(hub, rank, jobs)

        hub.send_jobs = send_and_measure
        before = len(recorder.all_events)
        self.counts[row, "steps"] += 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = master.rmatmat(V) if adjoint else master.matmat(V)
        except MachineError as error:
            if "too large for float64" in str(error):
                self.counts[row, "wrong"] += 1
                print(row, "not finite", error)
            self.counts[row, "refused"] += 1
            self._count_named(row, guilty, recorder, before)
            return False
        except InfeasibleError:
            self.counts[row, "too few"] += 1
            self._count_named(row, guilty, recorder, before)
            return False
        self._count_named(row, guilty, recorder, before)
        exact = (world.X.T if adjoint else world.X).astype(np.longdouble) @ V.astype(np.longdouble)
        condition = recorder.records[-1].condition
        if adjoint:
            exponents, _ = master.scales.prepare_adjoint(V, np.empty(V.shape))
            bounds = world.adjoint_bounds(lengths, exponents, condition)
        else:
            bounds = world.forward_bounds(V, condition)
        tiny = np.finfo(world.arithmetic).tiny * 1e6 * max(1.0, float(np.abs(V).max()))
        error = np.abs(found - exact).astype(float)
        name = f"{row}, X' V" if adjoint else f"{row}, X W"
        with np.errstate(all="ignore"):
            ratio = float((error / (bounds[1] + tiny)).max())
        self.largest[name] = max(self.largest.get(name, 0.0), ratio)
        if (error > bounds[0] + tiny).any():
            self.counts[row, "beyond rounding"] += 1
        if ratio > 1:
            self.counts[row, f"wrong{' adjoint' if adjoint else ''}"] += 1
            if not adjoint and len(guilty) == 2 and self._cancels(world, hub, guilty):
                self.counts[row, "cancel"] += 1
            elif len(guilty) < 2 or not adjoint:
                print(f"{row}: error {ratio:.2g} of its bound, {world.code}, machines {guilty}")
        return True

    def _count_named(
        self, row: str, guilty: list[int], recorder: MemoryRecorder, before: int
    ) -> None:
        for event in recorder.all_events[before:]:
            if "wrong" in event:
                named = "named" if event["wrong"] in guilty else "innocent named"
                self.counts[row, named] += 1
                if named == "innocent named":
                    print(row, event, guilty)

    def _cancels(self, world: World, hub: Any, guilty: list[int]) -> bool:
        """Whether errors of both machines cancel in some L + 1 answers, in some row."""
        errors = [hub.last_errors.get(n, {}) for n in guilty]
        rows = [place for place in errors[0] if place in errors[1]]
        given = np.array([[each[place] for place in rows] for each in errors])
        everybody = range(1, world.code.machines + 1)
        for some in combinations(everybody, world.code.recovery + 1):
            if rows and set(guilty) <= set(some):
                checks, tolerances = world.checker.checks(some)
                left = checks[0, [some.index(n) for n in guilty]] @ given
                largest = np.abs(given).max(axis=0)
                limit = 2 * tolerances[0, 0] + 1e-12 * largest
                if ((np.abs(left) <= limit) & (largest > 2 * tolerances[0, 0])).any():
                    return True
        return False

    def honest(self, path: Path, steps: int) -> None:
        """Steps with right answers."""
        number = 0
        while self.counts["honest", "steps"] < steps and time.monotonic() < self._end:
            number += 1
            world = World(path / f"honest-{number}", self.rng)
            try:
                opened = world.open()
            except InputError:
                self.counts["honest", "stores refused"] += 1
                continue
            self.counts["honest", "stores"] += 1
            self.counts["honest", "stores repaired"] += world.is_repaired
            for _ in range(STEPS):
                if not self.step(world, opened, "honest", []):
                    break

    def attacks(self, path: Path, row: str, count: int, machines: int) -> None:
        """Steps in which one machine or two are wrong."""
        number = 0
        while self.counts[row, "attacks"] < count and time.monotonic() < self._end:
            number += 1
            world = World(path / f"{row}-{number}", self.rng)
            for _ in range(20):
                try:
                    opened = world.open()
                except InputError:
                    self.counts[row, "stores refused"] += 1
                    break
                self.counts[row, "attacks"] += 1
                everybody = np.arange(1, world.code.machines + 1)
                guilty = self.rng.choice(everybody, machines, replace=False).tolist()
                hub = opened[1]
                hub.last_errors = {}
                kind, spoil = attack(world, guilty, self.rng)

                def spoils(
                    job: Any,
                    values: Floats,
                    hub: Any = hub,
                    spoil: Spoils = spoil,
                    world: World = world,
                ) -> Any:
                    found = spoil(job, values)
                    if found is not values and not job.product.adjoint:
                        k = job.product.columns
                        rows = np.concatenate([np.arange(a, b) for a, b in job.intervals])
                        wrong = (found - values).reshape(-1, k) / scale_of(world, job)
                        kept = hub.last_errors.setdefault(job.machine, {})
                        for i, j in zip(*np.nonzero(wrong), strict=True):
                            kept[int(rows[i]), int(j)] = float(wrong[i, j])
                    return found

                hub.spoils = spoils
                for _ in range(2):
                    hub.last_errors.clear()
                    name = f"{row} {kind}" if machines == 2 else row
                    self.counts[name, kind] += 1
                    if not self.step(world, opened, name, guilty):
                        break


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--honest", type=int, default=10_000)
    parser.add_argument("--one", type=int, default=2_000)
    parser.add_argument("--two", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=7200, help="after which no store is made")
    arguments = parser.parse_args()
    begin = time.monotonic()
    campaign = Campaign(np.random.default_rng(arguments.seed), begin + arguments.seconds)
    with tempfile.TemporaryDirectory() as directory:
        campaign.honest(Path(directory), arguments.honest)
        campaign.attacks(Path(directory), "one", arguments.one, 1)
        campaign.attacks(Path(directory), "two", arguments.two, 2)
    for (row, what), count in sorted(campaign.counts.items()):
        print(f"{row:12} {what:18} {count:7d}")
    for name, ratio in sorted(campaign.largest.items()):
        print(f"{name:20} largest error {ratio:.2g} of its bound")
    print(f"{time.monotonic() - begin:.0f} s")
    counts = campaign.counts
    bad = sum(n for (_, what), n in counts.items() if what == "innocent named")
    bad += (
        counts["honest", "refused"] + counts["honest", "wrong"] + counts["honest", "wrong adjoint"]
    )
    bad += counts["one", "wrong"]
    print(f"{bad} that may not be")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
