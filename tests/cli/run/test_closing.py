"""Closing lines and warnings of a run."""

import json
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import cec_mpi
from cec_mpi.cli import main
from cec_mpi.cli.run.closing import RunEnd, closing_lines, closing_warnings, collect_warnings
from helpers.waiting import LIMIT

pytestmark = pytest.mark.usefixtures("no_launcher")

ROWS, COLUMNS = 40, 6
RNG = np.random.default_rng(11)
X = RNG.standard_normal((ROWS, COLUMNS))


def make_run_end(**changes):
    fields = {
        "task": "cg",
        "out": Path("out"),
        "seconds": 12.34,
        "steps": 40,
        "earlier_steps": 0,
        "machines": 6,
        "events": Counter(),
        "finished": True,
        "files": ("result.npy", "u.npy"),
    }
    return RunEnd(**fields | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"converged": True, "iterations": 20}, "cg converged in 20 iterations: 40 steps on"),
        ({"converged": False, "iterations": 1}, "cg did not converge in 1 iteration: 40 steps on"),
        ({"earlier_steps": 25}, "40 steps on 6 machines (65 including earlier runs), 12.3 s"),
        ({"steps": 1, "machines": 1}, "1 step on 1 machine, "),
        ({"finished": False}, "cg ended early: 40 steps"),
    ],
)
def test_the_first_closing_line_has_outcome_steps_and_time(changes, message):
    assert message in closing_lines(make_run_end(**changes))[0]


def test_a_closing_line_counts_the_events_of_machines():
    events = {("lost", 3): 1, ("lost", 5): 1, ("joined", 3): 1, ("late", 2): 7, ("wrong", 4): 1}
    lines = closing_lines(make_run_end(events=Counter(events)))
    assert lines[1] == (
        "machines: 2 lost (3 and 5), 1 joined (3), 7 missed deadlines (2), 1 wrong answer (4)"
    )
    assert len(lines) == 4


def test_a_loss_gives_a_closing_warning():
    assert closing_warnings(make_run_end(converged=True)) == []
    (text,) = closing_warnings(make_run_end(events=Counter({("lost", 3): 2})))
    assert text.startswith("machine 3 was lost")


def test_warnings_are_collected_once_and_shown_as_usual(monkeypatch):
    shown = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_: shown.append(str(message)))
    texts = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with collect_warnings(texts):
            for _ in range(2):
                warnings.warn("columns differ", stacklevel=1)
        warnings.warn("afterwards", stacklevel=1)
    assert texts == ["columns differ"]
    assert shown == ["columns differ", "columns differ", "afterwards"]


# --- runs ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    directory = tmp_path_factory.mktemp("made")
    np.save(directory / "X.npy", X)
    np.save(directory / "b.npy", RNG.standard_normal(ROWS))
    np.save(directory / "W.npy", RNG.standard_normal((10, COLUMNS)))
    cec_mpi.encode(directory / "X.npy", directory / "store", 3, 2)
    return directory / "store"


@pytest.fixture
def run_args(store, tmp_path):
    """Return the arguments of a run, by default of a solver."""

    def run_args(*options, task="lstsq"):
        task_args = [f"vectors={store.parent / 'W.npy'}"]
        if task != "matvec":
            task_args = [task, f"b={store.parent / 'b.npy'}"]
        run = ["run", store, "--out", tmp_path / "out", "--serial", *task_args]
        return list(map(str, [*run, *options]))

    return run_args


@pytest.fixture
def run(run_args, capsys):
    def run(*options, **task):
        code = main(run_args(*options, **task))
        out, err = capsys.readouterr()
        return code, out.splitlines(), err.splitlines()

    return run


def summary_in(tmp_path):
    return json.loads((tmp_path / "out" / "summary.json").read_text())


def test_a_solver_that_did_not_converge_leaves_its_results_and_an_error(run, tmp_path):
    code, out, err = run("iterations=1")
    assert code == 8
    assert out[0].startswith("lstsq did not converge in 1 iteration: ")
    (error,) = err
    assert error.startswith("cec-mpi: error: lstsq did not converge; its last results are saved")
    assert error.endswith("to continue, use --resume and a larger iterations=N")
    assert summary_in(tmp_path)["warnings"] == [error.removeprefix("cec-mpi: error: ")]
    assert (tmp_path / "out" / "result.npy").exists()
    assert run("--resume", "iterations=99")[0] == 0
    assert summary_in(tmp_path)["converged"] is True


def test_a_run_that_ended_early_names_the_command_to_continue(run, tmp_path):
    out_dir, availability = tmp_path / "out", ["--availability", tmp_path / "a.json"]
    (tmp_path / "a.json").write_text('{"available": [[1]]}')
    code, out, err = run(*availability)
    assert (code, out, len(err)) == (4, [], 1)
    (tmp_path / "a.json").write_text('{"available": [[1, 2, 3], [1, 2], [1]]}')
    code, out, err = run(*availability, task="matvec")
    assert (code, len(err)) == (4, 1)
    assert out[0].startswith("matvec ended early: 2 steps on 3 machines, ")
    remedy = "a checkpoint was written: to continue, run the same command with --resume"
    assert out[1] == f"{out_dir}: {remedy}"
    code, out, (error,) = run(task="matvec")
    assert (code, out) == (2, [])
    assert "holds an incomplete run" in error
    assert "--resume continues it" in error
    _, out, _ = run("--overwrite", *availability, task="matvec")
    assert out[1] == f"{out_dir}: {remedy} in place of --overwrite"
    code, out, err = run("--resume", task="matvec")
    assert (code, err) == (0, [])
    assert out[0].startswith("matvec is done: 8 steps on 3 machines (10 including earlier runs")


def test_a_warning_of_a_users_task_is_shown_and_saved(run_args, tmp_path):
    (tmp_path / "warning_task.py").write_text(
        "import warnings\n"
        "def task(X, *, b, checkpoint):\n"
        "    warnings.warn('b has outliers')\n"
        "    return {'result': X.matvec([1.0] * X.shape[1])}\n"
    )
    result = run_in_process(run_args(task="warning_task:task"), cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "cec-mpi: warning: b has outliers\n")
    assert result.stdout.startswith("warning_task:task is done: 1 step on 3 machines, ")
    assert summary_in(tmp_path)["warnings"] == ["b has outliers"]


# --- verbosity ------------------------------------------------------------------------------


def test_verbosity_may_be_set_before_or_after_the_command(run_args, capsys):
    assert main(["-q", *run_args()]) == 0
    assert main([*run_args("--overwrite"), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert main([*run_args("--overwrite", "--checkpoint-every", "1", task="matvec"), "-v"]) == 0
    out, err = capsys.readouterr()
    assert "cec-mpi: checkpoint after " in err
    assert len(out.splitlines()) == 3
    assert main([*run_args(), "-q", "-v"]) == 2
    assert "cannot be combined with" in capsys.readouterr().err


def test_quiet_commands_on_stores_print_only_problems(store, tmp_path, call):
    args = ["--machines", "3", "--recovery", "2"]
    for command in (
        ["encode", store.parent / "X.npy", "made", *args],
        ["verify", "made"],
        ["repair", "made"],
        ["decode", "made", "X.npy"],
    ):
        assert call([*command, "-q"], tmp_path) == (0, "", "")
    (tmp_path / "made" / "shard-0002.npy").unlink()
    code, out, err = call(["verify", "made", "-q"], tmp_path)
    assert (code, out, err.count("\n")) == (5, "shard-0002.npy: missing\n", 1)
    assert "3 machines" in call(["-q", "info", "made"], tmp_path)[1]


# --- output that cannot be written ------------------------------------------------------------


def run_in_process(args, **streams):
    command = [sys.executable, "-m", "cec_mpi", *args]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run(command, text=True, timeout=LIMIT, check=False, **pipes)


def test_full_standard_output_does_not_make_a_run_fail(run_args, tmp_path):
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device, not a path
        result = run_in_process(run_args(), stdout=full)
    assert result.returncode == 0
    assert result.stderr == (
        "cec-mpi: warning: standard output cannot be written: No space left on device\n"
    )
    assert summary_in(tmp_path)["converged"] is True


@pytest.mark.parametrize(("options", "code"), [(["iterations=1"], 8), (["a=1"], 2)])
def test_full_standard_error_changes_no_exit_code(run_args, options, code):
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device, not a path
        result = run_in_process(run_args(*options), stderr=full)
    assert result.returncode == code
    assert len(result.stdout.splitlines()) == (3 if code == 8 else 0)


def test_closed_output_changes_no_exit_code(run_args, tmp_path):
    command = [sys.executable, "-m", "cec_mpi", *run_args("iterations=1")]
    closed_output = ["bash", "-c", '"$@" >&- 2>&-', "bash", *command]
    assert subprocess.run(closed_output, timeout=LIMIT, check=False).returncode == 8
    assert summary_in(tmp_path)["converged"] is False
