"""A sparse X on replicas: steps, stores, plans and PageRank, beside SciPy, PETSc and HiGHS.

    python scripts/benchmarks/sparse.py lockstep [--scale 20] [--entries 16000000] [--machines 2]
    python scripts/benchmarks/sparse.py store
    python scripts/benchmarks/sparse.py plans [--several 12 30 100 500]
    python scripts/benchmarks/sparse.py makespan --machines 12 --copies 3 --base 90000
    python scripts/benchmarks/sparse.py pagerank
    python scripts/benchmarks/sparse.py petsc --petsc 'mpirun -n 2 /usr/bin/python3'
    python scripts/benchmarks/sparse.py trace --trace FILE --machines 16 --copies 6 --scale 16

The matrix is the graph of R-MAT with ``2**scale`` nodes (Chakrabarti, Zhan and Faloutsos, 2004),
or with ``--rows`` and ``--columns`` one with equally many entries in random places of each row.

- lockstep: X w and X'v over a bare Bcast, SciPy's product of the same rows, and a Gatherv.
- store: its bytes over those of J copies of X in CSR, the time of encode over that of reading and
  writing these bytes, both synced, and the memory that it takes.
- plans: CPU time of a plan, also over HiGHS, which solves the linear program alone; its makespan
  over the least one.
- makespan: steps of machines with emulated speeds from 1 to 3, which are learned, over the least
  time at the speeds of the step.
- pagerank: to 1e-10 by a run of this computer's own machines, over power iteration with SciPy.
- petsc: X w over PETSc's MatMult with as many ranks, which leaves all vectors where they are.
- trace: steps with who is available by a spot trace (``{"data": [count, ..]}``), a step for each of
  its ticks from ``--first`` on with enough machines; what they read, and how far from SciPy they
  are.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from scipy.sparse import csr_array, load_npz, save_npz

import cec_mpi
import cec_mpi.store
import measure
from cec_mpi.runtime.records.reading import read_lines
from measure import Figure, in_turns, median_of, ratio

TAKE, ENCODE = "--take", "--encode"  # what this script is called with as a rank, or to encode
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
    parts = lockstep, store, plans, makespan, pagerank, petsc, trace
    return list({part.__name__: part for part in parts}[options.part](options, directory))


def lockstep(options: Any, directory: Path) -> list[Figure]:
    X = matrix_of(options)
    save_npz(directory / "X.npz", X, compressed=False)
    cec_mpi.encode(X, directory / "store", options.machines, copies=options.copies)
    told = {"directory": str(directory), "turns": options.turns, "steps": options.steps}
    times = measure.again(__file__, options.machines + 1, TAKE, json.dumps(told))
    found = [ratio(times, "X w", "bare", over="a bare Bcast, SciPy's products, Gatherv")]
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
    times = in_turns({name: ways[name] for name in told.get("ways", ways)}, told["turns"])
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


def petsc(options: Any, directory: Path) -> list[Figure]:
    X = matrix_of(options)
    save_npz(directory / "X.npz", X, compressed=False)
    cec_mpi.encode(X, directory / "store", options.machines, copies=options.copies)
    told = {"directory": str(directory), "turns": 1, "steps": options.steps, "ways": ["X w"]}
    words = [*shlex.split(options.petsc), Path(__file__).parent / "petsc_step.py"]

    def ours() -> float:
        times = measure.again(__file__, options.machines + 1, TAKE, json.dumps(told))
        return float(times["X w"][0])

    def theirs() -> float:
        return float(measure.run([*words, directory / "X.npz", options.steps]).split()[-1])

    times = in_turns({"X w": ours, "PETSc": theirs}, options.turns)
    found = [ratio(times, "X w", "PETSc", over="PETSc's MatMult")]
    return found + [measure.figure(name, each, "s") for name, each in times.items()]


def store(options: Any, directory: Path) -> list[Figure]:
    X = matrix_of(options)
    source, copy = directory / "X.npz", directory / "copy"
    save_npz(source, X, compressed=False)
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    del X
    target, made_bytes, memory = directory / "store", [], []

    def encode() -> float:
        shutil.rmtree(target, ignore_errors=True)
        words = source, target, options.machines, options.copies
        told = measure.again(__file__, 0, ENCODE, *words)
        made_bytes.append(sum(f.stat().st_size for f in target.iterdir()))
        memory.append(told["memory"])
        return float(told["seconds"])

    def read_and_write() -> float:
        begin = time.perf_counter()
        data = source.read_bytes()
        for k in range(options.copies):
            with Path(f"{copy}-{k}").open("wb") as file:
                file.write(data)
                os.fsync(file.fileno())
        return time.perf_counter() - begin

    times = in_turns({"encode": encode, "bytes": read_and_write}, options.turns)
    return [
        measure.figure("store", [made_bytes[0] / (options.copies * size)], "", "J copies in CSR"),
        ratio(times, "encode", "bytes", over="reading once and writing J times"),
        measure.figure("memory of encode", memory, "MB"),
        *(measure.figure(name, each, "s") for name, each in times.items()),
    ]


def take_encode(source: str, target: str, machines: str, copies: str) -> None:
    """Encode; prints seconds, and the memory that is no page of a file."""
    import threading

    import cec_mpi.encoding.replicas  # which takes its time

    process, most, done = psutil.Process(), [0], threading.Event()

    def private() -> int:
        told = process.memory_info()
        return int(told.rss - told.shared)

    def watch() -> None:
        while not done.wait(0.005):
            most[0] = max(most[0], private())

    watcher, before, begin = threading.Thread(target=watch), private(), time.perf_counter()
    watcher.start()
    cec_mpi.encode(source, target, int(machines), copies=int(copies))
    seconds = time.perf_counter() - begin
    done.set()
    watcher.join()
    print(json.dumps({"seconds": seconds, "memory": (most[0] - before) / 2**20}))


def plans(options: Any, directory: Path) -> list[Figure]:
    from cec_mpi.core.replicas.holders import group_by_holders, spread_copies
    from cec_mpi.core.replicas.parts import cut_parts
    from cec_mpi.core.replicas.placement import ReplicaPlacement
    from cec_mpi.core.replicas.planner import ReplicaPlanner
    from helpers.linear_program import least_time

    X, rng, found = matrix_of(options), np.random.default_rng(options.seed), []
    for machines in options.several:
        parts = cut_parts(X.indptr, 8 * machines, 64)
        holders = spread_copies(parts.count, [1.0] * machines, options.copies)
        placement = ReplicaPlacement(holders, parts.bounds.tolist(), machines)
        ratios, times = [], {"plan": [], "HiGHS": []}
        for _ in range(options.turns):
            speeds = rng.uniform(1, 3, machines)
            gone = rng.choice(np.arange(1, machines + 1), options.copies - 1, replace=False)
            available = tuple(sorted(set(range(1, machines + 1)) - set(gone.tolist())))
            planner = ReplicaPlanner(parts, placement)
            begin = time.process_time()
            made = planner.plan(available, tuple(speeds.tolist()))
            times["plan"].append(time.process_time() - begin)
            ratios.append(made.makespan / made.bound)
            sets, which = group_by_holders(holders, available)
            costs, present = np.bincount(which, parts.costs), speeds[np.array(available) - 1]
            begin = time.process_time()
            least_time(costs, sets, present)
            times["HiGHS"].append(time.process_time() - begin)
        name = f"{machines} machines"
        found.append(measure.figure(f"makespan, {name}", ratios, "", "the least"))
        found.append(ratio(times, "plan", "HiGHS", f"plan, {name}", "HiGHS"))
        found.append(measure.figure(f"plan, {name}", times["plan"], "s"))
    return found


def makespan(options: Any, directory: Path) -> list[Figure]:
    from helpers.recording import MemoryRecorder

    X = matrix_of(options)
    cec_mpi.encode(X, directory / "store", options.machines, copies=options.copies)
    speeds = np.random.default_rng(options.seed).uniform(1, 3, options.machines).tolist()
    emulated = {"emulate_speeds": speeds, "emulate_base": options.base}
    kept, w = MemoryRecorder(), np.ones(X.shape[1])
    with cec_mpi.open_operator(
        directory / "store", local=options.machines, recorder=kept, **emulated
    ) as operator:
        for _ in range(options.steps + 8):  # speeds are learned
            operator.matvec(w)
    steps = kept.records[-options.steps :]
    found = [each.measured_makespan / each.hindsight_makespan for each in steps]
    seconds = [each.measured_makespan for each in steps]
    over = "the least at the speeds of the step"
    return [
        measure.figure(f"makespan, {options.machines} machines", found, "", over),
        measure.figure("makespan", seconds, "s"),
    ]


def pagerank(options: Any, directory: Path) -> list[Figure]:
    X = matrix_of(options)
    cec_mpi.encode(X, directory / "store", options.machines, copies=options.copies)
    out, told = directory / "out", {}
    words = ["cec-mpi", "run", directory / "store", "pagerank", "tol=1e-10"]
    words += ["--local", options.machines, "--out", out, "--overwrite", "-q"]

    def ours() -> float:
        measure.run(words)
        told["ours"] = json.loads((out / "summary.json").read_text())
        return float(told["ours"]["seconds"])

    def theirs() -> float:
        begin = time.perf_counter()
        told["SciPy"], told["iterations"] = by_scipy(X)
        return time.perf_counter() - begin

    times = in_turns({"PageRank": ours, "SciPy": theirs}, options.turns)
    apart = np.abs(np.load(out / "result.npy") - told["SciPy"]).sum()
    return [
        ratio(times, "PageRank", "SciPy", over="SciPy's iterations on one core"),
        measure.figure("iterations", [told["ours"]["iterations"]], "", "SciPy's"),
        measure.figure("iterations of SciPy", [told["iterations"]], ""),
        measure.figure("difference", [apart], "", "1, as a sum of absolute values"),
        *(measure.figure(name, each, "s") for name, each in times.items()),
    ]


def by_scipy(X: csr_array) -> tuple[Any, int]:
    """PageRank of links in rows by power iteration, until scores change by 1e-10."""
    degrees = X @ np.ones(X.shape[1])
    share = np.divide(1.0, degrees, out=np.zeros_like(degrees), where=degrees > 0)
    scores, change, made = np.full(X.shape[0], 1 / X.shape[0]), 1.0, 0
    while change >= 1e-10:
        after = 0.85 * (X.T @ (scores * share) + scores[degrees == 0].sum() / scores.size)
        after += 0.15 / scores.size
        after /= after.sum()
        change, scores, made = float(np.abs(after - scores).sum()), after, made + 1
    return scores, made


def trace(options: Any, directory: Path) -> list[Figure]:
    X, out = matrix_of(options), directory / "out"
    cec_mpi.encode(X, directory / "store", options.machines, copies=options.copies)
    counts = json.loads(Path(options.trace).read_text())["data"]
    some = counts[options.first : options.first + options.ticks]
    (directory / "trace.json").write_text(json.dumps({"data": some}))
    manifest = cec_mpi.store.open_store(directory / "store").manifest
    enough = max(map(min, manifest.layout.holders))  # count c stands for machines 1 to c
    able = sum(count >= enough for count in some)
    W = np.random.default_rng(options.seed).standard_normal((able, X.shape[1]))
    np.save(directory / "W.npy", W)
    words = ["cec-mpi", "run", directory / "store", "matvec", f"vectors={directory / 'W.npy'}"]
    words += ["--out", out, "-q", "--wait", "--availability", directory / "trace.json"]
    measure.run(words, options.machines + 1)
    steps = read_lines(out / "steps.jsonl").steps
    sizes = [f.stat().st_size for f in sorted((directory / "store").glob("shard-*.csr"))]
    read = np.array([each.load_bytes for each in steps]).sum(axis=0)
    again = np.maximum(read - sizes, 0).sum()
    later = sum(sum(each.load_bytes) for each in steps[1:])
    expected = (X @ W.T).T
    apart = np.abs(np.load(out / "result.npy") - expected).max() / np.abs(expected).max()
    changes = sum(one.available != two.available for one, two in pairwise(steps))
    waits = [each.waited_ticks for each in steps]
    return [
        measure.figure("bytes read twice", [again / sum(sizes)], "", "the store"),
        measure.figure("bytes read after the first step", [later / sum(sizes)], "", "the store"),
        measure.figure("largest difference from SciPy", [apart], "", "the largest entry"),
        measure.figure("steps", [len(steps)], "steps"),
        measure.figure("changes of who is there", [changes], "steps"),
        measure.figure("steps that waited", [np.count_nonzero(waits)], "steps"),
        measure.figure("ticks that were waited", [sum(waits)], "ticks"),
    ]


def add_options(parser: Any) -> None:
    parts = ["lockstep", "store", "plans", "makespan", "pagerank", "petsc", "trace"]
    parser.add_argument("part", choices=parts)
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--columns", type=int, default=10_000)
    parser.add_argument("--entries", type=int, default=16_000_000)
    parser.add_argument("--machines", type=int, default=2)
    parser.add_argument("--copies", type=int, default=2)
    parser.add_argument("--steps", type=int, default=15, help="in a turn: the median counts")
    parser.add_argument("--several", type=int, nargs="+", default=[12, 30, 100, 500])
    parser.add_argument("--base", type=float, default=90_000, help="rows per second of speed 1")
    parser.add_argument("--petsc", help="command that starts ranks of Python with petsc4py")
    parser.add_argument("--trace", help="file of counts")
    parser.add_argument("--first", type=int, default=0, help="tick of the trace")
    parser.add_argument("--ticks", type=int, default=288, help="a day of five minutes each")


if __name__ == "__main__":
    if sys.argv[1:2] == [TAKE]:
        take(json.loads(sys.argv[2]))
    elif sys.argv[1:2] == [ENCODE]:
        take_encode(*sys.argv[2:])
    else:
        measure.main(__doc__, figures, add_options)
