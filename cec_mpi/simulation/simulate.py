"""Simulate a run."""

from __future__ import annotations

import os

from cec_mpi.simulation.scenario import Outcome, Scenario


def simulate(scenario: Scenario, out: str | os.PathLike[str] | None = None) -> Outcome:
    """Simulate a run, and return what came of it.

    Parameters
    ----------
    scenario : Scenario
    out : path, optional
        Directory for the records, which ``cec-mpi report`` shows.

    Raises
    ------
    InputError
        The scenario does not fit together.
    """
    raise NotImplementedError
