"""A sparse X on replicas: steps, stores, plans and PageRank, compared with SciPy, PETSc and HiGHS.

    python scripts/benchmarks/sparse.py lockstep [--scale 20] [--entries 16000000] [--machines 2]
    python scripts/benchmarks/sparse.py store
    python scripts/benchmarks/sparse.py plans [--several 12 30 100 500]
    python scripts/benchmarks/sparse.py makespan --machines 12 --copies 3 --base 90000
    python scripts/benchmarks/sparse.py pagerank
    python scripts/benchmarks/sparse.py petsc --petsc 'mpirun -n 2 /usr/bin/python3'
    python scripts/benchmarks/sparse.py trace --trace FILE --machines 16 --copies 6 --scale 16

The matrix is an R-MAT graph with ``2**scale`` nodes (Chakrabarti, Zhan and Faloutsos, 2004),
or with ``--rows`` and ``--columns`` one with equally many entries at random places in each row.

- lockstep: X w and X'v over a bare Bcast, SciPy's product of the same rows, and a Gatherv.
- store: its bytes over those of J copies of X in CSR, the time of encode over that of reading and
  writing these bytes, both synced, and the memory that it takes.
- plans: CPU time of a plan, also over that of HiGHS, which solves only the linear program; its
  makespan over the least one.
- makespan: of machines with emulated speeds from 1 to 3, which are learned, over the least one at
  the speeds of the step.
- pagerank: to 1e-10 with machines on this computer, over power iteration with SciPy.
- petsc: X w over PETSc's MatMult with as many ranks, whose vectors remain distributed.
- trace: steps whose available machines follow a spot trace (``{"data": [count, ..]}``), one for
  each tick from ``--first`` on with enough machines: bytes read, and the largest difference from
  SciPy.
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
from cec_mpi.runtime.records.reading import read_records
from measure import Figure, median_seconds, ratio, time_in_turns

RANK, ENCODE = "--rank", "--encode"  # first argument of this script in subprocesses
_QUADRANTS = (0.57, 0.76, 0.95)  # R-MAT's a, a + b and a + b + c


def make_rmat_graph(scale: int, entries: int, seed: int) -> csr_array:
    """Return an R-MAT graph with ones as values."""
    rng = np.random.default_rng(seed)
    rows, columns = np.zeros((2, entries), np.int64)
    for _ in range(scale):
        quadrants = np.searchsorted(_QUADRANTS, rng.random(entries))
        rows, columns = 2 * rows + quadrants // 2, 2 * columns + quadrants % 2
    indices = rows.astype(np.int32), columns.astype(np.int32)
    matrix = csr_array((np.ones(entries), indices), shape=(1 << scale,) * 2)
    matrix.data[:] = 1  # instead of the number of equal edges
    return matrix


def make_equal_rows(rows: int, columns: int, entries: int, seed: int) -> csr_array:
    """Return a matrix with equally many random entries in each row."""
    rng, row_entries = np.random.default_rng(seed), entries // rows
    indices = np.sort(
        rng.integers(columns, size=(rows, row_entries), dtype=np.int32), axis=1
    ).reshape(-1)
    pointers = np.arange(rows + 1, dtype=np.int32) * row_entries
    matrix = csr_array(
        (rng.standard_normal(rows * row_entries), indices, pointers), (rows, columns)
    )
    matrix.sum_duplicates()
    return matrix


def make_matrix(options: Any) -> csr_array:
    if options.rows:
        return make_equal_rows(options.rows, options.columns, options.entries, options.seed)
    return make_rmat_graph(options.scale, options.entries, options.seed)


def figures(options: Any, directory: Path) -> list[Figure]:
    """Return the figures of the selected part."""
    parts = lockstep, store, plans, makespan, pagerank, petsc, trace
    return list({part.__name__: part for part in parts}[options.part](options, directory))


def lockstep(options: Any, directory: Path) -> list[Figure]:
    X = make_matrix(options)
    save_npz(directory / "X.npz", X, compressed=False)
    cec_mpi.encode(X, directory / "store", options.machines, copies=options.copies)
    settings = {"directory": str(directory), "turns": options.turns, "steps": options.steps}
    times = measure.run_script(__file__, options.machines + 1, RANK, json.dumps(settings))
    results = [ratio(times, "X w", "bare", over="a bare Bcast, SciPy's products, Gatherv")]
    results.append(ratio(times, "X'v", "X w"))
    return results + [measure.figure(name, seconds, "s") for name, seconds in times.items()]


def measure_on_ranks(settings: dict[str, Any]) -> None:
    """Print the times on rank 0."""
    from mpi4py import MPI

    comm, directory = MPI.COMM_WORLD, Path(settings["directory"])
    X = load_npz(directory / "X.npz")

    def time_product(name: str, size: int) -> float:
        with cec_mpi.open_operator(directory / "store", comm, threads=1) as operator:
            if operator is None:
                return 0.0
            product, vector = getattr(operator, name), np.ones(size)
            for _ in range(10):  # speeds are learned
                product(vector)
            return median_seconds(lambda: product(vector), settings["steps"])

    candidates = {
        "X w": lambda: time_product("matvec", X.shape[1]),
        "X'v": lambda: time_product("rmatvec", X.shape[0]),
        "bare": lambda: median_seconds(make_bare_step(comm, X), settings["steps"]),
    }
    times = time_in_turns(
        {name: candidates[name] for name in settings.get("candidates", candidates)},
        settings["turns"],
    )
    if comm.rank == 0:
        print(json.dumps(times))


def make_bare_step(comm: Any, X: csr_array) -> Any:
    """Return a step whose shares have equally many nonzeros."""
    target_nnz = np.arange(1, comm.size - 1) * (X.nnz / (comm.size - 1))
    cuts = [0, *np.searchsorted(X.indptr, target_nnz).tolist(), X.shape[0]]
    counts = [0, *np.diff(cuts).tolist()]
    local_rows = X[cuts[comm.rank - 1] : cuts[comm.rank]] if comm.rank else None
    w, no_rows = np.ones(X.shape[1]), np.empty(0)
    answers = [np.empty(X.shape[0]), counts] if comm.rank == 0 else None

    def step() -> None:
        comm.Bcast(w)
        comm.Gatherv(no_rows if local_rows is None else local_rows @ w, answers)

    return step


def petsc(options: Any, directory: Path) -> list[Figure]:
    X = make_matrix(options)
    save_npz(directory / "X.npz", X, compressed=False)
    cec_mpi.encode(X, directory / "store", options.machines, copies=options.copies)
    settings = {
        "directory": str(directory),
        "turns": 1,
        "steps": options.steps,
        "candidates": ["X w"],
    }
    arguments = [*shlex.split(options.petsc), Path(__file__).parent / "petsc_step.py"]

    def time_cec_mpi() -> float:
        times = measure.run_script(__file__, options.machines + 1, RANK, json.dumps(settings))
        return float(times["X w"][0])

    def time_petsc() -> float:
        return float(measure.run([*arguments, directory / "X.npz", options.steps]).split()[-1])

    times = time_in_turns({"X w": time_cec_mpi, "PETSc": time_petsc}, options.turns)
    results = [ratio(times, "X w", "PETSc", over="PETSc's MatMult")]
    return results + [measure.figure(name, seconds, "s") for name, seconds in times.items()]


def store(options: Any, directory: Path) -> list[Figure]:
    X = make_matrix(options)
    source, copy = directory / "X.npz", directory / "copy"
    save_npz(source, X, compressed=False)
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    del X
    target, store_bytes, memory = directory / "store", [], []

    def encode() -> float:
        shutil.rmtree(target, ignore_errors=True)
        arguments = source, target, options.machines, options.copies
        result = measure.run_script(__file__, 0, ENCODE, *arguments)
        store_bytes.append(sum(f.stat().st_size for f in target.iterdir()))
        memory.append(result["memory"])
        return float(result["seconds"])

    def read_and_write() -> float:
        begin = time.perf_counter()
        data = source.read_bytes()
        for k in range(options.copies):
            with Path(f"{copy}-{k}").open("wb") as file:
                file.write(data)
                os.fsync(file.fileno())
        return time.perf_counter() - begin

    times = time_in_turns({"encode": encode, "bytes": read_and_write}, options.turns)
    return [
        measure.figure("store", [store_bytes[0] / (options.copies * size)], "", "J copies in CSR"),
        ratio(times, "encode", "bytes", over="reading once and writing J times"),
        measure.figure("memory of encode", memory, "MB"),
        *(measure.figure(name, seconds, "s") for name, seconds in times.items()),
    ]


def measure_encode(source: str, target: str, machines: str, copies: str) -> None:
    """Encode, and print the seconds and the private memory."""
    import threading

    import cec_mpi.encoding.replicas  # so that its import is not timed

    process, peak, done = psutil.Process(), [0], threading.Event()

    def private_memory() -> int:
        info = process.memory_info()
        return int(info.rss - info.shared)

    def track_peak() -> None:
        while not done.wait(0.005):
            peak[0] = max(peak[0], private_memory())

    tracker, before = threading.Thread(target=track_peak), private_memory()
    begin = time.perf_counter()
    tracker.start()
    cec_mpi.encode(source, target, int(machines), copies=int(copies))
    seconds = time.perf_counter() - begin
    done.set()
    tracker.join()
    print(json.dumps({"seconds": seconds, "memory": (peak[0] - before) / 2**20}))


def plans(options: Any, directory: Path) -> list[Figure]:
    from cec_mpi.core.replicas.holders import group_by_holders, spread_copies
    from cec_mpi.core.replicas.parts import cut_parts
    from cec_mpi.core.replicas.placement import ReplicaPlacement
    from cec_mpi.core.replicas.planner import ReplicaPlanner
    from helpers.linear_program import min_makespan

    X, rng, results = make_matrix(options), np.random.default_rng(options.seed), []
    for machines in options.several:
        parts = cut_parts(X.indptr, 8 * machines, 64)
        holders = spread_copies(parts.count, [1.0] * machines, options.copies)
        placement = ReplicaPlacement(holders, parts.bounds.tolist(), machines)
        ratios, times = [], {"plan": [], "HiGHS": []}
        for _ in range(options.turns):
            speeds = rng.uniform(1, 3, machines)
            missing = rng.choice(np.arange(1, machines + 1), options.copies - 1, replace=False)
            available = tuple(sorted(set(range(1, machines + 1)) - set(missing.tolist())))
            planner = ReplicaPlanner(parts, placement)
            begin = time.process_time()
            plan = planner.plan(available, tuple(speeds.tolist()))
            times["plan"].append(time.process_time() - begin)
            ratios.append(plan.makespan / plan.bound)
            sets, group = group_by_holders(holders, available)
            costs = np.bincount(group, parts.costs)
            available_speeds = speeds[np.array(available) - 1]
            begin = time.process_time()
            min_makespan(costs, sets, available_speeds)
            times["HiGHS"].append(time.process_time() - begin)
        name = f"{machines} machines"
        results.append(measure.figure(f"makespan, {name}", ratios, "", "the least"))
        results.append(ratio(times, "plan", "HiGHS", f"plan, {name}", "HiGHS"))
        results.append(measure.figure(f"plan, {name}", times["plan"], "s"))
    return results


def makespan(options: Any, directory: Path) -> list[Figure]:
    from helpers.recording import MemoryRecorder

    X = make_matrix(options)
    cec_mpi.encode(X, directory / "store", options.machines, copies=options.copies)
    speeds = np.random.default_rng(options.seed).uniform(1, 3, options.machines).tolist()
    emulated = {"emulate_speeds": speeds, "emulate_base": options.base}
    recorder, w = MemoryRecorder(), np.ones(X.shape[1])
    with cec_mpi.open_operator(
        directory / "store", local=options.machines, recorder=recorder, **emulated
    ) as operator:
        for _ in range(options.steps + 8):  # speeds are learned
            operator.matvec(w)
    steps = recorder.records[-options.steps :]
    results = [step.measured_makespan / step.hindsight_makespan for step in steps]
    seconds = [step.measured_makespan for step in steps]
    over = "the least at the speeds of the step"
    return [
        measure.figure(f"makespan, {options.machines} machines", results, "", over),
        measure.figure("makespan", seconds, "s"),
    ]


def pagerank(options: Any, directory: Path) -> list[Figure]:
    X = make_matrix(options)
    cec_mpi.encode(X, directory / "store", options.machines, copies=options.copies)
    out, outcome = directory / "out", {}
    arguments = ["cec-mpi", "run", directory / "store", "pagerank", "tol=1e-10"]
    arguments += ["--local", options.machines, "--out", out, "--overwrite", "-q"]

    def time_cec_mpi() -> float:
        measure.run(arguments)
        outcome["summary"] = json.loads((out / "summary.json").read_text())
        return float(outcome["summary"]["seconds"])

    def time_scipy() -> float:
        begin = time.perf_counter()
        outcome["SciPy"], outcome["iterations"] = scipy_pagerank(X)
        return time.perf_counter() - begin

    times = time_in_turns({"PageRank": time_cec_mpi, "SciPy": time_scipy}, options.turns)
    difference = np.abs(np.load(out / "result.npy") - outcome["SciPy"]).sum()
    return [
        ratio(times, "PageRank", "SciPy", over="SciPy's iterations on one core"),
        measure.figure("iterations", [outcome["summary"]["iterations"]], "", "SciPy's"),
        measure.figure("iterations of SciPy", [outcome["iterations"]], ""),
        measure.figure("difference", [difference], "", "1, as a sum of absolute values"),
        *(measure.figure(name, seconds, "s") for name, seconds in times.items()),
    ]


def scipy_pagerank(X: csr_array) -> tuple[Any, int]:
    """Return PageRank of links in rows by power iteration until scores change by 1e-10."""
    degrees = X @ np.ones(X.shape[1])
    share = np.divide(1.0, degrees, out=np.zeros_like(degrees), where=degrees > 0)
    scores, change, iterations = np.full(X.shape[0], 1 / X.shape[0]), 1.0, 0
    while change >= 1e-10:
        new = 0.85 * (X.T @ (scores * share) + scores[degrees == 0].sum() / scores.size)
        new += 0.15 / scores.size
        new /= new.sum()
        change, scores = float(np.abs(new - scores).sum()), new
        iterations += 1
    return scores, iterations


def trace(options: Any, directory: Path) -> list[Figure]:
    X, out = make_matrix(options), directory / "out"
    cec_mpi.encode(X, directory / "store", options.machines, copies=options.copies)
    counts = json.loads(Path(options.trace).read_text())["data"]
    trace_counts = counts[options.first : options.first + options.ticks]
    (directory / "trace.json").write_text(json.dumps({"data": trace_counts}))
    manifest = cec_mpi.store.open_store(directory / "store").manifest
    min_count = max(map(min, manifest.layout.holders))  # count c stands for machines 1 to c
    feasible_ticks = sum(count >= min_count for count in trace_counts)
    W = np.random.default_rng(options.seed).standard_normal((feasible_ticks, X.shape[1]))
    np.save(directory / "W.npy", W)
    arguments = ["cec-mpi", "run", directory / "store", "matvec", f"vectors={directory / 'W.npy'}"]
    arguments += ["--out", out, "-q", "--wait", "--availability", directory / "trace.json"]
    measure.run(arguments, options.machines + 1)
    steps = read_records(out / "steps.jsonl").steps
    sizes = [f.stat().st_size for f in sorted((directory / "store").glob("shard-*.csr"))]
    read = np.array([step.load_bytes for step in steps]).sum(axis=0)
    read_again = np.maximum(read - sizes, 0).sum()
    read_later = sum(sum(step.load_bytes) for step in steps[1:])
    expected = (X @ W.T).T
    difference = np.abs(np.load(out / "result.npy") - expected).max() / np.abs(expected).max()
    changes = sum(before.available != after.available for before, after in pairwise(steps))
    waits = [step.waited_ticks for step in steps]
    return [
        measure.figure("bytes read twice", [read_again / sum(sizes)], "", "the store"),
        measure.figure(
            "bytes read after the first step", [read_later / sum(sizes)], "", "the store"
        ),
        measure.figure("largest difference from SciPy", [difference], "", "the largest entry"),
        measure.figure("steps", [len(steps)], "steps"),
        measure.figure("changes of available machines", [changes], "steps"),
        measure.figure("steps that waited", [np.count_nonzero(waits)], "steps"),
        measure.figure("ticks of waiting", [sum(waits)], "ticks"),
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
    parser.add_argument(
        "--steps", type=int, default=15, help="steps in a turn, whose median counts"
    )
    parser.add_argument("--several", type=int, nargs="+", default=[12, 30, 100, 500])
    parser.add_argument("--base", type=float, default=90_000, help="rows per second of speed 1")
    parser.add_argument("--petsc", help="command that starts Python with petsc4py on each rank")
    parser.add_argument("--trace", help="file with the number of machines at each tick")
    parser.add_argument("--first", type=int, default=0, help="first tick of the trace")
    parser.add_argument(
        "--ticks",
        type=int,
        default=288,
        help="number of ticks (default: a day of five minutes each)",
    )


if __name__ == "__main__":
    if sys.argv[1:2] == [RANK]:
        measure_on_ranks(json.loads(sys.argv[2]))
    elif sys.argv[1:2] == [ENCODE]:
        measure_encode(*sys.argv[2:])
    else:
        measure.main(__doc__, figures, add_options)
