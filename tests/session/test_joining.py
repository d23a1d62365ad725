"""A machine that waits for a connection file finds it, whenever it comes."""

from __future__ import annotations

import pytest

from cec_mpi.errors import InputError
from cec_mpi.processes.ending.signals import NotedSignals
from cec_mpi.session.joining import machine


@pytest.mark.parametrize("comes", [True, False])
def test_a_file_that_comes_or_goes_while_it_is_read_is_waited_for(comes, tmp_path, monkeypatch):
    file, reads = tmp_path / "conn", []
    if not comes:
        file.touch()

    def read(path):
        reads.append(path)
        if len(reads) > 1:
            return "read"
        (path.touch if comes else path.unlink)()
        raise InputError(f"{path}: missing")

    monkeypatch.setattr(machine, "read_connection_file", read)
    monkeypatch.setattr(machine, "Connection", lambda file, look: file)
    assert machine._reached(file, NotedSignals(), 60.0, tells=False) == "read"
