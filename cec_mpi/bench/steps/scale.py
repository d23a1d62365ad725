"""What a step costs with few ranks and with many, and the model of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from cec_mpi.bench.figures import Figure
from cec_mpi.bench.ranks import RankBenchmark
from cec_mpi.bench.scratch import random_store, scratch_of_ranks, size_of_random_store
from cec_mpi.bench.steps.peers import bare
from cec_mpi.bench.steps.timing import median_step
from cec_mpi.bench.turns import Times, ratio, told_in_turns
from cec_mpi.core.step.costs import DECODE, Terms, Wire, terms_of
from cec_mpi.errors import InputError
from cec_mpi.linear_operator.opening import open_operator
from cec_mpi.options import values
from cec_mpi.options.option import option
from cec_mpi.processes.places import Place, place_of_ranks
from cec_mpi.processes.together import on_master
from cec_mpi.processes.waiting import wait_for
from cec_mpi.text import plural

if TYPE_CHECKING:
    from mpi4py import MPI

_ASLEEP = 0.1  # seconds between two looks of ranks that have no part
_SHAPES = {"small": (60, 60), "tall": (24_000, 4), "wide": (12, 24_000)}  # next to no products
_WIRES: tuple[Wire, ...] = ("collectives",)

Measured = dict[tuple[int, Wire, str], float]


@dataclass(frozen=True)
class Scale(RankBenchmark):
    """Steps that compute next to nothing, of 2, 4, 8 ... ranks, the others asleep.

    Attributes
    ----------
    recovery : int
        L, or the number of machines where there are fewer.
    steps : int
        In each turn, whose median counts.
    """

    what = "scale"
    title = "a step that computes nothing, of 2, 4, 8 ... ranks: over the bare wire, and a model"

    turns: int = option(
        3, "--turns K", "how often each is measured, in turn with the others", values.positive
    )
    ranks: int = option(64, "--ranks P", "to start, where no launcher has", values.positive)
    recovery: int = option(3, "--recovery L", "any L machines are enough", values.positive)
    steps: int = option(30, "--steps T", "in each turn: the median counts", values.positive)

    def check(self, ranks: int) -> None:
        """As `RankBenchmark.check`."""
        if ranks < 4:
            raise InputError(
                f"bench scale with {plural(ranks, 'rank')}: expected at least 4, of which 2 and "
                "more are compared"
            )

    def size(self, ranks: int) -> float:
        """As `RankBenchmark.size`."""
        return sum(
            size_of_random_store(*shape, some - 1, min(self.recovery, some - 1))
            for some in sizes(ranks)
            for shape in _SHAPES.values()
        )

    def measure_together(self, comm: MPI.Intracomm) -> list[Figure]:
        """As `RankBenchmark.measure_together`."""
        found: dict[int, Times] = {}
        places = place_of_ranks(comm)
        with scratch_of_ranks(comm, self.directory) as directory:
            for ranks in sizes(comm.size):
                stores = on_master(comm, partial(self._stores, directory, ranks - 1))
                some = cast("MPI.Intracomm", comm.Split(comm.rank >= ranks))
                if comm.rank < ranks:
                    ways = {
                        f"{wire}, {shape}": partial(self._ours, some, store)
                        for wire in _WIRES
                        for shape, store in stores.items()
                    }
                    ways["bare"] = partial(bare, some, stores["small"], self.steps, products=False)
                    found[ranks] = told_in_turns(ways, self.turns)
                wait_for([comm.Ibarrier()], longest=_ASLEEP)
                some.Free()
        return list(self._figures(found, places)) if comm.rank == 0 else []

    def _stores(self, directory: Path, machines: int) -> dict[str, Path]:
        stores = {}
        for shape, (rows, columns) in _SHAPES.items():
            where = directory / f"{shape}-{machines}"
            where.mkdir()
            least = min(self.recovery, machines)
            stores[shape] = random_store(where, rows, columns, machines, least, seed=self.seed)
        return stores

    def _ours(self, comm: MPI.Intracomm, store: Path) -> float:
        """Collective: seconds of a step, on rank 0."""
        taken = 0.0
        speeds = (1.0,) * (comm.size - 1)
        with open_operator(store, comm, speeds=speeds, threads=1) as X:
            if X is not None:
                w = np.ones(X.shape[1])
                taken = median_step(lambda: X.matvec(w), self.steps)
        return taken

    def _figures(self, found: dict[int, Times], places: Sequence[Place]) -> Iterator[Figure]:
        measured: Measured = {}
        for ranks, times in found.items():
            for wire in _WIRES:
                of = f"{ranks} ranks, {wire}"
                small = f"{wire}, small"
                yield ratio(times, small, "bare", called=of, peer="a bare Bcast and Gatherv")
                for shape in _SHAPES:  # the least: others on this computer only add to it
                    measured[ranks, wire, shape] = min(times[f"{wire}, {shape}"])
        several, whose = fitted(sizes(len(places)), places)
        known = {key: taken for key, taken in measured.items() if key[0] in several}
        for wire in _WIRES:
            costs = fit(known, wire, self.recovery)
            for ranks, times in found.items():
                for shape in _SHAPES:
                    of = f"{ranks} ranks, {wire}, {shape} X"
                    model = modelled(costs, wire, ranks, shape, self.recovery)
                    yield Figure.of(of, times[f"{wire}, {shape}"], unit="s")
                    yield _exactly(f"{of}: model", model)
            said = ("rank 0", "rank 0, for each machine", "a message", "a byte")
            for what, seconds in zip(said, costs, strict=True):
                yield _exactly(f"model, {wire}, {whose}: {what}", seconds)


def _exactly(name: str, seconds: float) -> Figure:
    return Figure(name, seconds, seconds, seconds, unit="s")


def sizes(most: int) -> list[int]:
    """Numbers of ranks: powers of two, and the most.

    Examples
    --------
    >>> sizes(4), sizes(7)
    ([2, 4], [2, 4, 7])
    """
    return [*(2**k for k in range(1, most.bit_length()) if 2**k < most), most]


def fitted(several: Sequence[int], places: Sequence[Place]) -> tuple[list[int], str]:
    """Numbers of ranks to fit the model to, and which these are, in words.

    Ranks that share a core wait for each other, and each makes a step longer by what that takes:
    the model of a cluster, where ranks share none, is that of the numbers with which each has a
    core of its own. Two of them are enough; where there is one, as on two cores, all are taken.

    Parameters
    ----------
    several : sequence of int
        Numbers of ranks, ascending: each are the first ones.
    places : sequence of Place
        Of all ranks.
    """
    cores = {each.node: each.cores for each in places}

    def share(ranks: int) -> bool:
        here = Counter(each.node for each in places[:ranks])
        return any(here[node] > cores[node] for node in here)

    alone = [ranks for ranks in several if not share(ranks)]
    if len(alone) < 2:
        return [*several], f"{several[0]} to {several[-1]} ranks, of which some share cores"
    return alone, f"{alone[0]} to {alone[-1]} ranks, each with a core of its own"


def fit(measured: Measured, wire: Wire, recovery: int) -> list[float]:
    """Seconds of rank 0, of rank 0 for each machine, of a message, and of a byte.

    None is below 0, and the sum of squared relative errors is the least. Decoding is known.

    Parameters
    ----------
    measured : dict
        Seconds of a step, by ranks, wire and shape.
    wire : {"collectives", "messages"}
    recovery : int
        L, or the number of machines where there are fewer.
    """
    from scipy.optimize import nnls

    rows, sides = [], []
    for (ranks, which, shape), seconds in measured.items():
        if which == wire:
            terms = _terms(wire, ranks, shape, recovery)
            rows.append(np.array(terms[:-1]) / seconds)
            sides.append(max(0.0, 1 - terms.decoded * DECODE / seconds))
    scale = np.abs(rows).max(axis=0)
    solution, _ = nnls(np.array(rows) / scale, np.array(sides))
    return [float(each) for each in solution / scale]


def modelled(costs: list[float], wire: Wire, ranks: int, shape: str, recovery: int) -> float:
    """Seconds of a step as the model has it."""
    terms = _terms(wire, ranks, shape, recovery)
    return float(np.dot(terms[:-1], costs)) + terms.decoded * DECODE


def _terms(wire: Wire, ranks: int, shape: str, recovery: int) -> Terms:
    machines = ranks - 1
    rows, columns = _SHAPES[shape]
    return terms_of(machines, min(recovery, machines), rows, columns, wire, several_nodes=False)
