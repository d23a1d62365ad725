"""Machines on GPUs: whether their products are right, their speed, and runs with GPUs and CPUs.

    python scripts/benchmarks/devices.py check [--device torch:cuda]
    python scripts/benchmarks/devices.py products [--device torch:cuda] [--gigabytes 8]
    python scripts/benchmarks/devices.py run [--device torch:cuda] [--gigabytes 4]

Without ``--device``, `check` and `products` use each library that finds a GPU, and `run` the first.

`check` tries products, precisions, sparse copies, a full GPU, vectors on the device and commands,
and prints a line for each. `products` prints the speed of products, including the transfer of
vectors and answers, divided by the speed of a copy on the device. `run` runs 8 machines on a host
with a GPU and 12 on CPUs, kills the host and lets it join again: makespans over the optimum.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import cec_mpi
from cec_mpi.errors import InputError, ShortageError
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.store.devices import Device, find_accelerators, find_devices

STRIPE = 64 << 20  # bytes of X that are written at once
RNG = np.random.default_rng()
GPU_MACHINES, CPU_MACHINES, RECOVERY = 8, 12, 10


def main() -> int:
    """Run the selected part; return the number of problems."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("check", "products", "run"))
    parser.add_argument(
        "--device", action="append", help="as for cec-mpi run; may be repeated (default: every GPU)"
    )
    parser.add_argument("--gigabytes", type=float, default=8.0, help="size of the shard, or of X")
    parser.add_argument("--columns", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds", type=float, default=240.0, help="start no measurement after this time"
    )
    parser.add_argument("--directory", help="for throwaway stores")
    options = parser.parse_args()
    global RNG
    RNG = np.random.default_rng(options.seed)
    deadline = time.monotonic() + options.seconds
    devices = find_accelerators()
    if options.device:
        devices = [device for text in options.device for device in find_devices(text)]
    if not devices:
        print("no device was found", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="cec-mpi-bench-", dir=options.directory) as name:
        if options.part == "check":
            return sum(
                check_device(device, Path(name) / str(n)) for n, device in enumerate(devices)
            )
        if options.part == "products":
            measure_products(devices, Path(name), options, deadline)
        else:
            measure_run(devices[0], Path(name), options, deadline)
    return 0


def write_matrix(path: Path, rows: int, columns: int, dtype: str) -> Path:
    """Write a file of random numbers, the same in each stripe."""
    X = np.lib.format.open_memmap(path, "w+", np.dtype(dtype), (rows, columns))
    height = max(1, STRIPE // (X.itemsize * columns))
    stripe = (RNG.random((min(height, rows), columns)) - 0.5).astype(dtype)
    for begin in range(0, rows, height):
        X[begin : begin + height] = stripe[: min(height, rows - begin)]
    X.flush()
    return path


# --- check ----------------------------------------------------------------------------------


def check_device(device: Device, directory: Path) -> int:
    """Check a device, and print a line for each case; return the number of problems."""
    directory.mkdir()
    X = RNG.standard_normal((4096, 700))
    for dtype in ("float64", "float32"):
        cec_mpi.encode(X, directory / dtype, 4, 2, dtype=dtype)
    float64, several = directory / "float64", f"cpu,{device.name},cpu,{device.name}"
    svd = "run", float64, "svd", "k=2", "-q", "--device"
    cases: dict[str, Callable[[], object]] = {
        f"{dtype} {precision}": partial(
            check_products, device, directory / dtype, X, precision, tolerance
        )
        for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-5))
        for precision in ("double", "shard")
    }
    cases |= {
        "mixed": partial(check_products, device, float64, X, "double", 1e-12, several),
        "sparse": partial(check_sparse, device, directory),
        "full GPU": partial(check_shortage, device),
        "vectors": partial(check_vectors, device, float64, X),
        "vectors and shards": partial(check_vectors, device, float64, X, device=device.name),
        "run": partial(run_command, *svd, device.name, "--serial", "--out", directory / "serial"),
        "local": partial(run_command, *svd, several, "--local", 4, "--out", directory / "local"),
        "doctor": partial(run_command, "doctor"),
    }
    problems = 0
    for name, case in cases.items():
        begin = time.perf_counter()
        try:
            details = case()
            print(f"{device.name} {name}: ok, {time.perf_counter() - begin:.2f} s {details or ''}")
        except Exception:
            problems += 1
            print(f"{device.name} {name}: FAILED\n{traceback.format_exc(limit=-6)}")
        sys.stdout.flush()
    return problems


def check_products(
    device: Device,
    store: Path,
    X: Any,
    precision: Any,
    tolerance: float,
    names: str = "",
    sets: Any = (None, {1, 2}, {3, 4}),  # few, because JAX compiles a program for each shape
) -> str:
    """Compare products of several sets of machines with NumPy; return the largest difference."""
    worst = 0.0
    with cec_mpi.open_operator(store, device=names or device.name, precision=precision) as A:
        for machines in sets:
            A.available = machines
            for k in (1, 8):
                for product, matrix in ((A, X), (A.H, X.T)):
                    V = RNG.standard_normal((matrix.shape[1], k))
                    V = V[:, 0] if k == 1 else V
                    expected = matrix @ V
                    difference = abs(product @ V - expected).max() / abs(expected).max()
                    worst = max(worst, difference)
    if worst > tolerance:
        raise AssertionError(f"largest difference {worst:.1e}, expected {tolerance:.0e} at most")
    return f"(largest difference {worst:.1e})"


def check_sparse(device: Device, directory: Path) -> str:
    X = scipy.sparse.random_array((2000, 1500), density=0.01, format="csr", rng=RNG)
    cec_mpi.encode(X, directory / "sparse", 4, copies=2)
    try:
        sets = None, {1, 2, 3}, {2, 3, 4}
        return check_products(device, directory / "sparse", X, "double", 1e-12, sets=sets)
    except InputError as error:  # JAX has no such products
        return f"({error})"


def check_shortage(device: Device) -> str:
    _, total = device.memory()
    try:
        with device.explain_shortage("the shard is too large"):
            device.empty((2 * total // (8 << 10), 1 << 10), np.dtype(np.float64))
    except ShortageError as error:
        return f"({error})"
    raise AssertionError("an array of twice the memory was allocated")


def check_vectors(device: Device, store: Path, X: Any, /, **options: Any) -> str:
    """Multiply vectors on the device, and compare the products with NumPy."""
    w, v = RNG.standard_normal(X.shape[1]), RNG.standard_normal((X.shape[0], 3))
    with device.explain_shortage(""), cec_mpi.open_operator(store, **options) as A:
        vector, block = (device.xp.asarray(device.put(x), copy=True) for x in (w, v))
        product, adjoint = A @ vector, A.H @ block
        for result, expected, operand in ((product, X @ w, vector), (adjoint, X.T @ v, block)):
            if type(result) is not type(operand):
                raise AssertionError(f"{type(operand)} returned {type(result)}")
            received = np.empty(expected.shape)
            device.get(result, received)
            np.testing.assert_allclose(received, expected, atol=1e-9)
    return f"({type(product).__module__}, {getattr(product, 'device', '')})"


def run_command(*arguments: object) -> str:
    """Run a command; return the printed lines about devices, or raise if it fails."""
    done = subprocess.run(
        [sys.executable, "-m", "cec_mpi", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode:
        raise AssertionError(f"exit code {done.returncode}: {done.stdout}{done.stderr}")
    return "; ".join(
        line for line in done.stdout.splitlines() if "device" in line or ":cuda" in line
    )


# --- products -------------------------------------------------------------------------------


def measure_products(devices: list[Device], directory: Path, options: Any, deadline: float) -> None:
    """Print the rate of each product over that of a copy on the device."""
    columns = options.columns
    print(f"| {options.gigabytes:g} GB | product | GB/s | over a copy |\n|---|---|---:|---:|")
    for dtype in ("float64", "float32"):
        rows = int(options.gigabytes * 1e9 / np.dtype(dtype).itemsize / columns)
        file = write_matrix(directory / "X.npy", rows, columns, dtype)
        cec_mpi.encode(file, directory / dtype, 1, 1, dtype=dtype, scaling="none")
        file.unlink()
        store = cec_mpi.open_store(directory / dtype)
        for device in devices:
            if time.monotonic() > deadline:
                print(f"{device.name} {dtype}: skipped, no time left")
                continue
            try:
                print_rates(device, store, dtype, options)
            except Exception:
                print(f"{device.name} {dtype}: FAILED\n{traceback.format_exc(limit=-6)}")


def print_rates(device: Device, store: Any, dtype: str, options: Any) -> None:
    """Print the rates of one device and dtype."""
    shard = store.open_shard(1, device=device)
    rows, columns = shard.rows.shape
    size = shard.rows.nbytes
    begin = time.perf_counter()
    shard.load([(0, rows)])
    rate = size / (time.perf_counter() - begin)
    print(f"| {device.name} {dtype} | read from the page cache, checked | {rate / 1e9:.1f} | |")
    first = np.empty((1, 1), dtype)  # reading it waits for the copy

    def copy() -> None:
        copied = device.xp.asarray(shard.device_rows, copy=True)
        device.get(copied[:1, :1], first)

    with device.explain_shortage("for a copy"):
        copy_rate = 2 * size / min_seconds(copy, options.turns)
    print(f"| {device.name} {dtype} | copy, read and written | {copy_rate / 1e9:.0f} | 1 |")
    for arithmetic in dict.fromkeys((dtype, "float64")):
        for k in (1, 8, 32):
            W, U = (
                RNG.standard_normal(shape).astype(arithmetic) for shape in ((k, columns), (rows, k))
            )
            out, sums = np.empty((rows, k), arithmetic), np.empty((columns, k))
            candidates = {
                "X W": lambda W=W, out=out: shard.multiply(W, [(0, rows)], out),
                "X'V": lambda U=U, sums=sums: shard.multiply_transposed(U, [(0, rows)], sums),
            }
            for name, candidate in candidates.items():
                rate = size / min_seconds(candidate, options.turns)
                print(
                    f"| {device.name} {dtype}, products in {arithmetic} | {name}, {k} columns | "
                    f"{rate / 1e9:.0f} | {rate / copy_rate:.2f} |",
                    flush=True,
                )


def min_seconds(call: Callable[[], object], turns: int) -> float:
    """Return the shortest time of a call, after a first one that is not timed."""
    seconds = []
    for _ in range(1 + turns):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return min(seconds[1:])


# --- run ------------------------------------------------------------------------------------


@contextmanager
def join_process(conn: Path, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that joins a run; kill it at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "cec_mpi", "join", conn, *map(str, arguments)]
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def measure_run(device: Device, directory: Path, options: Any, deadline: float) -> None:
    """Print makespans over the optimum with machines on a GPU and on CPUs."""
    columns, total = options.columns, GPU_MACHINES + CPU_MACHINES
    rows = int(options.gigabytes * 1e9 / 8 / columns)
    file = write_matrix(directory / "X.npy", rows, columns, "float64")
    begin = time.perf_counter()
    cec_mpi.encode(file, directory / "store", total, RECOVERY, scaling="none")
    print(f"encoded in {time.perf_counter() - begin:.1f} s")
    w = RNG.standard_normal(columns)
    expected = np.load(file, mmap_mode="r") @ w
    conn, records = directory / "run.json", []
    recorder = Recorder(on_step=records.append)
    gpu = "--machines", GPU_MACHINES, "--device", device.name

    def step() -> float:
        begin = time.perf_counter()
        y = A @ w
        seconds = time.perf_counter() - begin
        np.testing.assert_allclose(y, expected, atol=1e-9 * abs(expected).max())
        return seconds

    def measure_steps(title: str, machines: int) -> None:
        begin = time.perf_counter()
        while not records or len(records[-1].available) != machines:
            if time.monotonic() > deadline:
                raise SystemExit(f"{title}: no time left; the last step had {records[-1:]}")
            step()
        print(f"{title}: after {time.perf_counter() - begin:.1f} s", flush=True)
        seconds = [step() for _ in range(3 * options.turns)][options.turns :]
        last = records[-2 * options.turns :]
        ratio = np.median([step.measured_makespan / step.hindsight_makespan for step in last])
        makespan = np.median([step.measured_makespan for step in last])
        busy = [f"{seconds / makespan:.2f}" for seconds in last[-1].compute_seconds]
        print(
            f"{title}: makespan {1e3 * makespan:.2f} ms, {ratio:.2f} times the optimum; step "
            f"{1e3 * np.median(seconds):.2f} ms\n  rows of machines {last[-1].rows}\n  time over "
            f"the makespan {busy}",
            flush=True,
        )

    with (
        cec_mpi.open_operator(directory / "store", accept=conn, wait=True, recorder=recorder) as A,
        ExitStack() as processes,
    ):
        for _ in range(CPU_MACHINES):
            processes.enter_context(join_process(conn, "--threads", 1, "-q"))
        with join_process(conn, *gpu) as host:
            measure_steps("8 machines on a GPU, 12 on CPUs", total)
            host.kill()
            print(f"the GPU's host is killed: the next step takes {1e3 * step():.0f} ms")
        measure_steps("12 machines on CPUs", CPU_MACHINES)
        with join_process(conn, *gpu):
            measure_steps("the GPU's host has joined again", total)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
