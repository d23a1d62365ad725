"""A recorder that keeps records in memory."""

from __future__ import annotations

from cec_mpi.runtime.records.recorder import Recorder


class MemoryRecorder(Recorder):
    """A recorder whose `records` a test can read."""

    def __init__(self):
        self.records = []
        super().__init__(on_step=self.records.append)

    @property
    def all_events(self):
        return [event for record in self.records for event in record.events]
