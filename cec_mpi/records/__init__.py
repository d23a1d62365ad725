"""What a run records, a line per step as it happens, and the directory that keeps it."""

from cec_mpi.records.recorder import Recorder, counts_of, read_steps, resume_steps
from cec_mpi.records.step import StepRecord

__all__ = ["Recorder", "StepRecord", "counts_of", "read_steps", "resume_steps"]
