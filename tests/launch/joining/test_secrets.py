"""Keys of a run are only in the environment and in the connection file."""

from __future__ import annotations

import json
import os
from urllib.request import urlopen

import psutil
import pytest

from cec_mpi.runtime.wire.sockets.connection_file import KEY_VARIABLE, Keys, derive_keys
from helpers.processes import find_free_port
from helpers.waiting import wait_for_file

pytestmark = [pytest.mark.any_mpi, pytest.mark.usefixtures("no_launcher")]
SECRET = "nobody else knows this text"


@pytest.mark.parametrize("has_secret", [True, False])
def test_keys_are_not_in_command_lines_output_logs_records_or_metrics(
    start, store, endless_task, tmp_path, has_secret
):
    metrics_port, port = find_free_port(), find_free_port()
    out, conn = tmp_path / "out", tmp_path / "conn"
    words = [*endless_task.prepare(store), "--out", "out", "--metrics", metrics_port, "-v"]
    words += ["--listen", f"127.0.0.1:{port}"] if has_secret else ["--accept", conn]
    variables = {KEY_VARIABLE: SECRET} if has_secret else {}
    run = start(["cec-mpi", "run", store.path, *words], variables=variables)
    source = f"127.0.0.1:{port}" if has_secret else conn
    join = ["cec-mpi", "join", source, "--retry", "60", "-v"]
    machines = [start(join, variables=variables) for _ in range(3)]
    wait_for_file(out / "steps.jsonl", '"step"', run)
    if has_secret:
        secrets = {SECRET, *(os.fsdecode(key) for key in derive_keys(SECRET, True))}
    else:
        content = json.loads(conn.read_text())
        secrets = {content[name] for name in Keys._fields if name in content}
    assert len(secrets) >= 3
    processes = [psutil.Process(process.pid) for process in (run, *machines)]
    processes += [child for process in processes for child in process.children(recursive=True)]
    arguments = [word for process in processes for word in process.cmdline()]
    with urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=60) as answer:
        metrics_text = answer.read().decode()
    assert "cec_mpi_steps_total" in metrics_text
    endless_task.stop()
    printed = [text for process in (run, *machines) for text in process.communicate(timeout=200)]
    assert [process.returncode for process in (run, *machines)] == [0] * 4, printed
    assert not conn.exists()
    files = [
        path.read_bytes().decode(errors="replace") for path in out.rglob("*") if path.is_file()
    ]
    assert any('"step"' in text for text in files)
    for text in (*arguments, metrics_text, *printed, *files):
        assert not [secret for secret in secrets if secret in text]
