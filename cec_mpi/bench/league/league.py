"""The same work by this package and by its peers, in turn, on the same trace of machines."""

from __future__ import annotations

import os
from argparse import ArgumentTypeError
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from cec_mpi.availability.given import read_availability
from cec_mpi.availability.models import Availability, Listed, RandomAvailability
from cec_mpi.bench.benchmark import Benchmark, checked
from cec_mpi.bench.figures import Figure
from cec_mpi.bench.league.contestants import (
    CONTESTANTS,
    OURS,
    expected_of,
    make_stores,
    outcome_of,
)
from cec_mpi.bench.league.work import Job, Outcome, make_matrix
from cec_mpi.bench.scratch import check_memory, check_room, scratch
from cec_mpi.bench.turns import log_turn
from cec_mpi.errors import InfeasibleError, InputError
from cec_mpi.machine.emulation import fit_base, measure_rate
from cec_mpi.options import values
from cec_mpi.options.option import option
from cec_mpi.processes.launcher import detect_launcher

SPOT = Path(__file__).parent / "spot.json"
_SPOT_MACHINES = 20  # of the trace that comes with the package
_EC2_ALWAYS = 2  # machines beyond L that are always available, of the trace "ec2"


def contestants(text: str) -> tuple[str, ...]:
    """Names of contestants, with commas between them, each once."""
    names = tuple(word.strip() for word in text.split(","))
    if not set(names) <= CONTESTANTS.keys() or len(set(names)) < len(names):
        raise ArgumentTypeError(f"{text!r}: expected some of {','.join(CONTESTANTS)}")
    return names


@dataclass(frozen=True)
class League(Benchmark):
    """Power iteration and least squares on one X, by each contestant.

    Attributes
    ----------
    size : int
        X is size x size.
    recovery : int
        L.
    speeds : str
        Of machines 1..N, relative, as ``"2,2,3"``; emulated, and known to all contestants.
    stragglers : int
        S, of this package's contestants.
    trace : str
        ``spot``, ``ec2`` or a file: who is available.
    hold : int
        Iterations in each tick of the trace.
    iterations : int
        Two thirds of them are of the power method.
    only : str
        Contestants beside `OURS`, with commas between them.
    base : float
        Rows per second of speed 1; 0: half of what this computer can do, shared out.
    directory : str
    limit : float
        Seconds for each program.
    """

    what = "league"
    title = "the same work without a code, with copies, restarted, on Dask: over this package"

    turns: int = option(3, "--turns K", "how often; the median counts", values.positive)
    size: int = option(4000, "--size Q", "rows and columns of X", values.positive)
    recovery: int = option(3, "--recovery L", "any L of them give X back", values.positive)
    speeds: str = option(
        "2,2,3,3,4,4",
        "--speeds LIST",
        "of machines 1 to N, relative; emulated (default: 2,2,3,3,4,4)",
        checked(values.speeds),
    )
    stragglers: int = option(
        0, "--stragglers S", "that this package is to tolerate, cyclic or not", values.whole
    )
    trace: str = option(
        "spot",
        "--trace NAME|FILE",
        "who is available: spot, a record of 20 spot instances; ec2, as in the method's "
        "experiments, L + 2 machines always and the others half of the time; or a file as for "
        "run --availability",
    )
    hold: int = option(10, "--hold K", "iterations in a tick of the trace", values.positive)
    iterations: int = option(
        240, "--iterations T", "two thirds of power iteration, the others of CGLS", values.positive
    )
    only: str = option(
        ",".join(CONTESTANTS), "--only LIST", "contestants (default: all)", checked(contestants)
    )
    base: float = option(
        0.0,
        "--emulate-base B",
        "rows per second of speed 1 (default: so that half of this computer is enough)",
        values.number,
    )
    directory: str = option("", "--directory DIR", "for throwaway files of 2 to 6 times X")
    limit: float = option(
        600.0, "--limit SECONDS", "after which a program is ended", values.seconds
    )

    def measure(self) -> list[Figure]:
        """Have each contestant do the work, in turn, and compare what they found.

        Raises
        ------
        CecError
            The settings do not fit each other, what a contestant needs is missing, or one of
            them failed, or computed something else than the others.
        """
        speeds = self.check()
        available = self.available()
        names = (OURS, *(name for name in contestants(self.only) if name != OURS))
        with scratch(self.directory) as directory:
            self._check_room(directory, len(speeds), "fastest" in names)
            make_matrix(directory / "X.npy", self.size, self.seed)
            job = Job(
                *(str(directory), self.size, self.recovery, speeds),
                base=self.base or self._base(directory / "X.npy", speeds),
                available=available,
                power=-(-2 * self.iterations // 3),
                seed=self.seed,
                stragglers=self.stragglers,
            )
            encoding = make_stores(job, names)
            expected = expected_of(job)
            found: dict[str, list[Outcome]] = {name: [] for name in names}
            for turn in range(self.turns):
                for name in names if turn % 2 == 0 else reversed(names):
                    outcome = outcome_of(name, job, self.limit, expected)
                    outcome.setup_seconds += encoding.get(name, 0.0)
                    found[name].append(outcome)
                    log_turn(turn, self.turns, name, outcome.seconds)
        return figures_of(found)

    def check(self) -> tuple[float, ...]:
        """The speeds, when all settings fit each other.

        Raises
        ------
        InputError
            Names the option.
        """
        if detect_launcher() is not None:
            raise InputError("bench league under a launcher: expected none, since it starts ranks")
        others = [name for name in contestants(self.only) if name != "dask"]
        if "dask" in self.only and find_spec("distributed") is None:
            raise InputError(
                "--only with dask: the package distributed is not installed; expected pip install "
                f"'cec_mpi[league]', or --only {','.join(others or [OURS])}"
            )
        speeds, needed = values.speeds(self.speeds), self.recovery + self.stragglers
        total = len(speeds)
        if needed > total:
            raise InputError(
                f"--recovery {self.recovery} and --stragglers {self.stragglers}: expected a sum of "
                f"at most {total}, the number of --speeds"
            )
        if self.size < total:
            raise InputError(f"--size {self.size}: expected at least {total}, one row a machine")
        if self.base < 0 or not np.isfinite(self.base):
            raise InputError(f"--emulate-base {self.base}: expected a positive number")
        return speeds

    def _check_room(self, directory: Path, machines: int, is_twice: bool) -> None:
        """Refuse an X for which there is no room on disk, or for its copies in memory."""
        whole = 8.0 * self.size**2
        shards = whole * machines / self.recovery
        check_memory(f"--size {self.size}", max(2 * whole, (1 + is_twice) * shards))
        check_room(directory, whole + (3 if is_twice else 1) * shards)

    def available(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the available machines in each iteration; ticks with too few are left out.

        Raises
        ------
        InfeasibleError
            No tick has enough machines.
        """
        total, needed = len(values.speeds(self.speeds)), self.recovery + self.stragglers
        trace = self._trace(total)
        count = -(-self.iterations // self.hold)
        limit = len(trace) if isinstance(trace, Listed) else 1000 * count
        enough = [up for tick in range(limit) if len(up := trace.at(tick)) >= needed][:count]
        if not enough:
            raise InfeasibleError(
                f"--trace {self.trace}: no tick with {needed} of machines 1..{total}, which "
                "--recovery and --stragglers need"
            )
        enough += [enough[-1]] * (count - len(enough))
        return tuple(up for up in enough for _ in range(self.hold))[: self.iterations]

    def _trace(self, total: int) -> Availability:
        if self.trace == "spot":
            if total > _SPOT_MACHINES:
                raise InputError(
                    f"--trace spot with {total} machines: expected at most {_SPOT_MACHINES}, or a "
                    "file"
                )
            whole = read_availability([SPOT], _SPOT_MACHINES)
            return whole.among(range(1, total + 1))
        if self.trace == "ec2":
            always = set(range(1, min(self.recovery + _EC2_ALWAYS, total) + 1))
            drawn = RandomAvailability(total, 0.5, self.seed)
            ticks = range(-(-self.iterations // self.hold))
            return Listed([sorted(always | set(drawn.at(tick))) for tick in ticks])
        return read_availability([self.trace], total)

    def _base(self, matrix: Path, speeds: tuple[float, ...]) -> float:
        """Rows per second of speed 1, so that half of what all cores can do is enough."""
        X = np.load(matrix, mmap_mode="r")
        w, row_bytes = np.ones(self.size), X.itemsize * self.size
        cores = len(os.sched_getaffinity(0))

        def rate(_: int) -> float:
            return measure_rate(lambda start, stop: X[start:stop] @ w, self.size, row_bytes)

        from threadpoolctl import threadpool_limits

        with threadpool_limits(1), ThreadPoolExecutor(cores) as pool:
            rates = list(pool.map(rate, range(cores)))
        able = sum(rates) / len(speeds)  # of each machine, if all compute
        here = ["here"] * len(speeds)
        return fit_base(speeds, range(1, len(speeds) + 1), [able] * len(speeds), here)


def figures_of(found: dict[str, list[Outcome]]) -> list[Figure]:
    """Time over that of this package, and what it is made of, by contestant."""
    figures = []
    ours = found[OURS]
    for name, outcomes in found.items():
        if name != OURS:
            ratios = [a.seconds / b.seconds for a, b in zip(outcomes, ours, strict=True)]
            figures.append(Figure.of(name, ratios, over=OURS, better="more"))
    for name, outcomes in found.items():
        kinds = {
            "in all": [each.seconds for each in outcomes],
            "an iteration": [float(np.median(each.iteration_seconds)) for each in outcomes],
            "at events": [sum(each.event_seconds) for each in outcomes],
            "to set up": [each.setup_seconds for each in outcomes],
        }
        for kind, taken in kinds.items():
            if any(taken):  # there may be no events
                figures.append(Figure.of(f"{name}, {kind}", taken, unit="s"))
        figures.append(Figure.of(f"{name}, moved", [each.moved for each in outcomes], unit="bytes"))
    return figures
