"""Benchmarks of ranks: those of a launcher, or their own, of this command again under mpirun."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cec_mpi.bench.benchmark import Benchmark, words_of
from cec_mpi.bench.figures import Figure, Result
from cec_mpi.bench.programs import mpirun, run_to_end
from cec_mpi.bench.scratch import RANK_BYTES, check_memory, check_room, scratch
from cec_mpi.errors import InputError, MachineError
from cec_mpi.options import values
from cec_mpi.options.option import option
from cec_mpi.processes.launcher import detect_launcher

if TYPE_CHECKING:
    from mpi4py import MPI

_logger = logging.getLogger(__name__)
_ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class RankBenchmark(Benchmark):
    """Ranks measure something together: those that a launcher has started, or ranks of its own.

    Attributes
    ----------
    ranks : int
        To start, where no launcher has.
    directory : str
        That all ranks see; by default where temporary files are.
    limit : float
        Seconds that ranks of its own may take.
    """

    ranks: int = option(7, "--ranks P", "to start, where no launcher has", values.positive)
    directory: str = option("", "--directory DIR", "which all ranks see, for a throwaway store")
    limit: float = option(
        600.0, "--limit SECONDS", "after which ranks of its own are ended", values.seconds
    )

    def measure(self) -> list[Figure]:
        """Start ranks, which are ended with this process, and take all figures there.

        Raises
        ------
        CecError
            The settings do not fit each other, there is no mpirun, or the ranks failed.
        """
        self.check(self.ranks)
        if detect_launcher() is not None:
            raise InputError(
                f"bench {self.what} under a launcher with 1 rank: expected several, or no "
                "launcher (it starts ranks itself)"
            )
        check_memory(f"--ranks {self.ranks}", self.ranks * RANK_BYTES)
        with scratch(self.directory) as directory:  # which goes, however the ranks end
            check_room(directory, self.size(self.ranks))
            inside = replace(self, directory=str(directory))
            command = [sys.executable, "-m", "cec_mpi", "bench", self.what, *words_of(inside)]
            if _logger.isEnabledFor(logging.INFO):
                command.append("--verbose")
            printed = run_to_end(
                [*mpirun(self.ranks), *command, "--json"],
                self.limit,
                environment=os.environ | _ONE_THREAD,
            )
        try:
            return list(Result.from_json(printed.strip().rpartition("\n")[2]).figures)
        except ValueError:
            raise MachineError(f"the ranks of bench {self.what} printed no result") from None

    def check(self, ranks: int) -> None:
        """Refuse settings that do not fit so many ranks.

        Raises
        ------
        InputError
            Names the option.
        """
        raise NotImplementedError

    def size(self, ranks: int) -> float:
        """Bytes that so many ranks write to the directory."""
        raise NotImplementedError

    def measure_together(self, comm: MPI.Intracomm) -> list[Figure]:
        """Collective: take all figures; they are on rank 0.

        Parameters
        ----------
        comm : mpi4py.MPI.Intracomm
            Of at least two ranks.
        """
        raise NotImplementedError
