"""What a run that machines join refuses."""

from __future__ import annotations

import socket

import numpy as np
import pytest

pytestmark = [pytest.mark.any_mpi, pytest.mark.usefixtures("no_launcher")]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--accept", "W.npy"], "accept W.npy: expected a new name, or an earlier connection file"),
        (["--accept", "no/conn"], "no is not a directory"),
        (["--accept", ""], "argument --accept: '': expected the name of a file or directory"),
        (["--accept", "conn", "--serial"], "--accept with --serial"),
        (["--accept", "conn", "--spares", "1"], "spares with accept"),
        (["--accept", "conn", "--replace", "spawn"], "replace spawn with accept"),
        (["--accept", "conn", "--ports", "9-3"], "'9-3': expected ports, as 50000-50100"),
        (["--accept", "conn", "--interface", "eth77"], "interface 'eth77': rank 0 on"),
        (["--accept", "conn", "--emulate-speeds", "1,1,1,1,1,1"], "expected a base too"),
        (["--accept", "conn", "--speeds", "a=1,b=2"], "speeds of hosts with accept"),
        (["--accept", "conn", "--shards-per-machine", "auto"], "auto: with accept, or all mach"),
        (
            ["--serial", "--ports", "5000"],
            "ports: expected on_loss='continue' (--on-loss continue) or accept (--accept FILE) too",
        ),
    ],
)
def test_what_a_run_that_accepts_refuses(run, store, tmp_path, words, expected):
    np.save(tmp_path / "W.npy", np.zeros((2, 60)))
    given = ["cec-mpi", "run", store.path, "--out", "out", "--vectors", "W.npy", *words]
    done = run(given, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "conn").exists()


def test_a_port_that_is_taken_is_told(run, store, tmp_path):
    np.save(tmp_path / "W.npy", np.zeros((2, 60)))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = ["--accept", "conn", "--ports", port, "--interface", "127.0.0.1"]
        given = ["cec-mpi", "run", store.path, "--out", "out", "--vectors", "W.npy", *words]
        done = run(given, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert (
        f"cannot listen at 127.0.0.1 at ports {port}-{port}: Address already in use" in done.stderr
    )


@pytest.mark.parametrize("most", [10, 16, 22])
def test_a_run_with_too_few_file_descriptors_to_listen(run, store, conn, tmp_path, most):
    words = ["cec-mpi", "run", store.path, "--out", tmp_path / "out", "--accept", conn]
    words += ["--task", "power"]
    done = run(["sh", "-c", f'ulimit -n {most} && exec "$@"', "sh", *words])
    assert done.returncode == 2
    says = f"this process has all {most} file descriptors in use that it may have"
    assert done.told.startswith("cec-mpi: error: what machines join through cannot be opened: ")
    assert says in done.told
    assert done.told.count("\n") == 0


@pytest.mark.parametrize("most", [8, 11, 14])
def test_a_machine_with_too_few_file_descriptors_to_join(accepting, run, store, conn, most):
    with accepting(store):
        words = ["cec-mpi", "join", conn]
        done = run(["sh", "-c", f'ulimit -n {most} && exec "$@"', "sh", *words])
    assert done.returncode == 2
    assert done.told.startswith("cec-mpi: error: a connection to the master cannot be opened: ")
    assert done.told.count("\n") == 0
