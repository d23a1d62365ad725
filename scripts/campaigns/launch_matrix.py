"""Every way to start processes, with every kind of run.

    python scripts/campaigns/launch_matrix.py [--repeat 3] [--only mpirun] [--seed I]
        [--seconds 3600]

Starts products and power iteration while machines come and go in lockstep, and elastic products, in
which nothing happens, a machine is killed, and one is told to leave: each by mpirun on this
computer, by mpirun in a job of Slurm, by srun, and by mpirun over three hosts, with the options
that let others continue and without them. Brings up the cluster and the hosts itself
(`scripts/slurm/cluster`, `scripts/hosts`; as root), and prints a table of what was seen: in how
many of the repetitions the result was NumPy's, and the exit codes. With ``--only`` it leaves out
ways whose names do not begin so, and it begins no other way after ``--seconds``.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "tests"))

import cec_mpi
from helpers import ROOT, commands
from helpers.mpi_at_hand import ONE_HOST_ONLY, library

LIMIT = 60  # seconds for a run that takes three
MACHINES, RECOVERY, RANKS = 7, 3, 8  # two ranks on each of four nodes
SCRIPTS = ROOT / "scripts"
PRODUCTS = ("X", "vectors={}/W.npy")
TASKS: dict[str, tuple[Any, ...]] = {
    "lockstep": PRODUCTS,
    "power, preempted": ("S", "power", "--available-probability", 0.8, "--wait"),
    "elastic": (*PRODUCTS, "--elastic"),
    "machine 3 killed": (*PRODUCTS, "--elastic", "--inject", "kill:3@5"),
    "machine 3 leaves": (*PRODUCTS, "--elastic", "--inject", "leave:3@5"),
}
SURVIVING = ["--with-ft", "ulfm"], ["--continuous"]  # options of mpirun of Open MPI 5


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="", help="ways whose names begin so")
    parser.add_argument("--seed", type=int, default=0, help="of matrices")
    parser.add_argument("--seconds", type=float, default=3600)
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.seconds
    with tempfile.TemporaryDirectory(prefix="cec-mpi-matrix-") as name:
        directory = Path(name)
        expected = make_stores(directory, arguments.seed)
        print(library())
        print(f"{'':36}" + "".join(f"{task:24}" for task in TASKS))
        for way, variables, launch in ways(directory, arguments.only):
            if time.monotonic() > end:
                break
            cells = []
            for task, (store, *words) in TASKS.items():
                right, codes = 0, Counter[int | str | None]()
                for number in range(arguments.repeat):
                    out = directory / f"{way}-{task}-{number}"
                    command = [*launch, "cec-mpi", "run", directory / store, "--out", out]
                    command += [str(word).format(directory) for word in words]
                    done = commands.run_to_end(command, limit=LIMIT, variables=variables)
                    codes["left" if done.left else done.returncode] += 1
                    right += is_right(out, expected["power" if store == "S" else "products"])
                said = ", ".join("no end" if code is None else f"{code}" for code in codes)
                cells.append(f"{right}/{arguments.repeat} right ({said})")
            print(f"{way:36}" + "".join(f"{cell:24}" for cell in cells), flush=True)
    return 0


def make_stores(directory: Path, seed: int) -> dict[str, np.ndarray]:
    """Two stores and vectors; returns the result of each task."""
    rng = np.random.default_rng(seed)
    X, W = rng.standard_normal((600, 60)), rng.standard_normal((30, 60))
    basis, _ = np.linalg.qr(rng.standard_normal((60, 60)))
    S = basis * np.append(np.linspace(0, 5, 59), 9) @ basis.T
    for name, array in (("X", X), ("S", S), ("W", W)):
        np.save(directory / f"{name}.npy", array)
    for name in "XS":
        cec_mpi.encode(directory / f"{name}.npy", directory / name, MACHINES, RECOVERY)
    return {"products": W @ X.T, "power": basis[:, -1]}


def is_right(out: Path, expected: np.ndarray) -> bool:
    """Whether a run has this result, an eigenvector but for its sign."""
    if not (out / "summary.json").exists():
        return False
    found = np.load(out / "result.npy")
    return any(np.allclose(sign * found, expected, atol=1e-5) for sign in (1, -1))


def ways(directory: Path, only: str) -> Iterator[tuple[str, dict[str, str], list[object]]]:
    """Ways to start processes: name, variables, and the words of a launcher."""
    number = ["-n", RANKS]
    surviving = SURVIVING if library().startswith("Open MPI v5") else ()
    mpirun = [["mpirun", *options] for options in ([], *surviving)]
    best: list[object] = [*mpirun[bool(surviving)], *number]
    for words in mpirun:
        if (name := " ".join(words)).startswith(only):
            yield name, {}, [*words, *number]
    if "mpirun in a job".startswith(only) or only.startswith("srun"):
        with cluster(directory / "cluster") as variables:
            job = ["salloc", "--quiet", "--no-kill", "--nodes=4", "--ntasks-per-node=2", *number]
            yield "mpirun in a job", variables, [*job, *best]
            for kind in ("pmix", "pmi2", "none"):
                srun = ["srun", f"--mpi={kind}"]
                yield " ".join(srun), variables, [*job, *srun]
                srun += ["--no-kill", "--kill-on-bad-exit=0", "--wait=0"]
                yield f"srun --mpi={kind}, surviving", variables, [*job, *srun]
    if "mpirun over 3 hosts".startswith(only):
        with hosts(directory / "hosts") as (on_first, file):
            unset = [f"--unset={name}" for name in ONE_HOST_ONLY]
            is_open_mpi = library().startswith("Open MPI")
            options = ["--bind-to", "none", "--hostfile"] if is_open_mpi else ["-machinefile"]
            over_hosts = [*on_first, "env", *unset, commands.mpirun(), *options, file, *best[1:]]
            yield "mpirun over 3 hosts", {"OMPI_MCA_mpi_yield_when_idle": "1"}, over_hosts


@contextmanager
def cluster(directory: Path) -> Iterator[dict[str, str]]:
    """A Slurm cluster: variables with which its commands find it."""
    script = SCRIPTS / "slurm" / "cluster"
    port = str(random.randrange(20_000, 30_000, 10))
    size = {"NODES": "4", "CPUS": "2", "PORT": port}
    up = [script, "up", directory]
    subprocess.run(up, env=os.environ | size, stdout=sys.stderr, check=True, timeout=60)
    try:
        yield {"SLURM_CONF": str(directory / "slurm.conf")}
    finally:
        subprocess.run([script, "down", directory], check=True, timeout=60)


@contextmanager
def hosts(directory: Path) -> Iterator[tuple[list[object], Path]]:
    """Three hosts: the words that run a command on the first, and a hostfile."""
    script = SCRIPTS / "hosts"
    environment = commands.environment()
    subprocess.run([script, "up", "3", directory], env=environment, check=True, timeout=60)
    try:
        ranks = [f"node{n}:{count}" for n, count in ((1, 3), (2, 3), (3, 2))]
        formats = {"O": "openmpi", "M": "mpich", "I": "intelmpi"}
        words = ["hostfile", "--format", formats[library()[0]], *ranks]
        text = commands.run_to_end([sys.executable, "-m", "cec_mpi", *words]).stdout
        file = directory / "hostfile"
        file.write_text(text)
        yield [script, "on", directory, "node1"], file
    finally:
        subprocess.run([script, "down", directory], check=True, timeout=60)


if __name__ == "__main__":
    sys.exit(main())
