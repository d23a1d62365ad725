"""Every way to start ranks of this Python's MPI, with every kind of run.

    python scripts/campaigns/launch_matrix.py [--repeat 3]

Starts products, power iteration while machines come and go, and products that lose a machine
(``--on-loss continue``), each by mpirun on this computer, by mpirun in a job of Slurm, by srun
with pmix and pmi2, and by mpirun over three hosts. Brings up the cluster and the hosts itself
(`scripts/slurm/cluster`, `scripts/hosts`; as root), and prints a table of what was seen: in how
many of the repetitions the result was NumPy's, and the exit codes.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
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
LOSSES = ("--on-loss", "continue", "--inject", "kill:3@5")
TASKS: dict[str, tuple[Any, ...]] = {
    "matvec": ("X", "--vectors", "{}/W.npy"),
    "power, preempted": ("S", "--task", "power", "--available-probability", 0.8, "--wait"),
    "a machine killed": ("X", "--vectors", "{}/W.npy", *LOSSES),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeat", type=int, default=3)
    repeat = parser.parse_args().repeat
    with tempfile.TemporaryDirectory(prefix="cec-mpi-matrix-") as name:
        directory = Path(name)
        expected = make_stores(directory)
        print(library())
        print(f"{'':28}" + "".join(f"{task:26}" for task in TASKS))
        for way, variables, launcher in ways(directory):
            cells = []
            for task, (store, *words) in TASKS.items():
                survives = task == "a machine killed"
                launch = [str(word) for word in launcher(survives)]
                right, codes = 0, Counter[int | None]()
                for number in range(repeat):
                    out = directory / f"{way}-{task}-{number}"
                    command = [*launch, "cec-mpi", "run", directory / store, "--out", out]
                    command += [str(word).format(directory) for word in words]
                    done = commands.run_to_end(command, limit=LIMIT, variables=variables)
                    codes[done.returncode] += 1
                    right += is_right(out, expected[task])
                said = ", ".join(
                    "no end" if code is None else f"{code}" for code, _ in codes.most_common()
                )
                cells.append(f"{right}/{repeat} right (code {said})")
            print(f"{way:28}" + "".join(f"{cell:26}" for cell in cells), flush=True)
    return 0


def make_stores(directory: Path) -> dict[str, np.ndarray]:
    """Two stores and vectors; returns the result of each task."""
    rng = np.random.default_rng(0)
    X, W = rng.standard_normal((600, 60)), rng.standard_normal((30, 60))
    basis, _ = np.linalg.qr(rng.standard_normal((60, 60)))
    S = basis * np.append(np.linspace(0, 5, 59), 9) @ basis.T
    for name, array in (("X", X), ("S", S), ("W", W)):
        np.save(directory / f"{name}.npy", array)
    for name in "XS":
        cec_mpi.encode(directory / f"{name}.npy", directory / name, MACHINES, RECOVERY)
    return {"matvec": W @ X.T, "a machine killed": W @ X.T, "power, preempted": basis[:, -1]}


def is_right(out: Path, expected: np.ndarray) -> bool:
    """Whether a run has this result, an eigenvector but for its sign."""
    if not (out / "summary.json").exists():
        return False
    found = np.load(out / "result.npy")
    return any(np.allclose(sign * found, expected, atol=1e-5) for sign in (1, -1))


def ways(directory: Path) -> Iterator[tuple[str, dict[str, str], Any]]:
    """Ways to start ranks: name, variables, and the words of a launcher that survives or not."""
    open_mpi = library().startswith("Open MPI v5")

    def mpirun(survives: bool) -> list[object]:
        ulfm = ["--with-ft", "ulfm"] if survives and open_mpi else []
        return ["mpirun", *ulfm, "-n", RANKS]

    yield "mpirun", {}, mpirun
    with cluster(directory / "cluster") as variables:
        job = ["salloc", "--quiet", "--no-kill", "--nodes=4", "--ntasks-per-node=2", "-n", RANKS]
        yield "mpirun in a job", variables, lambda survives: [*job, *mpirun(survives)]
        for kind in ("pmix", "pmi2"):

            def srun(survives: bool, kind: str = kind) -> list[object]:
                surviving = ["--no-kill", "--kill-on-bad-exit=0", "--wait=0"] if survives else []
                return [*job, "srun", f"--mpi={kind}", *surviving]

            yield f"srun --mpi={kind}", variables, srun
    with hosts(directory / "hosts") as (on_first, file):
        unset = [f"--unset={name}" for name in ONE_HOST_ONLY]
        options = ["--bind-to", "none", "--hostfile"] if open_mpi else ["-machinefile"]
        real = commands.mpirun()

        def over_hosts(survives: bool) -> list[object]:
            _, *words = mpirun(survives)
            return [*on_first, "env", *unset, real, *options, file, *words]

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
