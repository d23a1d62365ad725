"""A sparse X on replicas: steps, stores, plans and PageRank, beside SciPy and PETSc.

    python scripts/benchmarks/sparse.py lockstep [--scale 20] [--entries 16000000] [--machines 2]
    python scripts/benchmarks/sparse.py store
    python scripts/benchmarks/sparse.py plans
    python scripts/benchmarks/sparse.py pagerank

The matrix is the graph of R-MAT with ``2**scale`` nodes (Chakrabarti, Zhan and Faloutsos, 2004),
or with ``--rows`` and ``--columns`` one with equally many entries in random places of each row.

- lockstep: X w and X'v over a bare Bcast, SciPy's product of the same rows, and a Gatherv; and over
  PETSc's MatMult with as many ranks, if petsc4py is installed.
- store: its bytes over those of J copies of X in CSR, and the time of encode over that of reading
  and writing these bytes.
- plans: what a plan takes for 30, 100 and 500 machines, and its makespan over the least one.
- pagerank: a run of this computer's own machines over the same iterations by SciPy.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, load_npz, save_npz

import cec_mpi
import measure
from measure import Figure, clocked, in_turns, median_of, ratio

TAKE = "--take"  # what this script is called with as a rank
_QUADRANTS = (0.57, 0.76, 0.95)  # R-MAT's a, a + b and a + b + c


def rmat(scale: int, entries: int, seed: int) -> csr_array:
    """The graph of R-MAT, of ones."""
    rng = np.random.default_rng(seed)
    at, across = np.zeros((2, entries), np.int64)
    for _ in range(scale):
        which = np.searchsorted(_QUADRANTS, rng.random(entries))
        at, across = 2 * at + which // 2, 2 * across + which % 2
    places = at.astype(np.int32), across.astype(np.int32)
    matrix = csr_array((np.ones(entries), places), shape=(1 << scale,) * 2)
    matrix.data[:] = 1  # the same edge twice is one
    return matrix


def even(rows: int, columns: int, entries: int, seed: int) -> csr_array:
    """Equally many random entries in each row."""
    rng, each = np.random.default_rng(seed), entries // rows
    indices = np.sort(rng.integers(columns, size=(rows, each), dtype=np.int32), axis=1).reshape(-1)
    pointers = np.arange(rows + 1, dtype=np.int32) * each
    matrix = csr_array((rng.standard_normal(rows * each), indices, pointers), (rows, columns))
    matrix.sum_duplicates()
    return matrix


def matrix_of(options: Any) -> csr_array:
    if options.rows:
        return even(options.rows, options.columns, options.entries, options.seed)
    return rmat(options.scale, options.entries, options.seed)


def figures(options: Any, directory: Path) -> list[Figure]:
    """Of one part."""
    parts = {"lockstep": lockstep, "store": store, "plans": plans, "pagerank": pagerank}
    return list(parts[options.part](options, directory))


def lockstep(options: Any, directory: Path) -> list[Figure]:
    X = matrix_of(options)
    save_npz(directory / "X.npz", X, compressed=False)
    cec_mpi.encode(X, directory / "store", options.machines, copies=options.copies)
    told = {"directory": str(directory), "turns": options.turns, "steps": options.steps}
    times = measure.again(__file__, options.machines + 1, TAKE, json.dumps(told))
    found = [ratio(times, "X w", "bare", over="a bare Bcast, SciPy's products, Gatherv")]
    if "PETSc" in times:
        found.append(ratio(times, "X w", "PETSc", over="PETSc's MatMult"))
    found.append(ratio(times, "X'v", "X w"))
    return found + [measure.figure(name, each, "s") for name, each in times.items()]


def take(told: dict[str, Any]) -> None:
    """Print what was taken, on rank 0."""
    from mpi4py import MPI

    comm, directory = MPI.COMM_WORLD, Path(told["directory"])
    X = load_npz(directory / "X.npz")

    def ours(name: str, size: int) -> float:
        with cec_mpi.open_operator(directory / "store", comm, threads=1) as operator:
            if operator is None:
                return 0.0
            product, vector = getattr(operator, name), np.ones(size)
            for _ in range(10):  # speeds are learned
                product(vector)
            return median_of(lambda: product(vector), told["steps"])

    ways = {
        "X w": lambda: ours("matvec", X.shape[1]),
        "X'v": lambda: ours("rmatvec", X.shape[0]),
        "bare": lambda: median_of(bare(comm, X), told["steps"]),
    }
    if (step := petsc(comm, X)) is not None:
        ways["PETSc"] = lambda: median_of(step, told["steps"])
    times = in_turns(ways, told["turns"])
    if comm.rank == 0:
        print(json.dumps(times))


def bare(comm: Any, X: csr_array) -> Any:
    """A step of shares with equally many nonzeros."""
    wanted = np.arange(1, comm.size - 1) * (X.nnz / (comm.size - 1))
    cuts = [0, *np.searchsorted(X.indptr, wanted).tolist(), X.shape[0]]
    counts = [0, *np.diff(cuts).tolist()]
    mine = X[cuts[comm.rank - 1] : cuts[comm.rank]] if comm.rank else None
    w, none = np.ones(X.shape[1]), np.empty(0)
    answers = [np.empty(X.shape[0]), counts] if comm.rank == 0 else None

    def step() -> None:
        comm.Bcast(w)
        comm.Gatherv(none if mine is None else mine @ w, answers)

    return step


def petsc(comm: Any, X: csr_array) -> Any:
    """MatMult of all ranks but the first; None without petsc4py."""
    try:
        from petsc4py import PETSc
    except ImportError:
        return None
    workers = comm.Split(comm.rank == 0, comm.rank)
    if comm.rank:
        first, last = (X.shape[0] * k // workers.size for k in (workers.rank, workers.rank + 1))
        mine = X[first:last]
        sizes = ((last - first, X.shape[0]), (None, X.shape[1]))
        csr = mine.indptr, mine.indices, mine.data
        matrix = PETSc.Mat().createAIJ(size=sizes, csr=csr, comm=workers)
        w, y = matrix.createVecs()
        w.set(1.0)

    def step() -> None:
        if comm.rank:
            matrix.mult(w, y)
        comm.Barrier()

    return step


def store(options: Any, directory: Path) -> list[Figure]:
    X = matrix_of(options)
    source, copy = directory / "X.npz", directory / "copy"
    save_npz(source, X, compressed=False)
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    made = [0]

    def encode() -> None:
        made[0] += 1
        target = directory / f"store-{made[0]}"
        cec_mpi.encode(str(source), target, options.machines, copies=options.copies)

    def read_and_write() -> None:
        data = source.read_bytes()
        for _ in range(options.copies):
            with copy.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())

    times: measure.Times = {"encode": [], "bytes": []}
    for _ in range(options.turns):
        for name, call in (("encode", encode), ("bytes", read_and_write)):
            begin = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begin)
    made_bytes = sum(f.stat().st_size for f in (directory / "store-1").iterdir())
    return [
        measure.figure("store", [made_bytes / (options.copies * size)], "", "J copies in CSR"),
        ratio(times, "encode", "bytes", over="reading once and writing J times"),
        *(measure.figure(name, each, "s") for name, each in times.items()),
    ]


def plans(options: Any, directory: Path) -> list[Figure]:
    from cec_mpi.core.replicas.holders import spread_copies
    from cec_mpi.core.replicas.parts import cut_parts
    from cec_mpi.core.replicas.placement import ReplicaPlacement
    from cec_mpi.core.replicas.planner import ReplicaPlanner

    X, rng, found = matrix_of(options), np.random.default_rng(options.seed), []
    for machines in (30, 100, 500):
        speeds = tuple(rng.uniform(1, 3, machines).tolist())
        parts = cut_parts(X.indptr, 8 * machines, 64)
        holders = spread_copies(parts.count, [1.0] * machines, options.copies)
        placement = ReplicaPlacement(holders, parts.bounds.tolist(), machines)
        ratios, seconds = [], []
        for _ in range(options.turns):
            gone = rng.choice(np.arange(1, machines + 1), options.copies - 1, replace=False)
            available = tuple(sorted(set(range(1, machines + 1)) - set(gone.tolist())))
            plan = ReplicaPlanner(parts, placement).plan
            begin = time.perf_counter()
            made = plan(available, speeds)
            seconds.append(time.perf_counter() - begin)
            ratios.append(made.makespan / made.bound)
        found.append(measure.figure(f"makespan, {machines} machines", ratios, "", "the least"))
        found.append(measure.figure(f"plan, {machines} machines", seconds, "s"))
    return found


def pagerank(options: Any, directory: Path) -> list[Figure]:
    X = matrix_of(options)
    cec_mpi.encode(X, directory / "store", options.machines, copies=options.copies)
    out, w = directory / "out", np.full(X.shape[1], 1 / X.shape[1])
    words = ["cec-mpi", "run", directory / "store", "pagerank", "--local", options.machines]

    def ours() -> float:
        measure.run([*words, "--out", out, "--overwrite"])
        summary = json.loads((out / "summary.json").read_text())
        return float(summary["seconds"] / summary["steps"])

    ways = {"a step of the run": ours, "SciPy": clocked(lambda: X.T @ w, 3)}
    times = in_turns(ways, options.turns)
    found = [ratio(times, "a step of the run", "SciPy", over="SciPy's product on one core")]
    return found + [measure.figure(name, each, "s") for name, each in times.items()]


def add_options(parser: Any) -> None:
    parser.add_argument("part", choices=["lockstep", "store", "plans", "pagerank"])
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--columns", type=int, default=10_000)
    parser.add_argument("--entries", type=int, default=16_000_000)
    parser.add_argument("--machines", type=int, default=2)
    parser.add_argument("--copies", type=int, default=2)
    parser.add_argument("--steps", type=int, default=15, help="in a turn: the median counts")


if __name__ == "__main__":
    if sys.argv[1:2] == [TAKE]:
        take(json.loads(sys.argv[2]))
    else:
        measure.main(__doc__, figures, add_options)
