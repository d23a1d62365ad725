"""Random wrong answers: whether results are right, and whether correct machines are excluded.

    python scripts/campaigns/wrong_answers.py [--seed I] [--honest 10000] [--one 2000] [--two 2000]

Runs elastic steps with ``check=True`` on machines in this process, with random stores: codes of
several sizes and copies of sparse rows, float32 and float64, some with repaired shards. In a
quarter of the products terms cancel: X w with w in the null space of X, and X' v with residuals of
least squares. ``--honest`` steps have right answers. ``--one`` and ``--two`` attacks change the
answers of one machine or of two: by factors, zeros, swapped rows, single entries and noise of any
size, NaN, 1e300, flipped bits and answers to an earlier vector; two machines usually in the
same way. The table counts

- `correct excluded`: excluded machines whose answers were right; this must be 0
- `wrong`: results with an error above the bound on undetected errors. For X w the bound is that of
  decoding from L answers with the errors of `answer_error_bound`, one of them with the largest
  undetected error; for X' v it is the sum of the bounds for all terms and the largest undetected
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
from cec_mpi.core.checks.parity import make_checker
from cec_mpi.core.checks.sensitivity import measure_sensitivity
from cec_mpi.core.checks.terms import TermChecker
from cec_mpi.errors import InfeasibleError, InputError, MachineError
from cec_mpi.store.reader import open_store
from helpers.elastic import open_master
from helpers.recording import MemoryRecorder

Floats = NDArray[np.float64]
Attack = Callable[[Any, Floats], Floats]

STORES = (
    *(("fourier", *size) for size in ((4, 1), (6, 3), (7, 4), (9, 5))),
    *(("orthonormal", *size) for size in ((6, 3), (9, 5), (12, 8), (13, 10))),
    ("copies", 6, 4),
)
ROWS, COLUMNS = 120, 40
STEPS, SEED = 50, 0  # number of steps with each store; seed of masters


class RandomStore:
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
                encode(self.X, path, machines, size, code=code, dtype=self.dtype)
        self.is_repaired = bool(rng.random() < 0.3) and not self.is_sparse
        if self.is_repaired:
            for n in rng.choice(machines, min(2, machines - size), replace=False) + 1:
                (path / f"shard-{n:04d}.npy").unlink()
            repair(path)
        opened = open_store(path)
        self.manifest, scaling = opened.manifest, opened.scaling()
        self.code = self.manifest.code
        self.largest = scaling.column_maxima
        self.row_exponents = np.zeros(ROWS, int)
        if scaling.exponents is not None:
            self.row_exponents = scaling.exponents.reshape(-1)[:ROWS].astype(int)
        arithmetic = self.dtype if self.precision == "shard" else "float64"
        self.arithmetic = arithmetic
        generator, shard_errors = self.code.generator, self.manifest.shard_errors
        self.errors = answer_error_bound(generator, arithmetic, COLUMNS, shard_errors)
        self.checker = make_checker(generator, arithmetic, COLUMNS, shard_errors)
        self.undetected = measure_sensitivity(self.checker, self.code.machines).error
        self.sizes = np.abs(generator).sum(axis=1) + shard_errors
        seeded = np.random.default_rng(SEED)  # like that of the master
        self.terms = TermChecker(self.sizes, self.largest, arithmetic, seeded)

    def open(self) -> tuple[Any, Any, MemoryRecorder]:
        """Return a master with machines in this process, its hub and recorder."""
        recorder = MemoryRecorder()
        options = {"check": True, "precision": self.precision, "seed": SEED}
        return *open_master(self.path, self.manifest, recorder, **options), recorder

    def random_vectors(self, rng: np.random.Generator, adjoint: bool) -> Floats:
        """Return W or V; in a quarter of all cases, terms of the product cancel."""
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
        """Return error bounds for X W: of rounding alone, and including undetected errors."""
        W = W.astype(self.arithmetic).astype(float)
        scale = np.ldexp(self.largest @ np.abs(W), self.row_exponents[:, None])
        least = np.linalg.norm(self.code.generator, axis=1).min()
        gain = condition / least * 1.01
        rounding = gain * np.sqrt(self.code.recovery) * self.errors.max()
        return rounding * scale, (rounding + gain * self.undetected) * scale

    def adjoint_bounds(
        self, coefficient_sums: Floats, exponents: Any, condition: float
    ) -> tuple[Floats, Floats]:
        """Return error bounds for X' V from sums of absolute coefficients, (N, k)."""
        eps, arithmetic = np.finfo(float).eps, self.arithmetic
        per_row = summation_error_bound(ROWS, arithmetic) + np.finfo(arithmetic).eps
        per_machine = self.sizes * (per_row + 20 * condition * self.code.recovery * eps)
        total = (per_machine + self.manifest.shard_errors) @ coefficient_sums
        rounding = np.outer(self.largest, total)
        tolerances = [
            self.terms.tolerances(n, ROWS, sums) for n, sums in enumerate(coefficient_sums, start=1)
        ]
        undetected = 2 * np.max(tolerances, axis=0) / np.abs(self.terms.probe.T.astype(float))
        return np.ldexp(rounding, exponents), np.ldexp(rounding + undetected, exponents)


def term_scale(store: RandomStore, job: Any) -> Floats:
    """Return the sum of the absolute terms for each column of W, as sent."""
    scale: Floats = np.abs(job.operand.astype(float)) @ store.largest
    return np.where(scale > 0, scale, 1.0)


def random_entry(values: Floats, rng: np.random.Generator) -> NDArray[np.bool_]:
    return np.arange(values.size) == rng.integers(values.size)


def random_attack(
    store: RandomStore, faulty: list[int], rng: np.random.Generator
) -> tuple[str, Attack]:
    """Return the kind of an attack, and a function that changes answers in this way."""
    kinds = ("factor", "zero", "swap", "entry", "all", "near", "not finite", "huge", "bit", "stale")
    kind = str(rng.choice(kinds if len(faulty) == 1 else (*kinds, "equal", "equal", "opposite")))
    exponent, seed = rng.uniform(-17, 3), int(rng.integers(1 << 30))
    not_finite = float(rng.choice([np.nan, np.inf, -np.inf]))
    sign = float(rng.choice([-1, 1]))
    previous: dict[int, Floats] = {}
    factor = float(rng.choice([1.5, 0.0, -1.0, 1 + 10.0**exponent]))
    unchanged = int(rng.integers(4))  # 1: answers to X' V; 2: answers to X W

    def spoil(job: Any, values: Floats) -> Floats:
        if (
            job.machine not in faulty
            or (unchanged == 1 and job.product.adjoint)
            or (unchanged == 2 and not job.product.adjoint)
        ):
            return values
        shared_rng = np.random.default_rng(seed)  # the same for all machines
        terms = values if job.product.adjoint else term_scale(store, job)
        size = float(np.abs(terms).max()) or 1.0
        result = values.astype(float)
        stale = previous.get(values.size)
        previous[values.size] = result.copy()
        with np.errstate(all="ignore"):
            if kind == "factor":
                result *= factor
            elif kind == "zero":
                result[:] = 0
            elif kind == "swap":
                result = result[::-1].copy()
            elif kind == "entry":
                result[random_entry(result, shared_rng)] += sign * size * 10.0**exponent
            elif kind == "all":
                result += size * 10.0**exponent * shared_rng.standard_normal(result.size)
            elif kind == "near":
                result += sign * size * store.undetected * 10.0 ** shared_rng.uniform(-1.5, 0.5)
            elif kind == "not finite":
                result[random_entry(result, shared_rng)] = not_finite
            elif kind == "huge":
                result[random_entry(result, shared_rng)] = sign * 1e300
            elif kind == "bit":
                where = random_entry(result, shared_rng)
                bit = np.uint64(1) << np.uint64(shared_rng.integers(20, 63))
                result[where] = (result[where].view(np.uint64) ^ bit).view(float)
            elif kind == "stale" and stale is not None:
                result = stale
            elif kind in ("equal", "opposite") and not job.product.adjoint:
                k, at = job.product.columns, 0
                errors = size * 10.0 ** (exponent / 4) * shared_rng.standard_normal(ROWS)
                errors *= sign if kind == "opposite" and job.machine == faulty[0] else 1.0
                for start, stop in job.intervals:
                    number = (stop - start) * k
                    result[at : at + number] += np.repeat(errors[start:stop], k)
                    at += number
            elif kind in ("equal", "opposite"):
                result[random_entry(result, shared_rng)] += sign * size * 10.0 ** (exponent / 4)
        return result

    return kind, spoil


class Campaign:
    """Runs of steps, and counts of their outcomes."""

    def __init__(self, rng: np.random.Generator, end: float) -> None:
        self.rng, self._end = rng, end
        self.counts: Counter[tuple[str, str]] = Counter()
        self.largest: dict[str, float] = {}

    def run_step(
        self,
        store: RandomStore,
        opened: tuple[Any, Any, MemoryRecorder],
        label: str,
        faulty: list[int],
    ) -> bool:
        """Run one product; return whether the master can run others."""
        master, hub, recorder = opened
        rng = self.rng
        adjoint = bool(rng.random() < 0.35)
        V = store.random_vectors(rng, adjoint)
        coefficient_sums = np.zeros((store.code.machines, V.shape[1]))
        send_jobs = type(hub).send_jobs

        def send_and_measure(rank: int, jobs: tuple[Any, ...]) -> None:
            for job in jobs:
                if job.product.adjoint:
                    coefficient_sums[job.machine - 1] += np.abs(
                        np.asarray(job.operand, dtype=float).reshape(-1, V.shape[1])
                    ).sum(axis=0)
            send_jobs(hub, rank, jobs)

        hub.send_jobs = send_and_measure
        before = len(recorder.all_events)
        self.counts[label, "steps"] += 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = master.rmatmat(V) if adjoint else master.matmat(V)
        except MachineError as error:
            if "too large for float64" in str(error):
                self.counts[label, "wrong"] += 1
                print(label, "not finite", error)
            self.counts[label, "refused"] += 1
            self._count_excluded(label, faulty, recorder, before)
            return False
        except InfeasibleError:
            self.counts[label, "too few"] += 1
            self._count_excluded(label, faulty, recorder, before)
            return False
        self._count_excluded(label, faulty, recorder, before)
        exact = (store.X.T if adjoint else store.X).astype(np.longdouble) @ V.astype(np.longdouble)
        condition = recorder.records[-1].condition_number
        if adjoint:
            exponents, _ = master.scaler.prepare_adjoint(V, np.empty(V.shape))
            bounds = store.adjoint_bounds(coefficient_sums, exponents, condition)
        else:
            bounds = store.forward_bounds(V, condition)
        tiny = np.finfo(store.arithmetic).tiny * 1e6 * max(1.0, float(np.abs(V).max()))
        error = np.abs(result - exact).astype(float)
        name = f"{label}, X' V" if adjoint else f"{label}, X W"
        with np.errstate(all="ignore"):
            ratio = float((error / (bounds[1] + tiny)).max())
        self.largest[name] = max(self.largest.get(name, 0.0), ratio)
        if (error > bounds[0] + tiny).any():
            self.counts[label, "beyond rounding"] += 1
        if ratio > 1:
            self.counts[label, f"wrong{' adjoint' if adjoint else ''}"] += 1
            if not adjoint and len(faulty) == 2 and self._errors_cancel(store, hub, faulty):
                self.counts[label, "cancel"] += 1
            elif len(faulty) < 2 or not adjoint:
                print(f"{label}: error {ratio:.2g} of its bound, {store.code}, machines {faulty}")
        return True

    def _count_excluded(
        self, label: str, faulty: list[int], recorder: MemoryRecorder, before: int
    ) -> None:
        for event in recorder.all_events[before:]:
            if "wrong" in event:
                is_faulty = event["wrong"] in faulty
                self.counts[label, "faulty excluded" if is_faulty else "correct excluded"] += 1
                if not is_faulty:
                    print(label, event, faulty)

    def _errors_cancel(self, store: RandomStore, hub: Any, faulty: list[int]) -> bool:
        """Return whether the errors of both machines cancel in a row, in some L + 1 answers."""
        errors = [hub.injected_errors.get(n, {}) for n in faulty]
        entries = [entry for entry in errors[0] if entry in errors[1]]
        values = np.array([[injected[entry] for entry in entries] for injected in errors])
        all_machines = range(1, store.code.machines + 1)
        for machines in combinations(all_machines, store.code.recovery + 1):
            if entries and set(faulty) <= set(machines):
                checks, tolerances = store.checker.checks(machines)
                residuals = checks[0, [machines.index(n) for n in faulty]] @ values
                largest = np.abs(values).max(axis=0)
                limit = 2 * tolerances[0, 0] + 1e-12 * largest
                if ((np.abs(residuals) <= limit) & (largest > 2 * tolerances[0, 0])).any():
                    return True
        return False

    def run_honest(self, path: Path, steps: int) -> None:
        """Run steps in which all answers are right."""
        number = 0
        while self.counts["honest", "steps"] < steps and time.monotonic() < self._end:
            number += 1
            store = RandomStore(path / f"honest-{number}", self.rng)
            try:
                opened = store.open()
            except InputError:
                self.counts["honest", "stores refused"] += 1
                continue
            self.counts["honest", "stores"] += 1
            self.counts["honest", "stores repaired"] += store.is_repaired
            for _ in range(STEPS):
                if not self.run_step(store, opened, "honest", []):
                    break

    def run_attacks(self, path: Path, label: str, count: int, machines: int) -> None:
        """Run steps in which the answers of one machine or two are wrong."""
        number = 0
        while self.counts[label, "attacks"] < count and time.monotonic() < self._end:
            number += 1
            store = RandomStore(path / f"{label}-{number}", self.rng)
            for _ in range(20):
                try:
                    opened = store.open()
                except InputError:
                    self.counts[label, "stores refused"] += 1
                    break
                self.counts[label, "attacks"] += 1
                all_machines = np.arange(1, store.code.machines + 1)
                faulty = self.rng.choice(all_machines, machines, replace=False).tolist()
                hub = opened[1]
                hub.injected_errors = {}
                kind, spoil = random_attack(store, faulty, self.rng)

                def spoil_and_record(
                    job: Any,
                    values: Floats,
                    hub: Any = hub,
                    spoil: Attack = spoil,
                    store: RandomStore = store,
                ) -> Any:
                    result = spoil(job, values)
                    if result is not values and not job.product.adjoint:
                        k = job.product.columns
                        rows = np.concatenate([np.arange(a, b) for a, b in job.intervals])
                        wrong = (result - values).reshape(-1, k) / term_scale(store, job)
                        injected = hub.injected_errors.setdefault(job.machine, {})
                        for i, j in zip(*np.nonzero(wrong), strict=True):
                            injected[int(rows[i]), int(j)] = float(wrong[i, j])
                    return result

                hub.corrupt = spoil_and_record
                for _ in range(2):
                    hub.injected_errors.clear()
                    name = f"{label} {kind}" if machines == 2 else label
                    self.counts[name, kind] += 1
                    if not self.run_step(store, opened, name, faulty):
                        break


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--honest", type=int, default=10_000)
    parser.add_argument("--one", type=int, default=2_000)
    parser.add_argument("--two", type=int, default=2_000)
    parser.add_argument(
        "--seconds", type=float, default=7200, help="start no store after this time"
    )
    arguments = parser.parse_args()
    begin = time.monotonic()
    campaign = Campaign(np.random.default_rng(arguments.seed), begin + arguments.seconds)
    with tempfile.TemporaryDirectory() as directory:
        campaign.run_honest(Path(directory), arguments.honest)
        campaign.run_attacks(Path(directory), "one", arguments.one, 1)
        campaign.run_attacks(Path(directory), "two", arguments.two, 2)
    for (label, outcome), count in sorted(campaign.counts.items()):
        print(f"{label:14} {outcome:18} {count:7d}")
    for name, ratio in sorted(campaign.largest.items()):
        print(f"{name:20} largest error {ratio:.2g} of its bound")
    print(f"{time.monotonic() - begin:.0f} s")
    counts = campaign.counts
    forbidden = sum(n for (_, outcome), n in counts.items() if outcome == "correct excluded")
    forbidden += sum(counts["honest", outcome] for outcome in ("refused", "wrong", "wrong adjoint"))
    forbidden += counts["one", "wrong"]
    print(f"{forbidden} forbidden outcomes")
    return 1 if forbidden else 0


if __name__ == "__main__":
    raise SystemExit(main())
