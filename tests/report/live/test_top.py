"""``cec-mpi top`` shows a run of another process."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cec_mpi.cli import main
from cec_mpi.report.live.watched_run import WatchedRun
from cec_mpi.runtime.processes.launcher import remove_launcher_variables
from cec_mpi.store.files.durable import is_locked, locked
from helpers.steps import header, step, write
from helpers.terminals import Terminal

pytestmark = pytest.mark.usefixtures("no_launcher")

LOST = {"lost": 4, "reason": "its connection ended"}
ABSENT_SINCE = {"lost": {4: 7}}
STEPS = [step(n, absent_since=ABSENT_SINCE, events=[LOST] if n == 7 else []) for n in range(21)]


@pytest.fixture
def out(tmp_path):
    """The directory of a run."""
    path = tmp_path / "out"
    path.mkdir()
    return path


def age_records(out, seconds):
    modified = (out / "steps.jsonl").stat().st_mtime
    os.utime(out / "steps.jsonl", (modified - seconds, modified - seconds))


def top_lines(capsys, *words):
    assert main(["top", *map(str, words)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out.splitlines()


def read_status(out):
    run = WatchedRun(out)
    run.read()
    return run.status.text


def test_top_shows_a_run(out, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    write(out / "steps.jsonl", header(planned_steps=41), *STEPS)
    lines = top_lines(capsys, out, "--once")
    assert lines[0].endswith("/out: stopped without a checkpoint")
    assert lines[1].startswith("matvec  step 21 of 41 ")
    assert lines[1].endswith(" 2.0 steps/s")
    assert "5 of 6 available" in lines[2]
    assert lines[3] == "makespan   600 ms"
    assert lines[4] == "last event step 7: machine 4 was lost: its connection ended"
    machines = [line.split(maxsplit=8) for line in lines if line.lstrip()[:1].isdigit()]
    assert machines[5] == ["6", "node6", "ended", "600", "600", "ms", "1,000", "100%"]
    assert machines[3][:7] == ["4", "node4", "lost", "0", "-", "-", "0%"]
    assert " ".join(machines[3][7:]) == "step 7: was lost: its connection ended"


@pytest.mark.parametrize(
    ("hosts", "fields", "joined", "expected"),
    [
        (
            ["desk"],
            {"machine_of_rank": [0]},
            [*((n, n, f"spot{n}", {}) for n in (1, 2, 3)), (2, 7, "spot7", {})],
            {1: "spot1", 2: "spot7", 3: "spot3"},
        ),
        (
            ["desk", "spot", "spot"],
            {},
            [(3, 1, "spot", {}), (4, 5, "spot", {})],
            {1: "spot (rank 1)", 2: "spot", 3: "spot (rank 1)", 4: "spot"},
        ),
        (
            ["desk", "a", "b"],
            {"pids": [11, 12, 13]},
            [(3, 3, "c", {"pid": 77})],
            {1: "a 12", 2: "b 13", 3: "c 77"},
        ),
        (
            ["desk", "a", "b"],
            {"devices": ["", "", "jax:cpu"]},
            [(3, 3, "c", {"device": "torch:cuda:0"})],
            {1: "a", 2: "b jax:cpu", 3: "c torch:cuda:0"},
        ),
    ],
)
def test_machines_are_shown_with_host_device_and_process(
    out, capsys, hosts, fields, joined, expected
):
    fields = {"hosts": hosts, "machine_of_rank": list(range(len(hosts)))} | fields
    events = [{"joined": n, "rank": rank, "host": host} | more for n, rank, host, more in joined]
    write(out / "steps.jsonl", header(**fields), step(0, events=events))
    lines = [line.split("ended")[0].split() for line in top_lines(capsys, out, "--once")]
    found = {int(words[0]): " ".join(words[1:]) for words in lines if words and words[0].isdigit()}
    assert {n: found[n] for n in expected} == expected


@pytest.mark.parametrize("columns", [48, 64, 120])
def test_names_are_truncated_before_numbers(out, capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    hosts = ["node0", *(f"node{n}.of.a.cluster.example.org" for n in range(1, 7))]
    steps = [step(n, events=[{**LOST, "reason": 20 * "why "}] if n == 7 else []) for n in range(9)]
    write(out / "steps.jsonl", header(hosts=hosts), *steps)
    lines = top_lines(capsys, out)
    assert all(len(line) <= columns for line in lines)
    table = lines[[line.split()[:1] for line in lines].index(["machine"]) :]
    assert "…" in table[1] or columns < 64
    assert "600 ms" in table[6]
    assert columns < 64 or "1,000       100%" in table[6]


def test_top_shows_a_wait_for_machines(out, capsys):
    waiting = {"kind": "waiting", "time": STEPS[-1]["time"], "missing": 1, "available": [1, 3]}
    write(out / "steps.jsonl", header(), *STEPS, waiting | {"absence_reasons": {"2": "lost"}})
    with locked(out, "busy"):
        age_records(out, 95)
        assert read_status(out).startswith("waiting for 1 more machine, 1:")
        assert read_status(out).endswith(": 2 available")
        lines = [line.split() for line in top_lines(capsys, out)]
    (state,) = [line for line in lines if line[:1] == ["2"]]
    assert "lost" in state
    with locked(out, "busy"):
        write(out / "steps.jsonl", header(), *STEPS, waiting, step(21))
        assert read_status(out) == "running"


def test_top_shows_the_status_of_a_run(out):
    record = out / "steps.jsonl"
    with locked(out, "busy"):
        assert read_status(out) == "no step yet"
        write(record, header())
        assert read_status(out) == "no step yet"
        write(record, header(), *STEPS)
        assert read_status(out) == "running"
        age_records(out, 5)
        assert read_status(out) == "running"
        age_records(out, 95)
        assert read_status(out).startswith("seems stuck: no step for 1:4")
        (out / "summary.json").write_text("{}")  # of the run that this one resumes
        assert read_status(out).startswith("seems stuck")
    assert read_status(out) == "done"
    (out / "summary.json").unlink()
    assert read_status(out) == "stopped without a checkpoint"
    (out / "checkpoint.npz").touch()
    assert read_status(out) == "stopped, continue with --resume"
    write(record, header(), *STEPS)  # with a step just now
    (out / ".lock").touch()  # as a killed process leaves it
    assert read_status(out) == "interrupted, continue with --resume"
    (out / "checkpoint.npz").unlink()
    assert read_status(out) == "interrupted without a checkpoint"


def test_watching_does_not_prevent_a_run_from_starting(out):
    stop = threading.Event()

    def poll():
        while not stop.is_set():
            is_locked(out)
            time.sleep(0.001)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        for _ in range(50):
            with locked(out, "busy"):
                assert is_locked(out)
    finally:
        stop.set()
        thread.join()


def test_control_characters_are_escaped(out, capsys):
    hosts = ["a", "\x1b[2Jboo", "b\x07", "c\n", "d", "e", "\u202eabc"]
    event = {"lost": 2, "reason": "\x1b]0;title\x07"}
    write(
        out / "steps.jsonl",
        header(hosts=hosts, task="\x1b[31mred", participants=[1, 2, 99]),
        step(0, events=[event, {"joined": 1, "host": "\x1b[2Jboo"}]),
    )
    text = "\n".join(top_lines(capsys, out))
    assert "\\x1b[2Jboo" in text
    assert "\\x1b[31mred" in text
    assert text.replace("\n", "").isprintable()


def test_a_machine_lost_in_a_step_that_did_not_end_is_shown(out, capsys):
    write(
        out / "steps.jsonl",
        header(),
        step(0),
        {"kind": "unfinished", "events": [{"lost": 2, "reason": "its process ended"}]},
    )
    lines = top_lines(capsys, out)
    assert "last event step 1: machine 2 was lost: its process ended" in lines
    states = [line.split()[2] for line in lines if line.lstrip()[:1].isdigit()]
    assert states == ["ended", "lost", *["ended"] * (len(states) - 2)]


def test_directories_without_a_run_are_refused(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "steps.jsonl").write_text("{\n")
    for name, message in (
        ("missing", "missing does not exist: expected the directory of the results of a run"),
        ("file", "file is not a directory: expected the directory of the results of a run"),
        ("empty", "empty contains no run: expected steps.jsonl in it"),
        ("wrong", "steps.jsonl, line 1 is not JSON"),
    ):
        assert main(["top", str(tmp_path / name)]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        (error,) = captured.err.splitlines()
        assert error.startswith("cec-mpi: error: ")
        assert message in error


# --- on a terminal ------------------------------------------------------------------------


def test_top_follows_a_run_to_its_end(out, open_terminal):
    terminal = open_terminal()

    def write_run():
        with locked(out, "busy"):
            is_locked_now.set()
            terminal.await_text("no step yet")
            with (out / "steps.jsonl").open("a") as file:
                file.write(f"{json.dumps(header(planned_steps=9))}\n{json.dumps(STEPS[0])}\n")
                file.flush()
                terminal.await_text("step 1 of 9")
                terminal.await_text("running")
                file.write(f"{json.dumps(STEPS[1])}\n")
                file.flush()
                terminal.await_text("step 2 of 9")
            (out / "summary.json").write_text("{}")

    is_locked_now = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(write_run)
        assert is_locked_now.wait(60)
        assert main(["top", str(out), "--every", "0.05"]) == 0
        run.result()
    print("the very last")
    terminal.await_text("the very last")
    terminal.await_clean_end()
    screen = terminal.raw.rpartition(b"\x1b[?1049l")[2]  # the main screen
    assert b": done" in screen
    assert b"node6" in screen


@pytest.fixture
def start_top(out):
    """Return a function that starts top on a terminal; end it after the test."""
    processes = []
    write(out / "steps.jsonl", header(), *STEPS)

    def start(tty, errors=None):
        words = [sys.executable, "-m", "cec_mpi", "top", str(out), "--every", "0.05"]
        streams = {"stdin": tty, "stdout": tty, "stderr": errors or tty}
        environ = {**remove_launcher_variables(os.environ), "TERM": "xterm-256color"}
        processes.append(subprocess.Popen(words, env=environ, process_group=0, **streams))
        return processes[-1]

    with locked(out, "busy"):
        yield start
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.parametrize(("size", "machines"), [((80, 24), 6), ((40, 10), 500), ((10, 3), 500)])
def test_output_fits_terminals_of_any_size(start_top, out, size, machines):
    steps = [step(n, machines, events=[LOST] if n == 1 else []) for n in range(3)]
    write(out / "steps.jsonl", header(machines, planned_steps=9), *steps)
    terminal = Terminal(*size)
    process = start_top(terminal.tty)
    if size[0] >= 40:
        is_cut = machines > size[1] - 6
        terminal.await_text("more machines" if is_cut else "node6")
        # On a busy computer the run may seem stuck already.
        assert re.search(r"/out: (running|seems stuck: no step for \S+)$", terminal.lines[0])
        assert any(line.split()[:1] == ["machine"] for line in terminal.lines)
    else:
        terminal.await_text("out")
    assert len(terminal.lines) <= size[1]
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0
    terminal.close()


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM])
def test_signals_leave_the_terminal_as_it_was(start_top, signum):
    terminal = Terminal()
    before = termios.tcgetattr(terminal.tty)
    process = start_top(terminal.tty)
    terminal.await_text("node6")
    process.send_signal(signum)
    assert process.wait(60) == (0 if signum == signal.SIGINT else 128 + signum)
    assert termios.tcgetattr(terminal.tty) == before
    terminal.await_clean_end()
    assert "Traceback" not in terminal.text
    terminal.close()


def test_top_ends_if_its_terminal_is_closed_without_a_signal(start_top, tmp_path):
    controller, tty = pty.openpty()
    with (tmp_path / "errors").open("w+") as errors:
        process = start_top(tty, errors)
        os.close(tty)
        while b"node6" not in os.read(controller, 65536):
            pass
        os.close(controller)
        assert process.wait(60) == 0
        assert "Traceback" not in Path(errors.name).read_text()
