"""What a session records, kept for a test to look at."""

from __future__ import annotations

from cec_mpi.runtime.records.recorder import Recorder


class Kept(Recorder):
    """A recorder that keeps its records."""

    def __init__(self):
        self.records = []
        super().__init__(watch=self.records.append)

    @property
    def happened(self):
        return [event for record in self.records for event in record.events]
