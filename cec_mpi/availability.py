"""Availability of machines over time: models, files and commands."""

from cec_mpi.runtime.availability.command import from_command
from cec_mpi.runtime.availability.models import (
    PAPER_AVAILABLE,
    Availability,
    FunctionAvailability,
    ListedAvailability,
    RandomAvailability,
    all_available,
    from_counts,
    polling_interval,
    validate_machines,
)
from cec_mpi.runtime.availability.numbers import read_machines
from cec_mpi.runtime.availability.reading import as_availability, read_availability

__all__ = [
    "Availability",
    "FunctionAvailability",
    "ListedAvailability",
    "PAPER_AVAILABLE",
    "RandomAvailability",
    "all_available",
    "as_availability",
    "validate_machines",
    "from_command",
    "from_counts",
    "read_availability",
    "read_machines",
    "polling_interval",
]
