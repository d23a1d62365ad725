"""Makespans of machines that really are slower, at speeds that are learned."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from cec_mpi.bench.benchmark import Benchmark, checked
from cec_mpi.bench.figures import Figure
from cec_mpi.bench.programs import mpirun, run_to_end
from cec_mpi.bench.scratch import random_store, scratch
from cec_mpi.bench.slower.limits import WAYS, slowed
from cec_mpi.errors import InputError
from cec_mpi.options import values
from cec_mpi.options.option import option
from cec_mpi.processes.launcher import detect_launcher

_USED = 0.8  # of all cores, so that nothing but the limits is in the way


@dataclass(frozen=True)
class Makespan(Benchmark):
    """Steps of machines that get different shares of a core.

    Attributes
    ----------
    speeds : str
        Of machines 1..N, relative, as ``"2,2,3"``: what shares of the cores they get.
    recovery : int
        L.
    rows, columns : int
        Shape (q, r) of a random X.
    vectors : int
        Columns of W: the more, the longer a step takes beside a period of the limits.
    learning : int
        Steps that are not counted.
    slow_by : {"auto", "cgroup", "neighbour"}
    directory : str
    limit : float
        Seconds for all steps.
    """

    what = "makespan"
    title = "steps of machines that really are slower: over the optimum in hindsight"

    turns: int = option(30, "--turns K", "steps that are counted", values.positive)
    speeds: str = option(
        "5,4,3,2,1.5,1",
        "--speeds LIST",
        "of machines 1 to N, relative, which are learned (default: 5,4,3,2,1.5,1)",
        checked(values.speeds),
    )
    recovery: int = option(3, "--recovery L", "any L of them give X back", values.positive)
    rows: int = option(12_000, "--rows Q", "of X", values.positive)
    columns: int = option(2_000, "--columns R", "of X", values.positive)
    vectors: int = option(
        512, "--vectors K", "in a block, so that a step takes long", values.positive
    )
    learning: int = option(15, "--learning K", "steps before those that count", values.whole)
    slow_by: str = option(
        "auto",
        "--slow-by",
        "limits of control groups, a busy neighbour on each core, or the first where one may",
        choices=WAYS,
    )
    directory: str = option("", "--directory DIR", "for a throwaway store")
    limit: float = option(
        600.0, "--limit SECONDS", "after which the ranks are ended", values.seconds
    )

    def measure(self) -> list[Figure]:
        """Have machines compute, each with its share of a core.

        Raises
        ------
        CecError
            The settings do not fit each other, or the ranks failed.
        """
        shares = self.shares()
        with scratch(self.directory) as directory:
            store = random_store(
                directory, self.rows, self.columns, len(shares), self.recovery, seed=self.seed
            )
            with slowed(shares, self.slow_by) as (way, machines):
                told = {
                    "store": str(store),
                    "out": str(directory / "steps.json"),
                    "machines": machines,
                    "steps": self.learning + self.turns,
                    "columns": self.columns,
                    "vectors": self.vectors,
                    "seed": self.seed,
                }
                (directory / "told.json").write_text(json.dumps(told))
                program = (sys.executable, "-m", "mpi4py", "-m", "cec_mpi.bench.slower.machines")
                command = [*mpirun(len(shares) + 1), *program, str(directory / "told.json")]
                threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
                run_to_end(command, self.limit, environment=os.environ | threads)
            return self._figures(directory / "steps.json", way)

    def shares(self) -> list[float]:
        """Of a core, by machine.

        Raises
        ------
        InputError
            The settings do not fit each other, or this computer.
        """
        if detect_launcher() is not None:
            raise InputError(
                "bench makespan under a launcher: expected none, since it starts ranks"
            )
        speeds = values.speeds(self.speeds)
        if self.recovery > len(speeds):
            raise InputError(
                f"--recovery {self.recovery}: expected at most {len(speeds)}, a machine for each "
                "of --speeds"
            )
        cores = len(os.sched_getaffinity(0))
        whole = min(_USED * cores / sum(speeds), 1 / max(speeds))
        return [speed * whole for speed in speeds]

    def _figures(self, path: Path, way: str) -> list[Figure]:
        steps = json.loads(path.read_text())
        by = {
            scheme: [each for each in steps if each["cyclic"] == (scheme == "cyclic")]
            for scheme in ("heterogeneous", "cyclic")
        }
        ours, cyclic = (by[scheme][self.learning :] for scheme in by)
        measured = [each["measured"] for each in ours]
        over = "the optimum in hindsight"
        found = [
            Figure.of(f"makespan, slowed by {way}", _ratios(ours), over=over),
            Figure.of("cyclic", _ratios(cyclic), over=over),
        ]
        if self.learning:
            first = _ratios(by["heterogeneous"][:1])
            found.append(Figure.of("the first step, at equal speeds", first, over=over))
        return [*found, Figure.of("makespan", measured, unit="s")]


def _ratios(steps: list[dict[str, float]]) -> list[float]:
    return [each["measured"] / each["hindsight"] for each in steps]
