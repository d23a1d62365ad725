"""cec-mpi report: pages and tables, complete or not written."""

import csv
import errno
import json
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import ExitStack

import pytest

from cec_mpi.cli import main
from cec_mpi.errors import InputError
from cec_mpi.report.live.display import Display
from cec_mpi.runtime.records import reading
from cec_mpi.runtime.records.recorder import resume_steps
from cec_mpi.store.files.durable import locked
from helpers.steps import step_of
from helpers.waiting import LIMIT

WITHOUT_4 = {"rows": (67, 67, 66, 0), "seconds": (0.1, 0.1, 0.2, 0)}
LOST = [{"lost": 4, "reason": "its process has ended"}]


@pytest.fixture
def run(make_run):
    return make_run(
        [
            step_of(0, load_seconds=[0.05] * 4, collect_seconds=0.26),
            step_of(1, **WITHOUT_4, events=LOST),
            step_of(2),
        ]
    )


def report(*words):
    return main(["report", *map(str, words)])


def read_data(page):
    text = page.read_text("utf-8")
    return json.loads(re.search(r'<script[^>]* id="data"[^>]*>(.*?)</script>', text, re.S)[1])


DROP_RIGHTS = """
import ctypes, os, sys
for right in (1, 2):  # of root to read all files
    ctypes.CDLL(None).prctl(24, right, 0, 0, 0)
os.execv(sys.executable, [sys.executable, "-m", "cec_mpi", *sys.argv[1:]])
"""


def test_an_unreadable_directory_gives_one_message(tmp_path):
    (tmp_path / "out").mkdir(mode=0)
    for command in (["report", "out", "--out", "page.html"], ["top", "out", "--once"]):
        done = subprocess.run(
            [sys.executable, "-c", DROP_RIGHTS, *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT,
        )
        assert done.returncode == 2
        assert "cannot be read: Permission denied" in done.stderr


def test_a_page_has_the_title_and_the_steps_of_a_run(run, tmp_path, capsys):
    out = tmp_path / "report.html"
    assert report(run, "--out", out) == 0
    assert capsys.readouterr().out == f"{out}: {run}\n"
    found = read_data(out)
    assert found["title"] == str(run)
    assert found["reload_seconds"] is None
    assert found["runs"][0]["steps"] == 3
    assert report(run, "--out", out, "--title", "Mine & <yours>", "-q") == 0
    assert read_data(out)["title"] == "Mine & <yours>"
    assert "Mine &amp; &lt;yours&gt;" in out.read_text("utf-8")
    assert capsys.readouterr().out == ""


def test_watching_ends_with_the_run(run, tmp_path, monkeypatch, capsys):
    """The page is written at intervals until the run ends, and a line states it."""
    monkeypatch.setattr("cec_mpi.cli.commands.report.PAGE_SECONDS", 0.02)
    monkeypatch.setattr("cec_mpi.report.live.display.FILE_LINES", Display(False, 0.1))
    out, printed, pages = tmp_path / "report.html", [""], []

    def hold_run():
        with locked(run, "busy"):
            is_held.set()
            deadline = time.monotonic() + 60
            while " at step 3, " not in printed[0] and time.monotonic() < deadline:
                time.sleep(0.01)
                printed[0] += capsys.readouterr().err
            pages.append(read_data(out))

    is_held = threading.Event()
    holder = threading.Thread(target=hold_run)
    holder.start()
    is_held.wait(60)
    assert report(run, "--out", out, "--watch", "--step", "1,9") == 0
    holder.join(60)
    lines = (printed[0] + capsys.readouterr().err).splitlines()
    assert lines[0] == f"cec-mpi: {out}: updated every 0.02 s until the end of {run}"
    assert any(line.startswith(f"cec-mpi: {out}: written at ") for line in lines)
    assert f"cec-mpi: warning: --step 9: {run} has steps 0 to 2" in lines
    assert (pages[0]["reload_seconds"], pages[0]["runs"][0]["state"]) == (0.02, "running")
    assert read_data(out)["reload_seconds"] is None
    assert read_data(out)["runs"][0]["state"] == "interrupted"


def test_watching_waits_for_the_first_record(run, tmp_path, monkeypatch):
    records = (run / "steps.jsonl").read_bytes()
    (run / "steps.jsonl").write_bytes(records[:20])
    lock = ExitStack()
    lock.enter_context(locked(run, "busy"))

    def write_records(_):
        (run / "steps.jsonl").write_bytes(records)
        lock.close()

    monkeypatch.setattr("cec_mpi.cli.commands.report.time.sleep", write_records)
    assert report(run, "--out", tmp_path / "report.html", "--watch") == 0
    assert read_data(tmp_path / "report.html")["runs"][0]["steps"] == 3


@pytest.mark.parametrize("options", [["-q"], ["--progress", "off"]])
def test_watching_can_be_silent(run, tmp_path, capsys, options):
    assert report(run, "--out", tmp_path / "x.html", "--watch", *options) == 0
    assert capsys.readouterr().err == ""


def test_watching_reports_files_that_cannot_be_written(run, tmp_path, capsys):
    with locked(run, "busy"):
        assert report(run, "--out", tmp_path / "absent" / "x.html", "--watch") == 2
    assert "x.html cannot be written: No such file" in capsys.readouterr().err


def test_a_full_disk_leaves_all_files_unchanged(run, tmp_path, capsys, monkeypatch):
    """The error is raised by fsync."""
    table, page, synced = tmp_path / "steps.csv", tmp_path / "page.html", []

    def fsync(descriptor):
        synced.append(descriptor)
        if len(synced) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    page.write_text("before")
    monkeypatch.setattr("os.fsync", fsync)
    assert report(run, "--csv", table, "--out", page) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert re.search(r"(steps.csv|page.html) cannot be written: No space left", error)
    assert page.read_text() == "before"
    assert {file.name for file in tmp_path.iterdir()} == {"page.html", "run"}


def test_a_table_has_a_row_for_each_step(run, tmp_path):
    table = tmp_path / "steps.csv"
    assert report(run, "--csv", table) == 0
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["step"] for row in rows] == ["0", "1", "2"]
    assert [row["available"] for row in rows] == ["4", "3", "4"]
    assert [row["events"] for row in rows] == ["0", "1", "0"]
    assert [float(row["measured_makespan"]) for row in rows] == [0.2] * 3
    assert [float(row["time"]) for row in rows] == [1, 2, 3]
    assert rows[0]["run"] == str(run)
    assert rows[0]["load_seconds"] == "0.05"
    assert (rows[0]["condition_number"], rows[0]["payload_bytes"]) == ("2.5", "1688")


def test_a_table_has_empty_cells_and_no_formulas(make_run, tmp_path, monkeypatch):
    run = make_run([step_of(0, hindsight_makespan=None, cancellation=None)], name="=1+1")
    monkeypatch.chdir(run.parent)
    assert report("=1+1", "--csv", "steps.csv") == 0
    (row,) = csv.DictReader((tmp_path / "steps.csv").read_text().splitlines())
    assert (row["hindsight_makespan"], row["cancellation"], row["run"]) == ("", "", "'=1+1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["RUN"], "nothing to write: expected --out FILE"),
        (["--out", "x.html"], "missing DIR: expected cec-mpi report DIR ..."),
        (["absent", "--out", "x.html"], "absent does not exist"),
        (["RUN", "--out", "RUN/steps.jsonl"], "would replace a file of the run"),
        (["RUN", "--out", "RUN/../run/steps.jsonl"], "would replace a file of the run"),
        (["RUN", "--out", "RUN/.lock"], "would replace a file of the run"),
        (["RUN", "--out", "x.txt"], "--out x.txt: expected a name that ends with .html"),
        (["RUN", "--out", "absent/x.html"], "absent/x.html cannot be written: No such file"),
        (["RUN", "--csv", "RUN"], "cannot be written: it is a directory"),
        (["RUN", "--out", ""], "expected the name"),
        (["RUN", "--out", "x.html", "--csv", "./x.html"], "is already the file of --out"),
        (["RUN", "--trace", "x"], "--trace: it was removed; use --csv FILE"),
        (["RUN", "--out", "x.html", "--step", "2,7-9"], "--step 7, 8, 9: run has steps 0 to 2"),
        (["RUN", "--csv", "x", "--step", "1"], "--step needs --out FILE"),
        (["RUN", "--csv", "x", "--title", "a"], "--title needs --out FILE"),
        (["RUN", "--out", "x.html", "--step", "a"], "'a': expected a whole number"),
        (["RUN", "--out", "x.html", "--step", "9-7"], "'9-7': expected step numbers"),
    ],
)
def test_bad_input_gives_one_message_and_writes_no_file(
    run, tmp_path, monkeypatch, capsys, words, message
):
    monkeypatch.chdir(tmp_path)
    before = (run / "steps.jsonl").read_bytes()
    assert report(*(word.replace("RUN", "run") for word in words)) == 2
    error = capsys.readouterr().err
    assert error.startswith("cec-mpi: error: ")
    assert error.count("\n") == 1
    assert message in error
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    assert [file.name for file in run.iterdir()] == ["steps.jsonl"]
    assert (run / "steps.jsonl").read_bytes() == before


def test_a_run_without_steps_causes_a_warning(make_run, tmp_path, capsys):
    run = make_run([])
    assert report(run, "--out", tmp_path / "x.html") == 0
    assert capsys.readouterr().err == f"cec-mpi: warning: {run} has no steps\n"
    assert (tmp_path / "x.html").exists()
    assert report(run, "--out", tmp_path / "y.html", "--step", "5") == 2
    assert f"--step 5: {run} has no steps" in capsys.readouterr().err


def test_printed_names_are_escaped(run, tmp_path, capsys):
    assert report(run, "--out", tmp_path / "a\x1b[31m.html") == 0
    assert "\x1b" not in capsys.readouterr().out


def test_an_unreadable_summary_is_refused(run, tmp_path, capsys):
    (run / "summary.json").write_text("{bad")
    assert report(run, "--out", tmp_path / "x.html") == 2
    assert "summary.json cannot be read" in capsys.readouterr().err


def test_a_line_that_is_too_long_is_an_error(run, tmp_path, monkeypatch, capsys):
    """Otherwise --resume would lose the lines after it."""
    monkeypatch.setattr(reading, "MAX_LINE_BYTES", 5000)
    with (run / "steps.jsonl").open("a") as file:
        file.write('{"kind": "checkpoint", "x": "' + 6000 * "x" + '"}\n')
    assert report(run, "--out", tmp_path / "x.html") == 2
    assert "or more: expected one JSON object" in capsys.readouterr().err
    with pytest.raises(InputError, match="or more"):
        resume_steps(run / "steps.jsonl")
