"""CPU time of rank 0 for elastic steps of many machines, above that of a bare loop of ZeroMQ.

    python scripts/benchmarks/machines.py [--machines 6 16 32 64] [--before ../another-clone]

The bare loop sends as many bytes of w to each of as many processes, and receives as many bytes of
answers, through the same kind of socket. X w of 600 x 600, L = 3. Prints for N machines the least
microseconds of a step, and the cost of each additional machine above the bare loop.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import cec_mpi
import measure
from measure import Figure, figure

OURS, BARE, ECHO = "--ours", "--bare", "--echo"  # first argument of this script in subprocesses
RECOVERY, PARTS = 3, 10


def figures(options: Any, directory: Path) -> list[Figure]:
    """Measure the least CPU time of both programs in turns."""
    packages = {"": Path(), ", before": options.before} if options.before else {"": Path()}
    least: dict[tuple[str, int], float] = {}
    for _ in range(options.turns):
        for machines in options.machines:
            size = options.rows, options.columns, machines, RECOVERY, options.seed
            store = measure.make_store(directory, *size)
            candidates = {f"ours{name}": (OURS, package) for name, package in packages.items()}
            for candidate, (part, package) in {**candidates, "bare": (BARE, Path())}.items():
                arguments = part, store, machines, options.steps, options.rows, options.columns
                seconds = measure.run_script(__file__, 0, *arguments, package=package)
                least[candidate, machines] = min(seconds, least.get((candidate, machines), seconds))
    results = []
    first = min(options.machines)
    for candidate in dict.fromkeys(candidate for candidate, _ in least):
        for machines in options.machines:
            name = f"{machines} machines, {candidate}"
            results.append(figure(name, [1e6 * least[candidate, machines]], "us"))
            if candidate != "bare" and machines != first:
                few, many = (least[candidate, n] - least["bare", n] for n in (first, machines))
                increase = 1e6 * (many - few) / (machines - first)
                results.append(figure(f"{name}, each additional machine", [increase], "us", "bare"))
    return results


def least_cpu_seconds(step: Any, steps: int) -> float:
    """Return the CPU seconds of a step in this process, the least of ten parts."""
    results = []
    for _ in range(PARTS):
        begin = time.process_time()
        for _ in range(steps):
            step()
        results.append((time.process_time() - begin) / steps)
    return min(results)


def measure_products(store: str, machines: int, steps: int) -> float:
    """Return the CPU seconds of a step of X w."""
    options = {"local": machines, "threads": 1, "speeds": (1.0,) * machines}
    with cec_mpi.open_operator(store, **options) as X:
        w = np.ones(X.shape[1])
        X.matvec(w)
        return least_cpu_seconds(lambda: X.matvec(w), steps)


def measure_bare_loop(machines: int, steps: int, rows: int, columns: int) -> float:
    """Return the CPU seconds of sending w to all processes, and receiving their answers."""
    import zmq

    with tempfile.TemporaryDirectory() as directory, zmq.Context() as context:
        address = f"ipc://{directory}/bare"
        router = context.socket(zmq.ROUTER)
        router.bind(address)
        arguments = [sys.executable, __file__, ECHO, address, str(8 * rows // machines)]
        processes = [subprocess.Popen(arguments) for _ in range(machines)]
        identities = [router.recv_multipart()[0] for _ in processes]
        message = bytes(8 * columns)

        def step() -> None:
            for identity in identities:
                router.send(identity, zmq.SNDMORE)
                router.send(message)
            for _ in identities:
                router.recv_multipart(copy=False)

        step()
        results = least_cpu_seconds(step, steps)
        for identity in identities:
            router.send_multipart([identity, b""])
        for process in processes:
            process.wait()
        router.close()
    return results


def echo(address: str, size: int) -> None:
    """Answer each message until an empty one arrives."""
    import zmq

    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.connect(address)
        dealer.send(b"here")
        while len(dealer.recv(copy=False)):
            dealer.send(bytes(size))


def add_options(parser: Any) -> None:
    parser.add_argument("--machines", type=int, nargs="+", default=[6, 16, 32, 64])
    parser.add_argument("--rows", type=int, default=600)
    parser.add_argument("--columns", type=int, default=600)
    parser.add_argument("--steps", type=int, default=30, help="in each of ten parts")
    parser.add_argument(
        "--before", type=Path, help="another clone, measured in turns with this one"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == [OURS]:
        print(json.dumps(measure_products(sys.argv[2], *map(int, sys.argv[3:5]))))
    elif sys.argv[1:2] == [BARE]:
        print(json.dumps(measure_bare_loop(*map(int, sys.argv[3:7]))))
    elif sys.argv[1:2] == [ECHO]:
        echo(sys.argv[2], int(sys.argv[3]))
    else:
        measure.main(__doc__, figures, add_options, turns=3)
