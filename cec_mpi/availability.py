"""Availability of machines over time: models, files and commands."""

from cec_mpi.runtime.availability import *
from cec_mpi.runtime.availability import __all__ as __all__
