"""Steps of machines that are processes: beside the bare wire, another program, and each other.

    python scripts/benchmarks/steps.py lockstep [--rows 600] [--columns 600] [--machines 6]
    python scripts/benchmarks/steps.py machines
    python scripts/benchmarks/steps.py elastic
    python scripts/benchmarks/steps.py idle

- lockstep: X w over a blocking Bcast, the same products and a Gatherv of mpi4py; over the same
  without products; and over the published program, a plain one of mpi4py: a pickled dict to all, a
  Barrier before and after the products, pickled answers, and a decoder that goes from row to row.
  X'v, X W and X'V over X w and X'v. CPU time of rank 0 and of a machine above that of the first.
- machines: X w of 6, 16, 32 and 64 machines over a blocking Bcast, the same products and a Gatherv;
  CPU time of rank 0 and of a machine above that, and how much it grows with each machine.
- elastic: X w and X'v of machines that are processes without MPI, over the same in lockstep. With
  many columns it is w that takes the time.
- idle: machine 1 takes two seconds for each step. CPU seconds of each other process, of which rank
  0 is one, over seconds.
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
from measure import Figure, ratio, taken_by

SECONDS = 2.0  # of a step of machine 1, for idle
MACHINES = 6, 16, 32, 64
WHOSE = "CPU of rank 0", "CPU of a machine"
TAKE = "--take"  # what this script is called with as a rank, or as an elastic master


def figures(options: Any, directory: Path) -> list[Figure]:
    """Start ranks, and compare what they took."""
    machines, part = options.machines, options.part
    if part == "machines":
        return figures_of_many(options, directory)
    recovery = 1 if part == "idle" else options.recovery
    store = measure.store_of(
        directory, options.rows, options.columns, machines, recovery, options.seed
    )
    names = ("part", "rows", "machines", "block", "steps")
    told = {"store": str(store), **{name: getattr(options, name) for name in names}}
    packages = {"": Path(), ", before": options.before} if options.before else {"": Path()}

    def taken(ranks: int, turns: int, package: Path = Path()) -> Any:
        words = TAKE, json.dumps(told | {"ranks": ranks, "turns": turns})
        return measure.again(__file__, ranks, *words, package=package)

    if part == "idle":
        shares = taken(machines + 1, options.turns)
        return [measure.figure("CPU of a process that waits", shares, "of a core")]
    times: measure.Times = {}
    ranks = {"lockstep": [machines + 1], "elastic": [machines + 1, 0]}[part]
    for turn in range(options.turns):
        ways = [(each, name) for each in ranks for name in packages]
        for each, name in ways[:: 1 if turn % 2 else -1]:
            for product, seconds in taken(each, 1, packages[name]).items():
                times.setdefault(f"{product}{name}", []).extend(seconds)
    return [figure for name in packages for figure in compared(times, part, options.block, name)]


def figures_of_many(options: Any, directory: Path) -> list[Figure]:
    """Start ranks for several numbers of machines, and compare their steps with bare ones."""
    found: list[Figure] = []
    cpu: dict[int, float] = {}
    for machines in MACHINES:
        size = options.rows, options.columns, machines, options.recovery, options.seed
        told = {"part": "machines", "store": str(measure.store_of(directory, *size))}
        told |= {"rows": options.rows, "machines": machines, "block": 1, "turns": options.turns}
        words = TAKE, json.dumps(told | {"ranks": machines + 1, "steps": options.steps})
        times = measure.again(__file__, machines + 1, *words)
        rank, machine = (above(times, f"X w, {whose}", f"bare, {whose}", "") for whose in WHOSE)
        step = ratio(times, "X w", "bare", over="a bare Bcast, products, Gatherv")
        found += [each | {"name": f"{machines}: {each['name']}"} for each in (step, rank, machine)]
        cpu[machines] = rank["quartiles"][1]
    fewest, *_, most = MACHINES
    growth = (cpu[most] - cpu[fewest]) / (most - fewest)
    return [*found, measure.figure(f"X w, {WHOSE[0]}, for a machine more", [growth], "us", "bare")]


def compared(times: measure.Times, part: str, block: int, before: str) -> list[Figure]:
    """The ratios of steps, and the CPU time above that of a bare step."""
    if part == "lockstep":
        X_w = f"X w{before}"
        ratios = [
            ratio(times, X_w, f"bare{before}", over="a bare Bcast, products, Gatherv"),
            ratio(times, X_w, f"wire{before}", over="a bare Bcast, Gatherv"),
            ratio(times, X_w, f"published{before}", over="the published program"),
            ratio(times, f"X'v{before}", X_w),
            ratio(times, f"X W{before}", X_w, f"X W, {block} columns{before}"),
            ratio(times, f"X'V{before}", f"X'v{before}", f"X'V, {block} columns{before}"),
            *(above(times, f"X w, {whose}", f"bare, {whose}", before) for whose in WHOSE),
        ]
    else:
        pairs = [(f"{product}, elastic{before}", product) for product in ("X w", "X'v")]
        ratios = [ratio(times, way, f"{name}, lockstep{before}") for way, name in pairs]
    ours = {name: each for name, each in times.items() if (", before" in name) == bool(before)}
    return ratios + [measure.figure(name, each, "s") for name, each in ours.items()]


def above(times: measure.Times, name: str, other: str, before: str) -> Figure:
    """Microseconds more than another way, of the least that each has taken."""
    ours, theirs = min(times[name + before]), min(times[other + before])
    return measure.figure(f"{name}{before}", [1e6 * (ours - theirs)], "us", f"{other}, the least")


def take(told: dict[str, Any]) -> None:
    """Print what was taken, on rank 0."""
    comm = None
    if told["ranks"]:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    parts = {"lockstep": lockstep, "machines": lockstep, "elastic": products, "idle": idle}
    found = parts[told["part"]](comm, told)
    if found:
        print(json.dumps(found))


def opened(comm: Any, told: dict[str, Any], **options: Any) -> Any:
    """X, of machines of equal speeds."""
    speeds = (1.0,) * told["machines"]
    if comm is None:
        options["local"] = told["machines"]
    return cec_mpi.open_operator(told["store"], comm, threads=1, speeds=speeds, **options)


def products(comm: Any, told: dict[str, Any]) -> measure.Times:
    """Steps by product, and the CPU time of rank 0."""
    how = "elastic" if comm is None else "lockstep"
    with opened(comm, told) as X:
        if X is None:
            return {}
        w, v = np.ones(X.shape[1]), np.ones(X.shape[0])
        found: measure.Times = {}
        for name, call in ("X w", lambda: X.matvec(w)), ("X'v", lambda: X.rmatvec(v)):
            seconds, cpu = taken_by(call, told["steps"])
            found[f"{name}, {how}"], found[f"{name}, {how}, CPU of rank 0"] = [seconds], [cpu]
        return found


def lockstep(comm: Any, told: dict[str, Any]) -> measure.Times:
    """Steps of all kinds, and the same without this package."""
    store = cec_mpi.open_store(told["store"])
    manifest, steps = store.manifest, told["steps"]
    rows, columns, k = told["rows"], manifest.columns, told["block"]

    def ours(name: str, shape: tuple[int, ...]) -> tuple[float, float]:
        vector, cpu = np.ones(shape), []
        for calls in (10, 10, steps):  # a machine serves in the line that opens X
            begin = time.process_time()
            with opened(comm, told) as X:
                if X is not None:
                    product = getattr(X, name)
                    found = taken_by(lambda product=product: product(vector), calls)
            cpu.append(time.process_time() - begin)
        return found if comm.rank == 0 else (0.0, (cpu[2] - cpu[1]) / (steps - 10))

    ways = {
        "X w": lambda: ours("matvec", (columns,)),
        "X'v": lambda: ours("rmatvec", (rows,)),
        "X W": lambda: ours("matmat", (columns, k)),
        "X'V": lambda: ours("rmatmat", (rows, k)),
        "published": lambda: taken_by(published(comm, store), steps),
        "bare": lambda: taken_by(bare(comm, store, True), steps),
        "wire": lambda: taken_by(bare(comm, store, False), steps),
    }
    if told["part"] == "machines":
        ways = {name: ways[name] for name in ("X w", "bare")}
    times: measure.Times = {}
    for _ in range(told["turns"]):
        for name, way in ways.items():
            seconds, cpu = way()
            first, *others = comm.gather(cpu) or (0.0, 0.0)
            times.setdefault(name, []).append(seconds)
            times.setdefault(f"{name}, CPU of rank 0", []).append(first)
            times.setdefault(f"{name}, CPU of a machine", []).append(float(np.median(others)))
    return times if comm.rank == 0 else {}


def bare(comm: Any, store: Any, multiplies: bool) -> Any:
    """A step of equal shares of all rows, of which nothing is decoded."""
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


def published(comm: Any, store: Any) -> Any:
    """A step as the method's own program makes it."""
    code, rows = store.manifest.code, store.manifest.rows_per_shard
    machines = range(1, comm.size)
    assignment = cec_mpi.plan_step(machines, (1.0,) * len(machines), code.recovery, rows).assignment
    shard = store.shard(comm.rank) if comm.rank else None
    mine = assignment.intervals(comm.rank) if comm.rank else ()
    inverses = [np.linalg.inv(code.generator[block - 1]) for block in assignment.machines]
    decoded, w = np.empty((code.recovery, rows)), np.ones(store.manifest.columns)

    def step() -> None:
        told = comm.bcast({"w": w, "available": tuple(machines)} if comm.rank == 0 else None)
        comm.Barrier()
        answer = np.empty(0)
        if shard is not None:
            answer = np.concatenate([shard[start:stop] @ told["w"] for start, stop in mine])
        comm.Barrier()
        gathered = comm.gather(answer)
        if gathered is None:
            return
        answers = np.concatenate(gathered)
        each_block = zip(assignment.blocks, inverses, assignment.positions, strict=True)
        for block, inverse, places in each_block:
            for row in range(block.stop - block.start):
                decoded[:, block.start + row] = inverse @ answers[places + row]

    return step


def idle(comm: Any, told: dict[str, Any]) -> list[float]:
    """CPU seconds over seconds, of each rank but machine 1."""
    emulated = {
        "emulate_speeds": (1.0,) * told["machines"],
        "emulate_base": told["rows"] / SECONDS,
    }
    cpu, begin = time.process_time(), time.perf_counter()
    with opened(comm, told, availability={1}, **emulated) as X:
        if X is not None:
            for _ in range(told["turns"]):
                X @ np.ones(X.shape[1])
    shares = comm.gather((time.process_time() - cpu) / (time.perf_counter() - begin))
    return [each for rank, each in enumerate(shares or []) if rank != 1]


def add_options(parser: Any) -> None:
    parser.add_argument("part", choices=["lockstep", "machines", "elastic", "idle"])
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--columns", type=int, default=600)
    parser.add_argument("--machines", type=int, default=6)
    parser.add_argument("--recovery", type=int, default=3)
    parser.add_argument("--block", type=int, default=8, help="columns of W and V")
    parser.add_argument("--steps", type=int, default=300, help="in a turn: the median counts")
    parser.add_argument("--before", type=Path, help="another clone, measured in turn with this one")


if __name__ == "__main__":
    if sys.argv[1:2] == [TAKE]:
        take(json.loads(sys.argv[2]))
    else:
        measure.main(__doc__, figures, add_options)
