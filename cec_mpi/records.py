"""Records of a run: a line for each step, in the directory of its results."""

from cec_mpi.runtime.records.recorder import Recorder, counts_of, read_steps, resume_steps
from cec_mpi.runtime.records.step import StepRecord

__all__ = ["Recorder", "StepRecord", "counts_of", "read_steps", "resume_steps"]
