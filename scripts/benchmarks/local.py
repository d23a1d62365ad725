"""Steps with all machines in one process, compared with NumPy and SciPy, and after events.

    python scripts/benchmarks/local.py steps [--rows 600] [--columns 600] [--machines 6]
    python scripts/benchmarks/local.py events --rows 4000 --columns 400 --machines 100 --recovery 10
    python scripts/benchmarks/local.py vectors --rows 10000000

- steps: X w and X'v, X w with records on disk, and with speeds that are learned, over the products
  of all machines by ``np.dot`` alone.
- events: the first step with a new set of machines, in which ``--leave`` machines are missing, and
  with the set of two events ago, over a step without an event.
- vectors: X w and X'v of the identity on two machines with a copy each, over SciPy's product. In
  vectors: the memory that the process has allocated at the end of a step, including the result.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import identity
from threadpoolctl import threadpool_limits

import cec_mpi
import measure
from cec_mpi.records import Recorder
from measure import Figure, ratio, time_steps


def figures(options: Any, directory: Path) -> list[Figure]:
    """Return the figures of the selected part."""
    if options.part == "vectors":
        return vector_figures(options, directory)
    sizes = options.rows, options.columns, options.machines, options.recovery
    store = measure.make_store(directory, *sizes, options.seed)
    with threadpool_limits(1):
        return {"steps": step_figures, "events": event_figures}[options.part](options, store)


def step_figures(options: Any, store: Path) -> list[Figure]:
    equal_speeds = (1.0,) * options.machines
    w, v = np.ones(options.columns), np.ones(options.rows)
    with ExitStack() as stack:

        def open_operator(speeds: Any, file: str = "") -> Any:
            recorder = Recorder()
            X = stack.enter_context(
                cec_mpi.open_operator(store, None, speeds=speeds, recorder=recorder)
            )
            if file:
                recorder.write_to(stack.enter_context((store.parent / file).open("x")))
            return X

        X = open_operator(equal_speeds)
        calls = {
            "X w": partial(X.matvec, w),
            "X'v": partial(X.rmatvec, v),
            "X w, recorded": partial(open_operator(equal_speeds, "given.jsonl").matvec, w),
            "X w, recorded, speeds learned": partial(
                open_operator("learn", "learned.jsonl").matvec, w
            ),
            "products": make_products(store, options.machines, w),
        }
        times: measure.Times = {}
        cpu: measure.Times = {}
        for turn in range(options.turns):
            for name in list(calls)[:: 1 if turn % 2 else -1]:
                seconds, cpu_seconds = time_steps(calls[name], options.steps)
                times.setdefault(name, []).append(seconds)
                cpu.setdefault(name, []).append(cpu_seconds)
    ratios = [ratio(times, name, "products") for name in calls if name != "products"]
    least = [
        measure.figure(f"{name}, CPU", [1e6 * min(cpu[name])], "us, the least") for name in calls
    ]
    return ratios + least + [measure.figure(name, times[name], "s") for name in calls]


def make_products(path: Path, machines: int, w: np.ndarray) -> Any:
    """Return a function that computes the products of all machines of a step with NumPy."""
    store = cec_mpi.open_store(path)
    recovery, rows = store.manifest.code.recovery, store.manifest.rows_per_shard
    all_machines = range(1, machines + 1)
    assignment = cec_mpi.plan_step(all_machines, (1.0,) * machines, recovery, rows).assignment
    machine_rows = [
        np.array(store.shard(n)[start:stop])
        for n in all_machines
        for start, stop in assignment.intervals(n)
    ]
    answers = [np.empty(len(rows)) for rows in machine_rows]

    def step() -> None:
        for rows, answer in zip(machine_rows, answers, strict=True):
            np.dot(rows, w, out=answer)

    return step


def event_figures(options: Any, store: Path) -> list[Figure]:
    rng = np.random.default_rng(options.seed)
    all_machines = np.arange(1, options.machines + 1)
    speeds = tuple(rng.uniform(1, 4, options.machines))
    results = []
    with cec_mpi.open_operator(store, None, speeds=speeds) as X:
        for group in np.array_split(all_machines, options.machines // options.recovery):
            X.available = set(group.tolist())  # each machine loads all of its rows
            X.matvec(np.ones(options.columns))
        sets: list[set[int]] = []
        for name, product, length in ("X w", X.matvec, 1), ("X'v", X.rmatvec, 0):
            call = partial(product, np.ones(X.shape[length]))

            def step(available: set[int], call: Any = call) -> float:
                X.available = available
                begin = time.perf_counter()
                call()
                return time.perf_counter() - begin

            times: measure.Times = {"no event": [], "set seen before": [], "new set": []}
            for event in range(3 + options.turns):
                missing = rng.choice(all_machines, options.leave, replace=False).tolist()
                sets.append(set(all_machines.tolist()) - set(missing))
                first, *repeated = (step(sets[-1]) for _ in range(3))
                first_again, *repeated_again = (step(sets[-3:][0]) for _ in range(3))
                if event >= 3:
                    times["new set"].append(first)
                    times["set seen before"].append(first_again)
                    times["no event"].append(float(np.median([*repeated, *repeated_again])))
            kinds = ("set seen before", "new set")
            results += [ratio(times, kind, "no event", f"{name}, {kind}") for kind in kinds]
            results.append(measure.figure(f"{name}, no event", times["no event"], "s"))
    return results


def vector_figures(options: Any, directory: Path) -> list[Figure]:
    """Measure products with the identity, which only copy: the rest is the cost of vectors."""
    matrix = identity(options.rows, format="csr")
    cec_mpi.encode(matrix, directory / "store", 2, copies=2)
    v, results = np.random.default_rng(options.seed).random(options.rows), []
    with threadpool_limits(1):
        for name in ("matvec", "rmatvec"):
            with cec_mpi.open_operator(directory / "store", None, speeds=(1.0, 1.0)) as X:
                X.start()
                before = anonymous_memory()
                results = [getattr(X, name)(v)]
                results[0] = getattr(X, name)(v)
                memory = (anonymous_memory() - before) / v.nbytes
                calls = {"ours": partial(getattr(X, name), v), "SciPy": lambda: matrix @ v}
                candidates = {
                    candidate: measure.make_timer(call) for candidate, call in calls.items()
                }
                times = measure.time_in_turns(candidates, options.turns)
            product = {"matvec": "X w", "rmatvec": "X'v"}[name]
            results.append(ratio(times, "ours", "SciPy", product))
            results.append(measure.figure(f"{product}, memory", [memory], "vectors"))
    return results


def anonymous_memory() -> int:
    """Return the bytes of memory of this process that are not pages of files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def add_options(parser: Any) -> None:
    parser.add_argument("part", choices=["steps", "events", "vectors"])
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--columns", type=int, default=600)
    parser.add_argument("--machines", type=int, default=6)
    parser.add_argument("--recovery", type=int, default=3)
    parser.add_argument(
        "--steps", type=int, default=200, help="steps in a turn, whose median counts"
    )
    parser.add_argument("--leave", type=int, default=3, help="number of missing machines")


if __name__ == "__main__":
    measure.main(__doc__, figures, add_options)
