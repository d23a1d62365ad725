"""Learned speeds beside known ones, on emulated machines with noise.

    mpirun -n 7 python scripts/benchmarks/bench_learn.py [--seeds 20] [--noise 0.1]
        [--milliseconds 15]

Machines of speeds 2, 2, 3, 3, 4, 4 of which any three are enough; after 30 steps machine 6
has half its speed. For each seed the same noise is met once with speeds that are learned
and once with those that are true. Prints the mean measured makespan of steps 11 to 30, and
of the 20 steps that begin 10 steps after the change, learned over known: mean of all seeds
and the worst seed. The known speeds are told of the change; the learned ones have to find it.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from mpi4py import MPI

import cec_mpi
from cec_mpi.machine.emulation import SpeedChange
from cec_mpi.records.recorder import Recorder

SPEEDS = (2.0, 2.0, 3.0, 3.0, 4.0, 4.0)
CHANGED = (2.0, 2.0, 3.0, 3.0, 4.0, 2.0)
ROWS, RECOVERY = 12_600, 3
CHANGE, STEPS = 30, 60
PARTS = {"steps 11 to 30": slice(10, 30), "after a machine's speed halved": slice(40, 60)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--noise", type=float, default=0.1)
    parser.add_argument("--milliseconds", type=float, default=15.0, help="of the best plan")
    chosen = parser.parse_args()
    comm = MPI.COMM_WORLD
    base = ROWS / sum(SPEEDS) / (chosen.milliseconds / 1e3)
    ratios = {part: [] for part in PARTS}
    with tempfile.TemporaryDirectory(prefix="cec-bench-") as directory:
        store = Path(comm.bcast(directory)) / "store"
        if comm.rank == 0:
            np.save(store.with_name("X.npy"), np.ones((ROWS, 10)))
            cec_mpi.encode(store.with_name("X.npy"), store, len(SPEEDS), RECOVERY)
        comm.Barrier()
        for seed in range(chosen.seeds):
            emulation = {
                "emulate_speeds": SPEEDS,
                "emulate_base": base,
                "emulate_noise": chosen.noise,
                "emulate_changes": (SpeedChange(CHANGE, 6, 0.5),),
                "seed": seed,
            }
            learned = makespans(comm, store, STEPS, **emulation)
            known = makespans(comm, store, CHANGE, speeds=SPEEDS, **emulation)
            after = makespans(comm, store, STEPS, speeds=CHANGED, **emulation)
            if comm.rank == 0:
                known += after[CHANGE:]
                for part, steps in PARTS.items():
                    ratios[part].append(np.mean(learned[steps]) / np.mean(known[steps]))
        comm.Barrier()
    if comm.rank == 0:
        print(f"{chosen.seeds} seeds, noise {chosen.noise:.0%}, learned over known speeds")
        for part, found in ratios.items():
            print(f"{part:32} mean {np.mean(found):.3f}, worst seed {max(found):.3f}")


def makespans(comm: MPI.Intracomm, store: Path, steps: int, **options: object) -> list[float]:
    """Measured makespans of a run; empty on the machines."""
    found: list[float] = []
    recorder = Recorder(watch=lambda record: found.append(record.measured_makespan))
    with cec_mpi.open_operator(store, comm, recorder=recorder, **options) as X:
        if X is not None:
            w = np.ones(X.shape[1])
            for _ in range(steps):
                X.matvec(w)
    return found


if __name__ == "__main__":
    main()
