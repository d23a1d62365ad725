"""Machines that join and are lost, compared with workers of Dask on the same hosts.

    python scripts/benchmarks/losses.py [--losses kill,cut] [--turns 5]

Uses two hosts of `scripts/hosts` (root). The first one runs the master with two machines, and the
scheduler of Dask with two workers. A machine of `cec-mpi join`, or a worker of `dask worker
--no-nanny`, joins from the second one. Prints the seconds and CPU seconds from the start of its
process to the end of the first step, or round of small tasks, in which it took part; and the
seconds from its loss to the end of the first step or round without it, with default settings. It is
lost by SIGKILL (`kill`), by SIGSTOP (`stop`), or because the network loses all packets of its host
(`cut`). Dask takes up to ten minutes to notice `stop`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import cec_mpi
import measure
from helpers.recording import MemoryRecorder
from measure import Figure, ratio

ROOT = Path(__file__).parents[2]
FIRST_ADDRESS = "10.77.0.1"  # of node1
SIZES = 2000, 50, 3, 2  # rows, columns, machines, recovery threshold
TASKS = 20  # in a round
DASK = [sys.executable, "-m", "distributed.cli.dask_worker", "--no-nanny", "--no-dashboard"]
DASK += ["--nthreads", "1"]
LOSSES = {"kill": "killed", "stop": "stopped", "cut": "unplugged"}


def figures(options: Any, directory: Path) -> list[Figure]:
    """Measure joins and losses of both programs in turns."""
    store = measure.make_store(directory, *SIZES, options.seed)
    losses = options.losses.split(",")
    net = directory / "net"
    _run_hosts_script("up", 2, net)
    try:
        with _start_cec_mpi(net, directory, store) as ours, _start_dask(net, directory) as dask:
            candidates: dict[str, Callable[[], tuple[float, float, float]]] = {}
            for name, (changes, arguments) in {"cec_mpi": ours, "Dask": dask}.items():
                for loss in losses:
                    candidates[f"{name} {loss}"] = partial(
                        _join_and_lose, net, changes, arguments, loss
                    )
            joins: measure.Times = {name: [] for name in ("cec_mpi", "Dask")}
            cpu: measure.Times = {name: [] for name in joins}
            loss_times: measure.Times = {name: [] for name in candidates}
            for turn in range(options.turns):
                for name in list(candidates)[:: 1 if turn % 2 else -1]:
                    join_seconds, cpu_seconds, loss_seconds = candidates[name]()
                    joins[name.split()[0]].append(join_seconds)
                    cpu[name.split()[0]].append(cpu_seconds)
                    loss_times[name].append(loss_seconds)
    finally:
        _run_hosts_script("down", net)
    text = "from the start of a machine to its first step"
    results = [
        ratio(joins, "cec_mpi", "Dask", text, "Dask's worker to its first task"),
        *(measure.figure(f"{text}, {name}", joins[name], "s") for name in joins),
        ratio(cpu, "cec_mpi", "Dask", "its CPU time until then", "that of Dask's worker"),
        *(measure.figure(f"its CPU time until then, {name}", cpu[name], "s") for name in cpu),
    ]
    for loss in losses:
        text = f"until the run continues without a machine that was {LOSSES[loss]}"
        results.append(ratio(loss_times, f"cec_mpi {loss}", f"Dask {loss}", text, "Dask"))
        results += [
            measure.figure(f"{text}, {name}", loss_times[f"{name} {loss}"], "s") for name in joins
        ]
    return results


def _join_and_lose(
    net: Path, changes: Iterator[tuple[float, bool]], arguments: list[Any], loss: str
) -> tuple[float, float, float]:
    """Return the seconds of a join, its CPU seconds, and the seconds of a loss."""
    begin = time.monotonic()
    process = subprocess.Popen(
        [ROOT / "scripts" / "hosts", "on", net, "node2", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | measure.ONE_THREAD,
    )
    try:
        joined, is_present = next(changes)
        assert is_present
        processes = psutil.Process(process.pid).children(recursive=True)
        cpu_seconds = sum(sum(child.cpu_times()[:2]) for child in processes)
        time.sleep(1.0)  # until speeds are learned
        lost_at = time.monotonic()
        if loss == "cut":
            _run_hosts_script("link", net, "node2", "cut", "yes")
        for child in processes if loss != "cut" else ():
            child.send_signal(signal.SIGKILL if loss == "kill" else signal.SIGSTOP)
        noticed, is_present = next(changes)
        assert not is_present
    finally:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.wait()
        if loss == "cut":
            _run_hosts_script("link", net, "node2", "cut", "no")
    return joined - begin, cpu_seconds, noticed - lost_at


def _run_hosts_script(*arguments: object) -> None:
    subprocess.run([ROOT / "scripts" / "hosts", *map(str, arguments)], check=True)


@contextmanager
def _run_on_first_host(
    net: Path, directory: Path, *arguments: object
) -> Iterator[Iterator[tuple[float, bool]]]:
    """Run this script on the first host; yield the times when a machine has joined or is lost."""
    command = [ROOT / "scripts" / "hosts", "on", net, "node1", sys.executable, __file__]
    process = subprocess.Popen(
        [*command, "--on-first-host", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=directory,
        text=True,
        env=os.environ | measure.ONE_THREAD,
    )
    assert process.stdout is not None
    lines = (line for line in process.stdout if line.startswith("["))
    changes = (tuple(json.loads(line)) for line in lines)
    try:
        next(changes)  # after the first step
        yield changes
    finally:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.terminate()
        process.wait()


@contextmanager
def _start_cec_mpi(net: Path, directory: Path, store: Path) -> Iterator[Any]:
    with _run_on_first_host(net, directory, "cec_mpi", store) as changes:
        yield changes, [Path(sys.executable).with_name("cec-mpi"), "join", directory / "conn"]


@contextmanager
def _start_dask(net: Path, directory: Path) -> Iterator[Any]:
    with _run_on_first_host(net, directory, "Dask") as changes:
        arguments = ["--local-directory", directory / "dask", f"tcp://{FIRST_ADDRESS}:8786"]
        yield changes, [*DASK, *arguments]


def make_reporter() -> Callable[[bool], None]:
    """Return a function that prints the time when the presence of the joined machine changes."""
    last: list[bool] = []

    def report(is_present: bool) -> None:
        if last != [is_present]:
            print(json.dumps([time.monotonic(), is_present]), flush=True)
            last[:] = [is_present]

    return report


def run_master(store: str) -> None:
    """Run the master with two machines on this host."""
    report, recorder = make_reporter(), MemoryRecorder()
    with cec_mpi.open_operator(store, accept="conn", local=2, recorder=recorder) as X:
        w = np.ones(X.shape[1])
        while True:
            X @ w
            report(bool(recorder.records[-1].rows[2]))
            recorder.records.clear()


def run_scheduler() -> None:
    """Run the scheduler of Dask with two workers on this host."""
    from distributed import Client, LocalCluster, get_worker

    options = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "host": FIRST_ADDRESS,
        "scheduler_port": 8786,
    }
    report, is_present = make_reporter(), False
    with (
        LocalCluster(**options, dashboard_address=None, silence_logs=logging.ERROR) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        local_workers = set(cluster.scheduler.workers)

        def work(_: int) -> str:
            np.ones(10**5).sum()
            return get_worker().address

        while True:
            addresses = set(client.gather(client.map(work, range(TASKS), pure=False)))
            is_present = bool(addresses - local_workers) or (
                is_present and bool(set(cluster.scheduler.workers) - local_workers)
            )
            report(is_present)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--losses", default="kill,cut", help="comma-separated: kill, stop, cut")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--on-first-host"]:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())
        run_master(sys.argv[3]) if sys.argv[2] == "cec_mpi" else run_scheduler()
    else:
        measure.main(__doc__, figures, add_options, turns=5)
