"""Records of a run: a line for each step, in the directory of its results."""

from cec_mpi.runtime.records.recorder import Recorder, count_by_kind, read_steps, resume_steps
from cec_mpi.runtime.records.step import StepRecord

__all__ = ["Recorder", "StepRecord", "count_by_kind", "read_steps", "resume_steps"]
