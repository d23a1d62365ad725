"""What is seen of a run while it goes on: on a terminal through a launcher, and in a file."""

from __future__ import annotations

import os

import numpy as np
import pytest

from helpers.terminals import Terminal
from helpers.waiting import LIMIT

TASK = """
import time
import warnings
from pathlib import Path
import numpy as np

def task(X, *, checkpoint):
    for step in range(40):
        result = X @ np.ones(X.shape[1])
        if step == 15:
            print("the task prints", flush=True)
        if step == 25:
            warnings.warn("the task warns")
        while step == 30 and not Path("seen").exists():
            time.sleep(0.01)
    return {"result": result}
"""


@pytest.fixture
def slow_run(small_store, tmp_path):
    """The words of a run of some seconds: each of 40 steps takes 0.1 s."""
    np.save(tmp_path / "W.npy", np.ones((40, small_store.columns)))
    slowly = ["--speeds", "1,1,1", "--emulate-speeds", "1,1,1", "--emulate-base", "105"]
    words = ["--out", str(tmp_path / "out"), f"vectors={tmp_path / 'W.npy'!s}", *slowly]
    launcher = ["mpirun", "-n", str(small_store.machines + 1)]
    return [*launcher, "cec-mpi", "run", str(small_store.path), *words]


@pytest.fixture
def on_a_terminal(start, tmp_path):
    """Start a command of a task that prints, on a terminal."""
    (tmp_path / "talking.py").write_text(TASK)

    def on_a_terminal(words):
        terminal = Terminal(120, 24)
        os.write(terminal.end, b"$ a command\n")  # as a shell leaves it
        variables = {"TERM": "xterm-256color", "PYTHONPATH": str(tmp_path)}
        streams = {"stdout": terminal.end, "stderr": terminal.end}
        words = [word for word in words if not word.startswith("vectors=")]
        words = [*words, "talking:task"]
        process = start(words, cwd=tmp_path, variables=variables, **streams)
        os.close(terminal.end)
        terminal.end = -1
        return process, terminal

    return on_a_terminal


@pytest.mark.any_mpi
def test_steps_are_shown_on_a_terminal_while_they_are_made(on_a_terminal, slow_run, tmp_path):
    process, terminal = on_a_terminal(slow_run[slow_run.index("cec-mpi") :])
    terminal.await_text(" of 3 available")
    terminal.await_text("step 31")
    (tmp_path / "seen").touch()
    assert process.wait(LIMIT) == 0
    terminal.close()
    seen = [text for text in terminal.history if " of 3 available" in text]
    assert all(text.count(" of 3 available") == text.count("talking:task") == 1 for text in seen)
    _, said, warned, done, results, report, *rest = terminal.lines
    assert (said, warned) == ("the task prints", "cec-mpi: warning: the task warns")
    assert done.startswith("talking:task is done: 40 steps on 3 machines, ")
    assert results.startswith("results: ")
    assert "report: cec-mpi report " in f"{report}{''.join(rest)}"


def test_a_launcher_passes_on_a_line_now_and_then(on_a_terminal, slow_run, tmp_path):
    process, terminal = on_a_terminal(slow_run)
    terminal.await_text("cec-mpi: step ")
    (tmp_path / "seen").touch()
    assert process.wait(LIMIT) == 0
    terminal.close()
    assert " of 3 available" not in terminal.text


@pytest.mark.any_mpi
def test_a_short_run_shows_nothing_elsewhere_but_how_it_ended(run, slow_run):
    done = run([*slow_run[slow_run.index("cec-mpi") :], "--serial"])
    assert (done.returncode, done.told) == (0, "")
    first, last, report = done.stdout.splitlines()
    assert first.startswith("matvec is done: 40 steps on 3 machines, ")
    assert last.endswith("out (result.npy, summary.json)")
    assert report.startswith("report: cec-mpi report ")


@pytest.mark.any_mpi
def test_a_quiet_run_shows_nothing(run, slow_run):
    done = run([*slow_run[slow_run.index("cec-mpi") :], "--serial", "-q"])
    assert (done.returncode, done.told, done.stdout) == (0, "", "")
