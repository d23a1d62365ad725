"""Preempt machines that are jobs of their own, at random: every product has to be right.

    python scripts/campaigns/elastic_slurm.py [--seed I] [--minutes 3] [--machines 6]

Brings up a Slurm of four nodes (``scripts/slurm/cluster``), and starts there what ``cec-mpi slurm
--elastic`` writes: a master, and machines in partitions with 10 s and 2 s of notice. Every
few seconds a job that preempts the machines of a random node goes there; they come back a few
seconds later.

Prints steps, joins, losses, wrong products, and how long a join takes: from the start of the job
of a machine until the run has a number for it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "tests"))

import cec_mpi
from cec_mpi.records.recorder import read_steps
from helpers import ROOT
from helpers.jobs import Desk
from helpers.until_told import ENOUGH, vector

NODES, ROWS, SIZE = 4, 600, 60
# Each line of a job begins with the time.
TIMES = 'exec > >(while IFS= read -r line; do echo "$(date +%s.%N) $line"; done); echo started'


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--machines", type=int, default=6)
    parser.add_argument("--port", type=int, default=26_000, help="of the cluster")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cec-mpi-elastic-") as name:
        directory = Path(name)
        cluster = directory / "cluster"
        script = ROOT / "scripts" / "slurm" / "cluster"
        size = {"NODES": str(NODES), "CPUS": "4", "PORT": str(arguments.port)}
        subprocess.run([script, "up", cluster], check=True, env={**os.environ, **size})
        try:
            desk = Desk({"SLURM_CONF": str(cluster / "slurm.conf")}, directory)
            return campaign(desk, random.Random(arguments.seed), arguments)
        finally:
            subprocess.run([script, "down", cluster], check=True)


def campaign(desk: Desk, rng: random.Random, arguments: argparse.Namespace) -> int:
    """One run; 1 if something was wrong."""
    X = np.random.default_rng(1).standard_normal((ROWS, SIZE))
    np.save(desk.directory / "X.npy", X)
    cec_mpi.encode(desk.directory / "X.npy", desk.directory / "store", 6, 3)
    shutil.copy(ROOT / "tests" / "helpers" / "until_told.py", desk.directory)
    desk.run(
        *("cec-mpi", "slurm", "--elastic", arguments.machines, "--time", 60, "--warning", 60),
        *("--cpus-per-task", 2, "--sbatch", "exclude=n1", "--master-sbatch", "partition=high"),
        *(
            "--setup",
            TIMES,
            "--master-sbatch",
            "nodelist=n1",
            "run",
            "store",
            "--out",
            "out",
            "--task",
        ),
        *("until_told:products", "--checkpoint-every", 50),
    )
    master = desk.run("sbatch", "--parsable", "cec-mpi-master.sbatch").strip()
    half = arguments.machines // 2
    for partition, count in (("low", arguments.machines - half), ("spot", half)):
        words = f"--partition={partition}", f"--array=1-{count}"
        desk.run("sbatch", *words, "cec-mpi-machines.sbatch", master)
    urgent = desk.directory / "urgent.sbatch"
    urgent.write_text("#!/bin/bash\nsleep 1\n")
    end, preemption = time.monotonic() + 60 * arguments.minutes, time.monotonic() + 10
    preempted, again = 0, 0.0
    while time.monotonic() < end:
        if time.monotonic() > preemption:
            node = f"n{rng.randint(2, NODES)}"
            words = "--partition=high", f"--nodelist={node}", "--exclusive", "--output=/dev/null"
            desk.run("sbatch", *words, urgent)
            preempted += 1
            preemption = time.monotonic() + rng.uniform(2, 6)
        if time.monotonic() > again:
            desk.let_go_on()
            again = time.monotonic() + 4
        time.sleep(1.0)
    (desk.directory / ENOUGH).touch()
    due = time.monotonic() + 60
    while not (desk.directory / "out" / "summary.json").exists() and time.monotonic() < due:
        time.sleep(0.2)
    return report(desk.directory / "out", X, preempted)


def seconds_of_joins(directory: Path) -> list[float]:
    """From the start of the job of each machine until it has its number."""
    found = []
    for path in directory.glob("slurm-*_*.out"):
        begin: float | None = None
        for line in path.read_text().splitlines():
            at, _, said = line.partition(" ")
            if said == "started":
                begin = float(at)
            elif said.startswith("this is machine ") and begin is not None:
                found.append(float(at) - begin)
                begin = None
    return sorted(found)


def report(out: Path, X: np.ndarray, preempted: int) -> int:
    """Print what happened; 1 if something was wrong."""
    summary = json.loads((out / "summary.json").read_text())
    w = sum(vector(number, SIZE) for number in range(summary["products"]))
    is_right = np.allclose(np.load(out / "result.npy"), X @ w, atol=1e-6)
    _, steps = read_steps(out / "steps.jsonl")
    kinds = Counter(next(iter(event)) for step in steps for event in step["events"])
    print(f"{preempted} preemptions of nodes, {len(steps)} steps, {dict(kinds)}")
    print(
        f"wrong products: {summary['wrong']}; the sum of all is {'right' if is_right else 'WRONG'}"
    )
    if found := seconds_of_joins(out.parent):
        print(
            f"{len(found)} joins: {statistics.median(found):.2f} s, 95 %: "
            f"{found[int(0.95 * len(found))]:.2f} s"
        )
    return int(summary["wrong"] > 0 or not is_right)


if __name__ == "__main__":
    sys.exit(main())
