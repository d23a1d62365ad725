"""Steps with all machines in one process: beside their products, and when machines come and go.

    python scripts/benchmarks/local.py steps [--rows 600] [--columns 600] [--machines 6]
    python scripts/benchmarks/local.py events --rows 4000 --columns 400 --machines 100 --recovery 10
    python scripts/benchmarks/local.py vectors --rows 10000000

- steps: X w and X'v, X w with records on disk, and with speeds that are learned, over the products
  of all machines by ``np.dot`` alone.
- events: a step after ``--leave`` machines have left and others come, which were not there together
  before, or were two events ago, over a step without an event.
- vectors: X w and X'v of the identity on two machines with a copy each, over SciPy's product. In
  vectors: the memory that the process has taken by the end of a step, with the result.
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
from measure import Figure, ratio, taken_by


def figures(options: Any, directory: Path) -> list[Figure]:
    """Of steps or of events."""
    if options.part == "vectors":
        return vectors(options, directory)
    sizes = options.rows, options.columns, options.machines, options.recovery
    store = measure.store_of(directory, *sizes, options.seed)
    with threadpool_limits(1):
        return {"steps": steps, "events": events}[options.part](options, store)


def steps(options: Any, store: Path) -> list[Figure]:
    given = (1.0,) * options.machines
    w, v = np.ones(options.columns), np.ones(options.rows)
    with ExitStack() as stack:

        def opened(speeds: Any, file: str = "") -> Any:
            recorder = Recorder()
            X = stack.enter_context(
                cec_mpi.open_operator(store, None, speeds=speeds, recorder=recorder)
            )
            if file:
                recorder.write_to(stack.enter_context((store.parent / file).open("x")))
            return X

        X = opened(given)
        calls = {
            "X w": partial(X.matvec, w),
            "X'v": partial(X.rmatvec, v),
            "X w, recorded": partial(opened(given, "given.jsonl").matvec, w),
            "X w, recorded, speeds learned": partial(opened("learn", "learned.jsonl").matvec, w),
            "products": products(store, options.machines, w),
        }
        times: measure.Times = {}
        cpu: measure.Times = {}
        for turn in range(options.turns):
            for name in list(calls)[:: 1 if turn % 2 else -1]:
                seconds, of_cpu = taken_by(calls[name], options.steps)
                times.setdefault(name, []).append(seconds)
                cpu.setdefault(name, []).append(of_cpu)
    ratios = [ratio(times, name, "products") for name in calls if name != "products"]
    least = [
        measure.figure(f"{name}, CPU", [1e6 * min(cpu[name])], "us, the least") for name in calls
    ]
    return ratios + least + [measure.figure(name, times[name], "s") for name in calls]


def products(store: Path, machines: int, w: np.ndarray) -> Any:
    """What all machines compute in a step, as NumPy alone does it."""
    opened = cec_mpi.open_store(store)
    recovery, rows = opened.manifest.code.recovery, opened.manifest.rows_per_shard
    everyone = range(1, machines + 1)
    assignment = cec_mpi.plan_step(everyone, (1.0,) * machines, recovery, rows).assignment
    mine = [
        np.array(opened.shard(n)[start:stop])
        for n in everyone
        for start, stop in assignment.intervals(n)
    ]
    answers = [np.empty(len(rows)) for rows in mine]

    def step() -> None:
        for rows, answer in zip(mine, answers, strict=True):
            np.dot(rows, w, out=answer)

    return step


def events(options: Any, store: Path) -> list[Figure]:
    rng = np.random.default_rng(options.seed)
    everyone = np.arange(1, options.machines + 1)
    speeds = tuple(rng.uniform(1, 4, options.machines))
    found = []
    with cec_mpi.open_operator(store, None, speeds=speeds) as X:
        for some in np.array_split(everyone, options.machines // options.recovery):
            X.available = set(some.tolist())  # each machine reads all of its rows
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
                away = rng.choice(everyone, options.leave, replace=False).tolist()
                sets.append(set(everyone.tolist()) - set(away))
                new, *same = (step(sets[-1]) for _ in range(3))
                seen, *more = (step(sets[-3:][0]) for _ in range(3))
                if event >= 3:
                    times["new set"].append(new)
                    times["set seen before"].append(seen)
                    times["no event"].append(float(np.median([*same, *more])))
            kinds = ("set seen before", "new set")
            found += [ratio(times, kind, "no event", f"{name}, {kind}") for kind in kinds]
            found.append(measure.figure(f"{name}, no event", times["no event"], "s"))
    return found


def vectors(options: Any, directory: Path) -> list[Figure]:
    """Of the identity, whose products are copies: what is left is the way of the vectors."""
    matrix = identity(options.rows, format="csr")
    cec_mpi.encode(matrix, directory / "store", 2, copies=2)
    v, found = np.random.default_rng(options.seed).random(options.rows), []
    with threadpool_limits(1):
        for name in ("matvec", "rmatvec"):
            with cec_mpi.open_operator(directory / "store", None, speeds=(1.0, 1.0)) as X:
                X.start()
                begin = held()
                results = [getattr(X, name)(v)]
                results[0] = getattr(X, name)(v)
                memory = (held() - begin) / v.nbytes
                calls = {"ours": partial(getattr(X, name), v), "SciPy": lambda: matrix @ v}
                ways = {way: measure.clocked(call) for way, call in calls.items()}
                times = measure.in_turns(ways, options.turns)
            product = {"matvec": "X w", "rmatvec": "X'v"}[name]
            found.append(ratio(times, "ours", "SciPy", product))
            found.append(measure.figure(f"{product}, memory", [memory], "vectors"))
    return found


def held() -> int:
    """Bytes of memory of this process without files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def add_options(parser: Any) -> None:
    parser.add_argument("part", choices=["steps", "events", "vectors"])
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--columns", type=int, default=600)
    parser.add_argument("--machines", type=int, default=6)
    parser.add_argument("--recovery", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200, help="in a turn: the median counts")
    parser.add_argument("--leave", type=int, default=3, help="machines that are away")


if __name__ == "__main__":
    measure.main(__doc__, figures, add_options)
