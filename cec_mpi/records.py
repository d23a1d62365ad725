"""Records of a run: a line for each step, in the directory of its results."""

from cec_mpi.runtime.records import *
from cec_mpi.runtime.records import __all__ as __all__
