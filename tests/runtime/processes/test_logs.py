"""The log files of processes."""

import logging
from pathlib import Path

from cec_mpi.store.files.log_file import log_file


def test_a_log_has_escapes_for_what_is_no_text(tmp_path, capfd, monkeypatch):
    # pytest would keep the message, and xdist cannot send it.
    monkeypatch.setattr(logging.getLogger("cec_mpi"), "propagate", False)
    with log_file(tmp_path / "machine.log"):
        logging.getLogger("cec_mpi").info("reads %s", Path("caf\udce9/\x1b[2J\u202e"))
    assert (tmp_path / "machine.log").read_text().endswith(r"reads caf\udce9/\x1b[2J\u202e" + "\n")
    assert capfd.readouterr() == ("", "")
