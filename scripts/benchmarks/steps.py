"""Steps in which machines are processes, compared with bare MPI and the published program.

    python scripts/benchmarks/steps.py lockstep [--rows 600] [--columns 600] [--machines 6]
    python scripts/benchmarks/steps.py machines
    python scripts/benchmarks/steps.py elastic
    python scripts/benchmarks/steps.py idle

- lockstep: X w over a blocking Bcast, the same products and a Gatherv of mpi4py (`bare`); over the
  same without products; and over the published program, which uses mpi4py with a pickled dict, a
  Barrier before and after the products, pickled answers, and a decoder that works row by row.
  X'v, X W and X'V over X w and X'v. CPU time of rank 0 and of a machine above that of `bare`.
- machines: X w of 6, 16, 32 and 64 machines over a blocking Bcast, the same products and a Gatherv;
  CPU time of rank 0 and of a machine above that, and how much it grows with each machine.
- elastic: X w and X'v of machines that are processes without MPI, over the same in lockstep. With
  many columns the transfer of w dominates.
- idle: machine 1 takes two seconds for each step. CPU seconds over elapsed seconds of each other
  process, including rank 0.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import cec_mpi
import measure
from measure import Figure, ratio, time_steps

IDLE_STEP_SECONDS = 2.0  # of machine 1
MACHINES = 6, 16, 32, 64
CPU_LABELS = "CPU of rank 0", "CPU of a machine"
RANK_OPTION = "--rank"  # first argument of this script on ranks, and in an elastic master


def figures(options: Any, directory: Path) -> list[Figure]:
    """Start ranks, and compare their times."""
    machines, part = options.machines, options.part
    if part == "machines":
        return scaling_figures(options, directory)
    recovery = 1 if part == "idle" else options.recovery
    store = measure.make_store(
        directory, options.rows, options.columns, machines, recovery, options.seed
    )
    names = ("part", "rows", "machines", "block", "steps")
    settings = {"store": str(store), **{name: getattr(options, name) for name in names}}
    packages = {"": Path(), ", before": options.before} if options.before else {"": Path()}

    def measure_ranks(ranks: int, turns: int, package: Path = Path()) -> Any:
        arguments = RANK_OPTION, json.dumps(settings | {"ranks": ranks, "turns": turns})
        return measure.run_script(__file__, ranks, *arguments, package=package)

    if part == "idle":
        shares = measure_ranks(machines + 1, options.turns)
        return [measure.figure("CPU of a process that waits", shares, "of a core")]
    times: measure.Times = {}
    ranks = {"lockstep": [machines + 1], "elastic": [machines + 1, 0]}[part]
    for turn in range(options.turns):
        candidates = [(size, name) for size in ranks for name in packages]
        for size, name in candidates[:: 1 if turn % 2 else -1]:
            for product, seconds in measure_ranks(size, 1, packages[name]).items():
                times.setdefault(f"{product}{name}", []).extend(seconds)
    return [
        figure for name in packages for figure in step_figures(times, part, options.block, name)
    ]


def scaling_figures(options: Any, directory: Path) -> list[Figure]:
    """Start ranks for several numbers of machines, and compare their steps with bare ones."""
    results: list[Figure] = []
    cpu: dict[int, float] = {}
    for machines in MACHINES:
        size = options.rows, options.columns, machines, options.recovery, options.seed
        settings = {"part": "machines", "store": str(measure.make_store(directory, *size))}
        settings |= {"rows": options.rows, "machines": machines, "block": 1, "turns": options.turns}
        settings |= {"ranks": machines + 1, "steps": options.steps}
        times = measure.run_script(__file__, machines + 1, RANK_OPTION, json.dumps(settings))
        rank, machine = (
            least_difference(times, f"X w, {label}", f"bare, {label}", "") for label in CPU_LABELS
        )
        step = ratio(times, "X w", "bare", over="a bare Bcast, products, Gatherv")
        results += [
            item | {"name": f"{machines}: {item['name']}"} for item in (step, rank, machine)
        ]
        cpu[machines] = rank["quartiles"][1]
    fewest, *_, most = MACHINES
    growth = (cpu[most] - cpu[fewest]) / (most - fewest)
    return [
        *results,
        measure.figure(
            f"X w, {CPU_LABELS[0]}, for each additional machine", [growth], "us", "bare"
        ),
    ]


def step_figures(times: measure.Times, part: str, block: int, suffix: str) -> list[Figure]:
    """Return ratios of steps, and the CPU time above that of a bare step.

    Names in `times` end with `suffix`, which is ", before" for another clone.
    """
    if part == "lockstep":
        X_w = f"X w{suffix}"
        ratios = [
            ratio(times, X_w, f"bare{suffix}", over="a bare Bcast, products, Gatherv"),
            ratio(times, X_w, f"wire{suffix}", over="a bare Bcast, Gatherv"),
            ratio(times, X_w, f"published{suffix}", over="the published program"),
            ratio(times, f"X'v{suffix}", X_w),
            ratio(times, f"X W{suffix}", X_w, f"X W, {block} columns{suffix}"),
            ratio(times, f"X'V{suffix}", f"X'v{suffix}", f"X'V, {block} columns{suffix}"),
            *(
                least_difference(times, f"X w, {label}", f"bare, {label}", suffix)
                for label in CPU_LABELS
            ),
        ]
    else:
        pairs = [(f"{product}, elastic{suffix}", product) for product in ("X w", "X'v")]
        ratios = [ratio(times, candidate, f"{name}, lockstep{suffix}") for candidate, name in pairs]
    package_times = {
        name: seconds for name, seconds in times.items() if (", before" in name) == bool(suffix)
    }
    return ratios + [measure.figure(name, seconds, "s") for name, seconds in package_times.items()]


def least_difference(times: measure.Times, name: str, other: str, suffix: str) -> Figure:
    """Return the difference of the least times of two candidates, in microseconds."""
    least, least_other = min(times[name + suffix]), min(times[other + suffix])
    return measure.figure(
        f"{name}{suffix}", [1e6 * (least - least_other)], "us", f"{other}, the least"
    )


def measure_on_ranks(settings: dict[str, Any]) -> None:
    """Print the measurements on rank 0."""
    comm = None
    if settings["ranks"]:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    parts = {"lockstep": measure_lockstep, "machines": measure_lockstep}
    parts |= {"elastic": measure_products, "idle": measure_idle_ranks}
    results = parts[settings["part"]](comm, settings)
    if results:
        print(json.dumps(results))


def open_operator(comm: Any, settings: dict[str, Any], **options: Any) -> Any:
    """Open X on machines of equal speeds."""
    speeds = (1.0,) * settings["machines"]
    if comm is None:
        options["local"] = settings["machines"]
    return cec_mpi.open_operator(settings["store"], comm, threads=1, speeds=speeds, **options)


def measure_products(comm: Any, settings: dict[str, Any]) -> measure.Times:
    """Measure steps of each product, and the CPU time of rank 0."""
    mode = "elastic" if comm is None else "lockstep"
    with open_operator(comm, settings) as X:
        if X is None:
            return {}
        w, v = np.ones(X.shape[1]), np.ones(X.shape[0])
        results: measure.Times = {}
        for name, call in ("X w", lambda: X.matvec(w)), ("X'v", lambda: X.rmatvec(v)):
            seconds, cpu = time_steps(call, settings["steps"])
            results[f"{name}, {mode}"], results[f"{name}, {mode}, CPU of rank 0"] = [seconds], [cpu]
        return results


def measure_lockstep(comm: Any, settings: dict[str, Any]) -> measure.Times:
    """Measure steps of all kinds, with this package and without it."""
    store = cec_mpi.open_store(settings["store"])
    manifest, steps = store.manifest, settings["steps"]
    rows, columns, k = settings["rows"], manifest.columns, settings["block"]

    def time_product(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
        vector, cpu = np.ones(shape), []
        for calls in (10, 10, steps):  # on a machine, opening X returns when the run ends
            begin = time.process_time()
            with open_operator(comm, settings) as X:
                if X is not None:
                    product = getattr(X, name)
                    results = time_steps(lambda product=product: product(vector), calls)
            cpu.append(time.process_time() - begin)
        return results if comm.rank == 0 else (0.0, (cpu[2] - cpu[1]) / (steps - 10))

    candidates = {
        "X w": lambda: time_product("matvec", (columns,)),
        "X'v": lambda: time_product("rmatvec", (rows,)),
        "X W": lambda: time_product("matmat", (columns, k)),
        "X'V": lambda: time_product("rmatmat", (rows, k)),
        "published": lambda: time_steps(make_published_step(comm, store), steps),
        "bare": lambda: time_steps(make_bare_step(comm, store, True), steps),
        "wire": lambda: time_steps(make_bare_step(comm, store, False), steps),
    }
    if settings["part"] == "machines":
        candidates = {name: candidates[name] for name in ("X w", "bare")}
    times: measure.Times = {}
    for _ in range(settings["turns"]):
        for name, candidate in candidates.items():
            seconds, cpu = candidate()
            master, *machines = comm.gather(cpu) or (0.0, 0.0)
            times.setdefault(name, []).append(seconds)
            times.setdefault(f"{name}, CPU of rank 0", []).append(master)
            times.setdefault(f"{name}, CPU of a machine", []).append(float(np.median(machines)))
    return times if comm.rank == 0 else {}


def make_bare_step(comm: Any, store: Any, multiplies: bool) -> Any:
    """Return a step with equal shares of all rows, without decoding."""
    machines, manifest = comm.size - 1, store.manifest
    share = manifest.rows_per_shard * manifest.code.recovery // machines
    counts = [0] + [share] * machines
    answer, w = np.empty(counts[comm.rank]), np.ones(manifest.columns)
    answers = [np.empty(sum(counts)), counts] if comm.rank == 0 else None
    shard = store.shard(comm.rank) if comm.rank and multiplies else None

    def step() -> None:
        comm.Bcast(w)
        if shard is not None:
            np.dot(shard[:share], w, out=answer)
        comm.Gatherv(answer, answers)

    return step


def make_published_step(comm: Any, store: Any) -> Any:
    """Return a step of the published program."""
    code, rows = store.manifest.code, store.manifest.rows_per_shard
    machines = range(1, comm.size)
    assignment = cec_mpi.plan_step(machines, (1.0,) * len(machines), code.recovery, rows).assignment
    shard = store.shard(comm.rank) if comm.rank else None
    intervals = assignment.intervals(comm.rank) if comm.rank else ()
    inverses = [np.linalg.inv(code.generator[block - 1]) for block in assignment.machines]
    decoded, w = np.empty((code.recovery, rows)), np.ones(store.manifest.columns)

    def step() -> None:
        message = comm.bcast({"w": w, "available": tuple(machines)} if comm.rank == 0 else None)
        comm.Barrier()
        answer = np.empty(0)
        if shard is not None:
            answer = np.concatenate([shard[start:stop] @ message["w"] for start, stop in intervals])
        comm.Barrier()
        gathered = comm.gather(answer)
        if gathered is None:
            return
        answers = np.concatenate(gathered)
        blocks = zip(assignment.blocks, inverses, assignment.positions, strict=True)
        for block, inverse, places in blocks:
            for row in range(block.stop - block.start):
                decoded[:, block.start + row] = inverse @ answers[places + row]

    return step


def measure_idle_ranks(comm: Any, settings: dict[str, Any]) -> list[float]:
    """Return the CPU seconds over the elapsed seconds of each rank except machine 1."""
    emulated = {
        "emulate_speeds": (1.0,) * settings["machines"],
        "emulate_base": settings["rows"] / IDLE_STEP_SECONDS,
    }
    cpu, begin = time.process_time(), time.perf_counter()
    with open_operator(comm, settings, availability={1}, **emulated) as X:
        if X is not None:
            for _ in range(settings["turns"]):
                X @ np.ones(X.shape[1])
    shares = comm.gather((time.process_time() - cpu) / (time.perf_counter() - begin))
    return [share for rank, share in enumerate(shares or []) if rank != 1]


def add_options(parser: Any) -> None:
    parser.add_argument("part", choices=["lockstep", "machines", "elastic", "idle"])
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--columns", type=int, default=600)
    parser.add_argument("--machines", type=int, default=6)
    parser.add_argument("--recovery", type=int, default=3)
    parser.add_argument("--block", type=int, default=8, help="columns of W and V")
    parser.add_argument(
        "--steps", type=int, default=300, help="steps in a turn, whose median counts"
    )
    parser.add_argument(
        "--before", type=Path, help="another clone, measured in turns with this one"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == [RANK_OPTION]:
        measure_on_ranks(json.loads(sys.argv[2]))
    else:
        measure.main(__doc__, figures, add_options)
