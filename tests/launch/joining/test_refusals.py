"""Options and limits with which a run cannot listen, or a machine cannot join."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = [pytest.mark.any_mpi, pytest.mark.usefixtures("no_launcher")]


ACCEPT = ("--accept", "conn")
SERIAL = "--serial cannot be combined with "


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--accept", "W.npy"], "W.npy: expected a new name, or an earlier connection file"),
        (["--accept", "no/conn"], "no is not a directory"),
        ([*ACCEPT, "--serial"], f"{SERIAL}--accept"),
        (["--elastic", "--serial"], f"{SERIAL}--elastic"),
        ([*ACCEPT, "--interface", "eth77"], "interface 'eth77': rank 0 on"),
        ([*ACCEPT, "--speeds", "a=1,b=2"], "speeds of hosts cannot be used if all"),
        ([*ACCEPT, "--emulate-speeds", "1,1,1,1"], "emulated speeds need a base (--emulate-base)"),
        (
            ["--listen", "127.0.0.1:5"],
            "listen: expected a key in the environment variable CEC",
        ),
    ],
)
def test_unusable_options_are_refused(call, store, tmp_path, words, expected):
    np.save(tmp_path / "W.npy", np.zeros((2, 60)))
    command = ["run", store.path, "--out", "out", "vectors=W.npy", *words]
    code, _, stderr = call(command, tmp_path)
    assert code == 2, stderr
    assert stderr.count("cec-mpi: error: ") == stderr.count("\n") == 1, stderr
    assert expected in stderr
    assert not (tmp_path / "conn").exists()


def test_a_machine_without_the_key_is_refused(call, tmp_path, monkeypatch):
    monkeypatch.delenv("CEC_MPI_KEY", raising=False)
    code, _, stderr = call(["join", "node1:5555"], tmp_path)
    assert code == 2, stderr
    assert "node1:5555 needs the key of the run in the environment variable CEC_MPI_KEY" in stderr


@pytest.mark.parametrize("limit", [10, 22])
def test_a_run_with_too_few_file_descriptors_is_refused(run, store, conn, tmp_path, limit):
    words = ["cec-mpi", "run", store.path, "--out", tmp_path / "out", "--accept", conn]
    words += ["svd"]
    done = run(["sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh", *words])
    assert done.returncode == 2
    message = f"this process uses all {limit} of its file descriptors"
    assert done.errors.startswith("cec-mpi: error: the sockets that machines use cannot be opened")
    assert message in done.errors
    assert done.errors.count("\n") == 0


@pytest.mark.parametrize("limit", [8, 14])
def test_a_host_with_too_few_file_descriptors_is_refused(open_accepting, run, store, conn, limit):
    with open_accepting(store):
        words = ["cec-mpi", "join", conn]
        done = run(["sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh", *words])
    assert done.returncode == 2
    assert done.errors.startswith("cec-mpi: error: a connection to the master cannot be opened: ")
    assert done.errors.count("\n") == 0
