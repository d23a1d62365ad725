"""All machines in this process: the same steps without MPI."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.assignment import Assignment
from cec_mpi.runtime.exchange import Answers
from cec_mpi.runtime.machine import Machine, describe

__all__ = ["LocalMasterEnd"]

log = logging.getLogger(__name__)


class LocalMasterEnd:
    """The master's end when the machines are objects beside it.

    Parameters
    ----------
    machines : list of Machine
        Ascending by number; other machines of the store take no part.
    total : int
        Machines of the store, N.
    answers : int
        Numbers that a step collects: copies times the rows per shard.
    dtype : numpy.dtype
        Of w and the answers.
    """

    def __init__(
        self, machines: list[Machine], total: int, answers: int, dtype: np.dtype[Any]
    ) -> None:
        self._machines = machines
        self._values = np.empty(answers, dtype)
        self._seconds = np.zeros(total)
        self._load_seconds = np.zeros(total)
        self._load_bytes = np.zeros(total)
        self._assignment: Assignment | None = None
        self._step = 0
        self._w = self._values[:0]
        self._problems: dict[int, str] = {}

    def announce(self, step: int, assignment: Assignment) -> int:
        """Begin a step."""
        self._step = step
        if assignment is not self._assignment:
            for machine in self._machines:
                machine.assign(assignment)
            self._assignment = assignment
        return 0

    def share(self, w: NDArray[Any]) -> int:
        """Keep w for the computation."""
        self._w = w
        return 0

    def collect(self) -> Answers:
        """Let the machines compute, one after the other."""
        self._values.fill(np.nan)
        position = 0
        failed = []
        for machine in self._machines:
            n = machine.number
            try:
                loaded = machine.load()
                self._load_seconds[n - 1] = loaded.seconds
                self._load_bytes[n - 1] = loaded.bytes
                self._seconds[n - 1] = machine.compute(self._w, self._step)
            except Exception as error:
                log.exception("machine %d failed in step %d", n, self._step)
                self._problems[n] = describe(error)
                failed.append(n)
            end = position + machine.values.size
            self._values[position:end] = machine.values
            position = end
        return Answers(self._values, self._seconds, self._load_seconds, self._load_bytes, failed)

    def reports(self) -> dict[int, str]:
        """What went wrong, by machine."""
        return self._problems

    def stop(self, code: int) -> None:
        """Nothing to do: the machines end with this process."""
