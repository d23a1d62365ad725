"""Machines that join and send wrong messages: no wrong result with --check, and no step hangs.

    python scripts/campaigns/byzantine.py [--seed I] [--faults 150] [--limit 60]

Five correct machines serve an operator, and faulty machines join one after the other as the sixth:
with wrong rows, lengths, machines, times and sizes, NaN, answers to other steps, floods and huge
frames. Products X w and X'v are computed until each faulty machine has answered some jobs. Prints
each fault after which a result is wrong although answers are compared, or a step takes longer than
``--limit`` seconds, and then the totals.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "tests"))

import cec_mpi
from cec_mpi.errors import CecError
from helpers.byzantine import FALSE_ANSWERS, ByzantineMachine

MACHINES, RECOVERY = 6, 2
MIN_JOBS, MAX_SECONDS = 4, 3.0  # for each faulty machine


def main() -> int:
    """Run the campaign; return 1 if a result is wrong or a step hangs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=150)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--seconds", type=float, default=3600, help="start no test after this time")
    options = parser.parse_args()
    deadline = time.monotonic() + options.seconds
    warnings.simplefilter("ignore")
    random = np.random.default_rng(options.seed)
    X = random.standard_normal((240, 40))
    totals: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory, "store")
        cec_mpi.encode(X, store, MACHINES, RECOVERY)
        for check in (True, False):
            _test_all(X, store, check, options, deadline, totals, random)
    print(", ".join(f"{name} {count}" for name, count in sorted(totals.items())))
    return int(bool(totals["wrong"] or totals["late"] or totals["failed with --check"]))


def _test_all(
    X: Any,
    store: Path,
    check: bool,
    options: argparse.Namespace,
    deadline: float,
    totals: Counter[str],
    random: np.random.Generator,
) -> None:
    """Let `options.faults` faulty machines join operators, one after the other."""
    file = store.with_name(f"file-{check}")
    run_options = {"local": MACHINES - 1, "accept": str(file), "threads": 1, "deadline": "1"}
    run_options["speeds"] = (1.0,) * MACHINES  # faulty machines get jobs, whatever they report
    count = 0
    while count < options.faults and time.monotonic() < deadline:
        with cec_mpi.open_operator(store, check=check, **run_options) as operator:
            while count < options.faults and time.monotonic() < deadline:
                fault = FALSE_ANSWERS[count % len(FALSE_ANSWERS)]
                count += 1
                totals["faults"] += 1
                try:
                    machine = ByzantineMachine(file, store, fault, random.spawn(1)[0])
                    name = fault.__name__
                    _test_one(X, machine, name, operator, check, options.limit, totals, random)
                except CecError as error:
                    totals["failed with --check" if check else "failed without --check"] += 1
                    print(f"{fault.__name__}, check={check}: {error}", flush=True)
                    break
                totals["with jobs" if machine.jobs else "without jobs"] += 1


def _test_one(
    X: Any,
    machine: ByzantineMachine,
    name: str,
    operator: Any,
    check: bool,
    limit: float,
    totals: Counter[str],
    random: np.random.Generator,
) -> None:
    """Compute products with one faulty machine, and check them."""
    machine.start()
    deadline = time.monotonic() + MAX_SECONDS
    try:
        while machine.is_alive() and machine.jobs < MIN_JOBS and time.monotonic() < deadline:
            w, v = random.standard_normal(X.shape[1]), random.standard_normal(X.shape[0])
            begin = time.monotonic()
            faulthandler.dump_traceback_later(limit, exit=True)
            product, adjoint = operator @ w, operator.rmatvec(v)
            faulthandler.cancel_dump_traceback_later()
            seconds = time.monotonic() - begin
            if seconds > limit / 2:
                totals["late"] += 1
                print(f"{name}, check={check}: {seconds:.1f} s", flush=True)
            is_right = np.allclose(product, X @ w, atol=1e-8)
            is_right &= np.allclose(adjoint, X.T @ v, atol=1e-8)
            if not is_right:
                totals["wrong" if check else "wrong without --check"] += 1
                if check:
                    print(f"{name}: a wrong result", flush=True)
    finally:
        faulthandler.cancel_dump_traceback_later()
        machine.stop()


if __name__ == "__main__":
    sys.exit(main())
