"""`cec-mpi run --serial` and `open_operator(store, None)`: all machines in one process."""

import json
import os
import re
import shutil
import socket
import sys
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import cec_mpi
from cec_mpi.cli import main
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.errors import InputError, MachineError
from cec_mpi.runtime.availability.models import PAPER_AVAILABLE, RandomAvailability
from cec_mpi.runtime.machine.emulation import Emulation, SpeedChange
from cec_mpi.runtime.options.session import SessionOptions
from cec_mpi.runtime.processes.places import detect_place
from cec_mpi.runtime.records.recorder import Recorder, read_steps
from cec_mpi.runtime.session.static import static_session
from cec_mpi.store.files.durable import locked

MACHINES, RECOVERY = 6, 3
ROWS, COLUMNS, STEPS = 1259, 17, 12  # 420 rows per shard, one of them padding
RNG = np.random.default_rng(5)
X = RNG.standard_normal((ROWS, COLUMNS))
W = RNG.standard_normal((STEPS, COLUMNS))
HALF, _ = np.linalg.qr(RNG.standard_normal((30, 30)))
SYMMETRIC = HALF @ np.diag(np.linspace(-1, 3, 30)) @ HALF.T


pytestmark = pytest.mark.usefixtures("no_launcher")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    directory = tmp_path_factory.mktemp("made")
    np.save(directory / "W.npy", W)
    for name, matrix in (("float64", X), ("float32", X.astype("f4")), ("symmetric", SYMMETRIC)):
        np.save(directory / "X.npy", matrix)
        cec_mpi.encode(directory / "X.npy", directory / name, MACHINES, RECOVERY)
    return directory


class Run:
    """A run that has ended, and what it left."""

    def __init__(self, code, err, out):
        self.code = code
        self.err = err
        self.out = out
        if (out / "summary.json").exists():
            self.summary = json.loads((out / "summary.json").read_text())
        if (out / "steps.jsonl").exists():
            self.header, self.steps = read_steps(out / "steps.jsonl")

    @property
    def result(self):
        return np.load(self.out / "result.npy")

    def of_steps(self, field):
        return [step[field] for step in self.steps]


@pytest.fixture
def run(made, tmp_path, capsys):
    """Start a run and read what it left; by default the products with W."""

    def start(*words, store="float64", task="matvec", out="out"):
        given = any(str(word).startswith("vectors=") for word in words)
        vectors = [f"vectors={made / 'W.npy'}"] if task == "matvec" and not given else []
        words = ["--serial", "--out", tmp_path / out, task, *vectors, *words]
        code = main(["run", str(made / store), *map(str, words)])
        _, err = capsys.readouterr()
        return Run(code, err, tmp_path / out)

    return start


def written(directory, content, name="who.json"):
    path = directory / name
    path.write_text(json.dumps(content))
    return path


def relative_error(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


# --- results ------------------------------------------------------------------------------


@pytest.mark.parametrize(("store", "accuracy"), [("float64", 1e-12), ("float32", 1e-4)])
@pytest.mark.parametrize("scheme", ["heterogeneous", "cyclic"])
def test_products_are_right_whoever_is_available(run, store, accuracy, scheme):
    words = ["--available-probability", 0.6, "--wait", "--seed", 3, "--scheme", scheme]
    done = run(*words, "--speeds", "2,2,3,3,4,4", store=store)
    assert (done.code, done.err) == (0, "")
    assert done.result.shape == (STEPS, ROWS)
    assert done.result.dtype == np.float64
    assert relative_error(done.result, W @ X.T) < accuracy
    assert len(set(map(tuple, done.of_steps("available")))) > 5


@pytest.mark.parametrize("store", ["float64", "float32"])
@pytest.mark.parametrize("dtype", ["f2", "f4", ">f8", "i4", "?"])
def test_vectors_of_other_dtypes(run, made, tmp_path, store, dtype):
    vectors = (3 * W).astype(dtype)
    np.save(tmp_path / "vectors.npy", vectors)
    done = run(f"vectors={tmp_path / 'vectors.npy'}", store=store)
    assert relative_error(done.result, vectors.astype(float) @ X.T) < 1e-4


@pytest.mark.parametrize(("steps", "expected"), [(1, 1), (5, 5), (STEPS + 3, STEPS)])
def test_no_more_steps_than_asked_for(run, steps, expected):
    done = run(f"iterations={steps}")
    assert relative_error(done.result, W[:expected] @ X.T) < 1e-12
    assert done.summary["steps"] == len(done.steps) == expected


def test_power_iteration_finds_the_dominant_eigenpair(run):
    done = run(
        "tol=1e-9",
        "--available-probability",
        0.8,
        "--wait",
        store="symmetric",
        task="power",
    )
    assert done.code == 0
    assert done.summary["task"] == "power"
    assert done.summary["converged"] is True
    assert done.summary["eigenvalue"] == pytest.approx(3, rel=1e-9)
    assert done.summary["residual"] <= 1e-9
    assert done.summary["iterations"] == done.summary["steps"] == len(done.steps)
    assert np.abs(SYMMETRIC @ done.result - 3 * done.result).max() < 1e-8


def test_iterations_seed_and_settings_reach_the_task(run):
    words = ["iterations=3", "--seed", 8]
    first = run(*words, store="symmetric", task="power")
    second = run("iterations=3", "seed=8", store="symmetric", task="power", out="b")
    third = run("iterations=3", store="symmetric", task="power", out="c")
    assert np.allclose(first.result, second.result, rtol=1e-9)
    assert not np.allclose(first.result, third.result, rtol=1e-3)


# --- a task of the user's -----------------------------------------------------------------


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module in the working directory, as a user has it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    name = f"module_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(
        "import numpy as np\n"
        "def told(X, *, checkpoint, **options):\n"
        "    return {'result': np.zeros(1), **options}\n"
        "def three(X, *, checkpoint, times=2):\n"
        "    y = [X.matvec(np.full(X.shape[1], t + 1.0)) for t in range(times)]\n"
        "    return {'result': np.array(y), 'first': y[0], 'times': times, 'name': 'three'}\n"
        "def complex_number(X, *, checkpoint):\n"
        "    return {'result': np.zeros(1), 'eigenvalue': 1 + 2j}\n"
        "def bare(X):\n"
        "    return {'result': X.matvec(np.ones(X.shape[1]))}\n"
        "def ragged(X, *, checkpoint):\n"
        "    return {'first': np.ones(2), 'a b': 3, 'result': [[1.0], [2.0, 3.0]]}\n"
        "def good(X, *, k=20):\n"
        "    return X.matvec(np.full(X.shape[1], k))\n"
        "def several(X):\n"
        "    return np.arange(2.0), 2.5\n"
        "def odd(X):\n"
        "    deep = []\n"
        "    for _ in range(3000):\n"
        "        deep = [deep]\n"
        "    masked = np.ma.array([1.0, 2.0], mask=[False, True])\n"
        "    return {'n' * 300: 1, 'deep': deep, 'long': np.longdouble(2), 'masked': masked}\n"
        "def number(X):\n"
        "    return 2.5\n"
        "def unconverged(X):\n"
        "    return {'result': np.ones(1), 'converged': np.array(False)}\n"
        "def seconds(X):\n"
        "    return {'result': np.ones(1), 'seconds': 7}\n"
        "def nothing(X):\n"
        "    X.matvec(np.ones(X.shape[1]))\n"
        "def unsaved(X):\n"
        "    return {'result': X.matvec(np.ones(X.shape[1])), 'f': lambda: 0}\n"
        "def mapped(X, *, checkpoint):\n"
        "    np.save('kept.npy', np.arange(4.0))\n"
        "    return {'result': np.load('kept.npy', mmap_mode='r')}\n"
    )
    return name


def test_arrays_of_a_users_task_are_saved_and_numbers_summed_up(run, module):
    done = run("times=3", task=f"{module}:three")
    assert done.code == 0
    assert relative_error(done.result, np.outer([1, 2, 3], X.sum(axis=1))) < 1e-12
    assert np.array_equal(np.load(done.out / "first.npy"), done.result[0])
    assert done.summary["task"] == f"{module}:three"
    assert (done.summary["times"], done.summary["name"]) == (3, "three")
    assert len(done.steps) == 3


def test_settings_are_numbers_lists_or_text(run, module):
    words = ["a=3", "b=2.5", "c=text", "d=[1, 2]", "e=None", "f='3'", "g=x=y", "h=True", "i="]
    done = run(*words, task=f"{module}:told")
    found = {name: done.summary[name] for name in "abcefghi"}
    assert found == {
        "a": 3,
        "b": 2.5,
        "c": "text",
        "e": None,
        "f": "3",
        "g": "x=y",
        "h": True,
        "i": "",
    }
    assert np.load(done.out / "d.npy").tolist() == [1, 2]


@pytest.mark.parametrize(
    ("task", "words", "said"),
    [
        ("ridge", [], "task ridge needs y: expected y=..."),
        ("ridge", ["y=1", "y=2"], "y=2: y is already set to 1, expected it once"),
        ("{module}:bare", ["k=3"], "task {module}:bare has no option k: expected no options"),
    ],
)
def test_what_a_task_cannot_be_called_with_is_told(run, module, task, words, said):
    done = run(*words, task=task.format(module=module))
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert said.format(module=module) in done.err


def test_a_result_that_is_a_memory_map_is_saved_too(run, module):
    done = run(task=f"{module}:mapped")
    assert done.result.tolist() == [0, 1, 2, 3]


def test_a_task_needs_no_checkpoint_and_may_return_an_array(run, module):
    done = run("k=3", task=f"{module}:good")
    assert done.code == 0
    assert relative_error(done.result, 3 * X.sum(axis=1)) < 1e-12


def test_a_task_may_return_a_number_or_a_tuple(run, module):
    assert run(task=f"{module}:number").result == 2.5
    done = run(task=f"{module}:several", out="several")
    assert np.load(done.out / "result_0.npy").tolist() == [0, 1]
    assert done.summary["result_1"] == 2.5


def test_what_is_no_array_of_numbers_is_saved_too(run, module):
    assert run(task=f"{module}:complex_number").code == 0
    done = run(task=f"{module}:ragged", out="ragged")
    assert (done.code, done.err.count("\n")) == (0, 1)
    assert "allow_pickle=True to read" in done.err
    found = np.load(done.out / "result.npy", allow_pickle=True)
    assert found.item() == [[1.0], [2.0, 3.0]]
    assert np.load(done.out / "first.npy").tolist() == [1, 1]
    assert done.summary["a_b"] == 3


def test_one_value_that_cannot_be_saved_costs_no_other(run, module):
    done = run(task=f"{module}:odd")
    assert done.code == 2
    assert "'deep' of type list" in done.err
    found = np.load(done.out / "masked.npy")
    assert found[0] == 1
    assert np.isnan(found[1])


def test_an_array_of_one_truth_value_says_whether_a_task_converged(run, module):
    done = run(task=f"{module}:unconverged")
    assert done.code == 8
    assert "did not converge" in done.err
    assert np.load(done.out / "result.npy").tolist() == [1]


def test_a_number_with_a_name_of_the_summary_gets_a_file(run, module):
    done = run(task=f"{module}:seconds")
    assert done.code == 0
    assert np.load(done.out / "seconds.npy") == 7
    assert done.summary["arrays"] == ["result", "seconds"]


@pytest.mark.parametrize(
    ("name", "said"), [("nothing", "returned nothing"), ("unsaved", "'f' of type function")]
)
def test_what_cannot_be_saved_is_named_after_all_else_was_saved(run, module, name, said):
    done = run(task=f"{module}:{name}")
    assert done.code == 2
    assert said in done.err
    assert (done.out / "result.npy").exists() == (name == "unsaved")
    assert not (done.out / "summary.json").exists()


# --- who is available ---------------------------------------------------------------------


def test_the_papers_example_step_by_step(run, tmp_path):
    path = written(tmp_path, {"gap_seconds": 600, "available": PAPER_AVAILABLE})
    done = run("--availability", path, "--speeds", "2,2,3,3,4,4", "iterations=6")
    assert done.of_steps("available") == [list(PAPER_AVAILABLE[min(t, 3)]) for t in range(6)]
    assert done.of_steps("rows") == [
        [140, 140, 210, 210, 280, 280],
        [168, 168, 252, 0, 336, 336],
        [240, 240, 360, 0, 420, 0],
        *[[0, 420, 420, 0, 420, 0]] * 3,
    ]
    assert done.of_steps("plan_changed") == [True, True, True, True, False, False]
    assert relative_error(done.result, W[:6] @ X.T) < 1e-12


def test_a_file_can_start_again(run, tmp_path):
    path = written(tmp_path, {"available": [[1, 2, 3], [4, 5, 6]]})
    done = run("--availability", path, "--repeat", "iterations=5")
    assert done.of_steps("available") == [[1, 2, 3], [4, 5, 6]] * 2 + [[1, 2, 3]]


def test_counts_of_two_groups_are_added(run, tmp_path):
    paths = [
        written(tmp_path, {"metadata": {"gap_seconds": 1}, "data": data}, f"{n}.json")
        for n, data in enumerate([[3, 2], [2, 2, 9]])
    ]
    done = run(*(f"--availability={path}" for path in paths), "iterations=3")
    assert [len(available) for available in done.of_steps("available")] == [5, 4, 6]


def test_ticks_with_too_few_machines_are_waited_for(run, tmp_path):
    sets = [[1, 2], [], [1, 2, 3], [4], [4, 5, 6]]
    path = written(tmp_path, {"available": sets})
    done = run("--availability", path, "--wait", "iterations=4")
    assert done.of_steps("tick") == [2, 4, 5, 6]
    assert done.of_steps("waited_ticks") == [2, 1, 0, 0]
    assert done.summary["waited_ticks"] == 3
    assert relative_error(done.result, W[:4] @ X.T) < 1e-12


def test_a_command_is_asked_between_steps(run, tmp_path):
    """It is up to the file which machines the step of a tick has."""
    for tick in range(20):
        (tmp_path / str(tick)).write_text("2, 3, 5" if tick % 2 else "[1, 4, 6, 2]")
    command = f"sh -c 'cat {tmp_path}/$CEC_TICK'"
    done = run("--availability-command", command, "--availability-every", 1e-9)
    assert (done.code, done.err) == (0, "")
    assert done.of_steps("available") == [[1, 2, 4, 6], [2, 3, 5]] * (STEPS // 2)
    assert relative_error(done.result, W @ X.T) < 1e-12


def test_an_answer_of_a_command_holds_for_a_second(run, tmp_path):
    command = f"sh -c 'echo >> \"{tmp_path}/asked\"; echo 1 2 3'"
    assert run("--availability-command", command).code == 0
    assert 1 <= len((tmp_path / "asked").read_text()) < STEPS


def test_a_command_is_asked_again_while_machines_are_waited_for(run, tmp_path):
    """Ticks cost no time here, but it is asked only when its answer may be another."""
    command = "sh -c 'test $CEC_TICK -lt 5 || echo 1 2 4'"
    done = run("--availability-command", command, "--availability-every", 0.05, "--wait")
    assert done.code == 0
    assert done.steps[0]["waited_ticks"] == 5
    assert done.of_steps("available") == [[1, 2, 4]] * STEPS
    assert run("--availability-command", command, out="other").code == 4


def test_a_command_that_fails_ends_a_run_that_can_go_on(run, tmp_path):
    command = "sh -c 'test $CEC_TICK -lt 7 && echo 1 2 3'"
    words = ["--availability-command", command, "--availability-every", 1e-9]
    failed = run(*words)
    assert failed.code == 2
    assert f"command {command!r} for tick 7 failed with exit code 1" in failed.err
    assert len(failed.steps) == 7
    done = run("--resume")
    assert (done.code, len(done.steps)) == (0, STEPS)
    assert relative_error(done.result, W @ X.T) < 1e-12


def test_a_product_whose_square_overflows_is_named_with_its_step_and_machine(tmp_path):
    made = cec_mpi.encode(X, tmp_path / "store", MACHINES, RECOVERY, scaling="none")
    shard = np.load(tmp_path / "store" / made.shards[1].file, mmap_mode="r+")
    shard[:] = np.where(shard < 0, -1e300, 1e300)  # as a faulty machine could answer
    shard.flush()
    with cec_mpi.open_operator(tmp_path / "store", verify="never", availability={2, 3, 5}) as A:
        A @ np.zeros(COLUMNS)
        y = A @ np.ones(COLUMNS)
        with np.errstate(all="ignore"):
            w = y[:COLUMNS] / (y @ y) - np.inf
        with pytest.raises(InputError) as caught:
            A @ w
        assert re.search(
            r"w\[0\] is -?(nan|inf): .* \(the product of step 1 has numbers of about .e\+30., "
            r"the largest in an answer of machine 2\)",
            str(caught.value),
        )
        with pytest.raises(InputError, match=r"w has dtype <U1: expected real numbers$"):
            A @ np.full(COLUMNS, "1")
        A @ np.zeros(COLUMNS)
        with pytest.raises(InputError, match=r"w\[0\] is nan: expected finite float64 numbers$"):
            A @ np.full(COLUMNS, np.nan)


def test_threads_that_outlive_their_task_are_told_that_it_is_over(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    (tmp_path / "outlived.py").write_text(
        "import threading\n"
        "raised, threads = [], []\n"
        "def task(X):\n"
        "    begun = threading.Event()\n"
        "    def loop():\n"
        "        try:\n"
        "            while True:\n"
        "                X.matvec([1.0] * X.shape[1])\n"
        "                begun.set()\n"
        "        except Exception as error:\n"
        "            raised.append(error)\n"
        "    threads.extend(threading.Thread(target=loop) for _ in range(3))\n"
        "    for thread in threads:\n"
        "        thread.start()\n"
        "    begun.wait()\n"
        "    return X.matvec([1.0] * X.shape[1])\n"
    )
    assert run(task="outlived:task").code == 0
    outlived = sys.modules["outlived"]
    for thread in outlived.threads:
        thread.join()
    assert [type(error) for error in outlived.raised] == [InputError] * 3
    assert {str(error) for error in outlived.raised} == {
        "this operator is closed: its machines have left"
    }


@pytest.mark.parametrize("value", [0.0, np.nan, 1.0])
def test_products_that_changed_are_not_continued_from(run, tmp_path, value):
    command = "sh -c 'test $CEC_TICK -lt 7 && echo 1 2 3'"
    assert run("--availability-command", command, "--availability-every", 1e-9).code == 2
    out = tmp_path / "out"
    result = np.load(out / "result.npy")
    changed = result.copy()
    changed[3, 5] = value
    with (out / "result.npy").open("r+b") as file:
        np.save(file, changed)
    failed = run("--resume")
    assert failed.code == 2
    assert "result.npy has changed since the checkpoint was written: the checksum" in failed.err
    assert failed.err.count("\n") == 1
    np.save(out / "result.npy", result.astype("f4"))
    assert "and dtype float32, but this run computes (12, 1259) in float64" in run("--resume").err
    np.save(out / "result.npy", result)
    done = run("--resume")
    assert (done.code, relative_error(done.result, W @ X.T) < 1e-12) == (0, True)


@pytest.mark.parametrize("wait", [[], ["--wait"]])
def test_too_few_machines_for_ever_end_the_run(run, tmp_path, wait):
    path = written(tmp_path, {"available": [[1, 2, 3], [2, 3, 4, 5], [4, 5]]})
    done = run("--availability", path, *wait)
    assert done.code == 4
    assert done.err.count("\n") == 1
    assert "2 machines are available at tick 2 (4, 5): a step needs 3" in done.err
    assert "--wait" not in done.err  # no later tick has more
    assert done.of_steps("available") == [[1, 2, 3], [2, 3, 4, 5]]
    assert not (done.out / "summary.json").exists()


def test_too_few_machines_at_first_leave_a_directory_that_can_be_used(run, tmp_path):
    done = run("--availability", written(tmp_path, {"available": [[1]]}))
    assert done.code == 4
    assert not list(tmp_path.glob("out/*.*"))
    assert run().code == 0


def test_only_some_machines_take_part(run, tmp_path):
    path = written(tmp_path, {"available": [[1, 2, 3, 4, 5, 6], [1, 3, 4, 5], [1, 3, 5]]})
    done = run("--availability", path, "--machines", "5,3,1,2")
    assert done.header["taking_part"] == [1, 2, 3, 5]
    assert done.of_steps("available")[:3] == [[1, 2, 3, 5], [1, 3, 5], [1, 3, 5]]
    assert {(rows[3], rows[5]) for rows in done.of_steps("rows")} == {(0, 0)}
    assert relative_error(done.result, W @ X.T) < 1e-12


def test_a_wait_that_can_never_end_is_refused_at_once(run, tmp_path):
    path = written(tmp_path, {"available": [[1, 2, 3], [4, 5, 6]]})
    done = run("--availability", path, "--machines", "1,2,3", "--wait")
    assert done.code == 4
    assert "0 machines are available at tick 1 (none)" in done.err


def test_wall_clock_ticks_pass_by_themselves(run, tmp_path):
    sets = [[1, 2, 3, 4 + tick % 3] for tick in range(200)]
    path = written(tmp_path, {"available": sets})
    done = run("--availability", path, "--tick", 0.002)
    ticks = done.of_steps("tick")
    assert ticks == sorted(ticks)
    assert done.of_steps("available") == [sets[min(tick, 199)] for tick in ticks]
    assert relative_error(done.result, W @ X.T) < 1e-12


def test_wall_clock_ticks_are_slept_through(run, tmp_path):
    path = written(tmp_path, {"available": [[], [], [], [1, 2, 3]]})
    done = run("--availability", path, "--tick", 0.02, "--wait", "iterations=2")
    assert done.of_steps("tick")[0] == done.of_steps("waited_ticks")[0] == 3
    assert done.of_steps("available") == [[1, 2, 3]] * 2


# --- records ------------------------------------------------------------------------------


def test_records_and_summary_agree(run):
    words = ["--available-probability", 0.6, "--wait", "--seed", 3]
    done = run(*words, "--speeds", "2,2,3,3,4,4")
    who = RandomAvailability(MACHINES, 0.6, seed=3)
    assert done.of_steps("step") == list(range(STEPS))
    for before, step in zip([{"tick": -1}, *done.steps], done.steps, strict=False):
        assert step["tick"] == before["tick"] + 1 + step["waited_ticks"]
        assert step["available"] == list(who.at(step["tick"]))
        assert sum(step["rows"]) == RECOVERY * 420
        for n, (rows, seconds) in enumerate(zip(step["rows"], step["seconds"], strict=True), 1):
            assert (rows > 0) == (seconds > 0)
            assert n in step["available"] or not rows
        assert step["measured_makespan"] == max(step["seconds"])
        assert step["collect_seconds"] >= step["measured_makespan"]
        assert step["bytes"]["collect"] == 8 * RECOVERY * 420
        assert step["condition"] >= 1
        plan = plan_step(step["available"], [2, 2, 3, 3, 4, 4], RECOVERY, 420)
        assert step["rows"] == plan.assignment.counts(MACHINES).tolist()
        if step["step"]:
            scale = plan.makespan / step["predicted_makespan"]
            assert step["bound"] * scale == pytest.approx(plan.bound)
            assert step["bound"] <= step["predicted_makespan"] * (1 + 1e-12)
    assert done.steps[0]["predicted_makespan"] is done.steps[0]["bound"] is None
    measured = done.of_steps("measured_makespan")
    assert done.summary["steps"] == STEPS
    assert done.summary["waited_ticks"] == sum(done.of_steps("waited_ticks"))
    assert done.summary["plan_changes"] == sum(done.of_steps("plan_changed"))
    assert done.summary["compute_seconds"] == pytest.approx(sum(measured))
    assert done.summary["median_makespan"] == pytest.approx(np.median(measured))
    assert done.summary["seconds"] >= sum(measured)
    assert done.summary["rows_per_second_per_speed"] > 0


def test_the_header_says_what_was_run(run):
    header = run("--speeds", "1,2,3,4,5,6", "--threads", 1, "--scheme", "cyclic").header
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", header["started"])
    expected = {
        "mpi_library": "none",
        "threads": [1],
        "rows": ROWS,
        "columns": COLUMNS,
        "rows_per_shard": 420,
        "dtype": "float64",
        "machines": MACHINES,
        "recovery": RECOVERY,
        "taking_part": [1, 2, 3, 4, 5, 6],
        "scheme": "cyclic",
        "speeds": [1, 2, 3, 4, 5, 6],
        "emulation": None,
    }
    assert expected.items() <= header.items()
    assert header["versions"]["cec_mpi"] == cec_mpi.__version__
    assert header["versions"]["numpy"] == np.__version__
    assert len(header["hosts"]) == 1


def test_a_map_says_where_each_machine_reads_its_shard(made, tmp_path, capsys):
    store, vectors = str(made / "float64"), str(made / "W.npy")
    words = ["run", store, "--out", str(tmp_path / "out"), f"vectors={vectors}"]
    assert main([*words, "--serial", "--map"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["machine", "rank", "host", "cores", "threads", "shard"]
    cores = str(detect_place().cores)
    assert lines[1].split() == ["master", "0", socket.gethostname(), cores, cores]
    shards = [str(made / "float64" / f"shard-{n:04d}.npy") for n in range(1, 7)]
    assert [line.split()[-1] for line in lines[2:8]] == shards


def test_speeds_are_given_by_host(run):
    done = run("--speeds", f"elsewhere=1,{socket.gethostname()}=3")
    assert done.header["speeds"] == [3] * MACHINES
    assert np.array_equal(done.result, run("--speeds", "3,3,3,3,3,3", out="listed").result)


def test_the_host_in_the_path_of_a_store(made, tmp_path):
    place = tmp_path / socket.gethostname()
    shutil.copytree(made / "float64", place / "store")
    with cec_mpi.open_operator(tmp_path / "{host}" / "store", None) as X_here:
        assert np.allclose(X_here @ W[0], X @ W[0])
    speeds = {socket.gethostname(): 1.0}
    with cec_mpi.open_operator(f"{tmp_path}/{{host}}/store", None, speeds=speeds) as other:
        assert np.allclose(other @ W[1], X @ W[1])


def test_two_runs_alike_give_the_same_results(run):
    words = ["--available-probability", 0.6, "--wait", "--seed", 3, "--speeds", "2,2,3,3,4,4"]
    first, second = run(*words, out="first"), run(*words, out="second")
    assert np.array_equal(first.result, second.result)
    assert first.of_steps("available") == second.of_steps("available")
    assert first.of_steps("rows") == second.of_steps("rows")


@pytest.mark.parametrize(
    "spoil", [Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:-8])]
)
def test_a_shard_that_cannot_be_read_is_told_with_what_helps(run, made, tmp_path, spoil):
    store = shutil.copytree(made / "float64", tmp_path / "store")
    spoil(store / "shard-0004.npy")
    done = run(store=store)
    assert (done.code, done.err.count("\n")) == (5, 1)
    for words in ("machine 4 on ", "cec-mpi repair", "--elastic"):
        assert words in done.err


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("matvec", ["--speeds=1,2"]),
        ("svd", ["k=abc"]),
        ("svd", ["k=999"]),
        ("ridge", ["y=absent.npy"]),
        ("svd", ["k=0", "--resume"]),
    ],
)
def test_a_refused_run_leaves_no_directory(run, tmp_path, task, words):
    assert run(*words, task=task, out="new/deep").code == 2
    (tmp_path / "mine").mkdir()
    assert run(*words, task=task, out="mine").code == 2
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]


def test_results_are_refused_or_replaced(run, tmp_path):
    assert run().code == 0
    kept = {path: path.read_bytes() for path in tmp_path.glob("out/*.*")}
    assert {path.name for path in kept} == {"result.npy", "steps.jsonl", "summary.json"}
    refused = run("iterations=2")
    assert refused.code == 2
    assert "--overwrite" in refused.err
    assert {path: path.read_bytes() for path in tmp_path.glob("out/*.*")} == kept
    replaced = run("iterations=2", "--overwrite")
    assert replaced.code == 0
    assert replaced.result.shape == (2, ROWS)
    assert len(replaced.steps) == replaced.summary["steps"] == 2


# --- emulated speeds ----------------------------------------------------------------------

BASE = 100_000.0
SPEEDS = (2.0, 2.0, 3.0, 3.0, 4.0, 4.0)


def assert_no_faster_than(emulation, steps):
    for step in steps:
        for n, (rows, seconds) in enumerate(zip(step["rows"], step["seconds"], strict=True), 1):
            assert seconds >= rows / emulation.rate(n, step["step"])


def emulated(*words):
    listed = ",".join(map(str, SPEEDS))
    return ["--speeds", listed, "--emulate-speeds", listed, "--emulate-base", BASE, *words]


def test_an_emulated_machine_takes_at_least_its_time(run):
    done = run(*emulated("--available-probability", 0.8, "--wait"))
    assert relative_error(done.result, W @ X.T) < 1e-12
    for step in done.steps:
        slowest = max(m / s for m, s in zip(step["rows"], SPEEDS, strict=True))
        assert step["measured_makespan"] >= slowest / BASE
    assert_no_faster_than(Emulation(SPEEDS, BASE), done.steps)
    assert done.header["emulation"]["speeds"] == list(SPEEDS)
    assert done.header["emulation"]["base"] == BASE


def test_the_base_is_measured_where_none_is_given(run):
    done = run("--emulate-speeds", "2,2,3,3,4,4", "iterations=3")
    base = done.header["emulation"]["base"]
    assert base > 0
    assert_no_faster_than(Emulation(SPEEDS, base), done.steps)


def test_an_emulated_change_halves_the_speed_of_one_machine(run):
    done = run(*emulated("--emulate-change", "3:5:0.5", "--emulate-change", "6:5:0.5"))
    changes = (SpeedChange(3, 5, 0.5), SpeedChange(6, 5, 0.5))
    emulation = Emulation(SPEEDS, BASE, changes=changes)
    assert [emulation.rate(5, step) / BASE for step in (0, 2, 3, 5, 6, 9)] == [4, 4, 2, 2, 1, 1]
    assert emulation.rate(6, 9) == 4 * BASE
    assert_no_faster_than(emulation, done.steps)


def test_emulated_noise_comes_from_the_seed(run):
    done = run(*emulated("--emulate-noise", 0.3, "--seed", 4))
    emulation = Emulation(SPEEDS, BASE, noise=0.3, seed=4)
    assert_no_faster_than(emulation, done.steps)
    assert len({emulation.rate(1, step) for step in range(STEPS)}) == STEPS
    assert done.header["emulation"]["noise"] == 0.3


# --- the operator -------------------------------------------------------------------------


def test_an_operator_without_mpi(made):
    recorder = Recorder()
    with cec_mpi.open_operator(made / "float64", None, recorder=recorder) as operator:
        assert operator.shape == (ROWS, COLUMNS)
        assert operator.dtype == np.float64
        found = [operator.matvec(W[0]), (operator @ W[1:2].T)[:, 0], operator @ W[2]]
    for y, w in zip(found, W, strict=False):
        assert relative_error(y, X @ w) < 1e-12
    assert recorder.steps == 3


@contextmanager
def master_of(store):
    with static_session(None) as session:
        yield session.open(store, SessionOptions(speeds=(1.0,) * 6), Recorder())


@pytest.mark.parametrize(
    ("w", "out", "says"),
    [
        (np.ones(COLUMNS + 1), None, r"w has shape \(18,\): expected \(17,\)"),
        (np.ones((1, COLUMNS)), None, r"w has shape \(1, 17\)"),
        (np.ones(COLUMNS, dtype=complex), None, "complex128: expected real"),
        (np.full(COLUMNS, None), None, "object: expected real"),
        (np.where(np.arange(COLUMNS) == 4, np.nan, 1.0), None, r"w\[4\] is nan"),
        (np.ones(COLUMNS), np.empty(ROWS + 1), r"out has shape \(1260,\)"),
        (np.ones(COLUMNS), np.empty(ROWS, dtype="f4"), "dtype float32: expected"),
    ],
)
def test_a_wrong_product_is_refused_and_the_next_one_is_right(made, w, out, says):
    with master_of(made / "float64") as master:
        with pytest.raises(InputError, match=says):
            master.matvec(w, out=out)
        assert relative_error(master.matvec(W[0]), X @ W[0]) < 1e-12


@pytest.mark.parametrize("store", ["float64", "float32"])
def test_a_product_that_is_too_large_is_refused_and_the_next_one_is_right(made, store):
    with cec_mpi.open_operator(made / store, None) as operator:
        with pytest.raises(MachineError, match=r"X w is too large for float64"):
            operator.matvec(np.full(COLUMNS, 1e308))
        with pytest.raises(MachineError, match=r"X' v is too large for float64"):
            operator.rmatmat(np.full((ROWS, 2), [1.0, 1e308]))
        assert relative_error(operator.matvec(W[0]), X @ W[0]) < 1e-4


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("rows", "columns"), [(1_200_000, 3), (3, 1_200_000)])
def test_a_step_like_the_last_one_allocates_no_array(tmp_path, rows, columns, dtype):
    matrix = RNG.standard_normal((rows, columns)).astype(dtype)
    np.save(tmp_path / "X.npy", matrix)
    cec_mpi.encode(tmp_path / "X.npy", tmp_path / "store", 5, 3)
    w, y = RNG.standard_normal(columns), np.empty(rows)
    only_arrays = tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)
    with static_session(None) as session:
        options = SessionOptions(speeds=(1.0,) * 5)
        operator = session.open(tmp_path / "store", options, Recorder())
        for _ in range(10):  # the scale of the speeds is fitted in the first steps
            operator.matvec(w, out=y)
        tracemalloc.start()
        try:
            operator.matvec(w, out=y)
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(5):
                operator.matvec(w, out=y)
            _, peak = tracemalloc.get_traced_memory()
            kept = tracemalloc.take_snapshot().filter_traces([only_arrays])
        finally:
            tracemalloc.stop()
    assert sum(trace.size for trace in kept.traces) == 0
    # An array as long as w or a part of y has at least 1.6 MB. Vectors are taken and scaled in
    # pieces of 262,144 bytes, however many numbers there are.
    assert peak - before < 1_000_000
    assert relative_error(y, matrix.astype(float) @ w) < 1e-4


def test_a_run_that_never_began_leaves_the_earlier_results(run, tmp_path):
    first = run()
    path = written(tmp_path, {"available": [[1]]})
    failed = run("--availability", path, "--overwrite")
    assert failed.code == 4
    assert np.array_equal(np.load(tmp_path / "out" / "result.npy"), first.result)


def test_vectors_that_are_written_to_in_mid_run_end_it(run, made, tmp_path):
    vectors = tmp_path / "W.npy"
    vectors.write_bytes((made / "W.npy").read_bytes())
    change = f"[ $CEC_TICK != 1 ] || printf 'x' | dd of={vectors} bs=1 seek=900 conv=notrunc"
    asks = ["--availability-command", f'sh -c "{change}; echo 1-4"', "--availability-every", 1e-9]
    done = run(f"vectors={vectors}", *asks)
    assert done.code == 2
    assert f"{vectors} was modified during the run" in done.err
    assert 1 <= len(done.steps) <= 2


def test_products_that_were_not_made_are_nan(run, tmp_path):
    path = written(tmp_path, {"available": [[1, 2, 3], [1]]})
    assert run("--availability", path).code == 4
    result = np.load(tmp_path / "out" / "result.npy")
    assert np.isfinite(result[0]).all()
    assert np.isnan(result[1:]).all()


def test_two_runs_do_not_share_a_directory(run, tmp_path):
    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out", "not this one"):
        done = run()
    assert done.code == 2
    assert "in use by another run" in done.err


def test_machines_of_an_operator_may_be_written_as_ranges(made):
    with cec_mpi.open_operator(made / "float64", None, machines="1-3,5") as Y:
        assert Y.available == (1, 2, 3, 5)
        Y.available = "2-3, 5"
        assert Y.available == (2, 3, 5)
        for wrong in ("5-6", "3-1", "two", "1-"):
            with pytest.raises(InputError, match="available"):
                Y.available = wrong
    for wrong in ("3-1", "1-7", "one", "1,1-3"):
        with (
            pytest.raises(InputError, match="machines"),
            cec_mpi.open_operator(made / "float64", None, machines=wrong),
        ):
            pass


# --- what is gone on with may be broken or hostile ----------------------------------------


@pytest.fixture
def unfinished(run):
    """A solver that made three iterations, and could make more."""
    done = run("iterations=3", store="symmetric", task="power")
    assert done.code == 8
    return done.out


def spoil_steps(content):
    def spoil(out):
        lines = (out / "steps.jsonl").read_text().splitlines(keepends=True)
        (out / "steps.jsonl").write_text("".join([*lines[:2], content + "\n", *lines[2:]]))

    return spoil


def spoil_summary(**changes):
    def spoil(out):
        summary = json.loads((out / "summary.json").read_text())
        (out / "summary.json").write_text(json.dumps(summary | changes))

    return spoil


def spoil_run(**changes):
    def spoil(out):
        run = json.loads((out / "summary.json").read_text())["run"]
        spoil_summary(run=run | changes)(out)

    return spoil


SPOILED = {
    "a step without a number": (spoil_steps('{"kind": "step", "tick": 1}'), "line 3"),
    "a step of text": (spoil_steps('"step"'), "line 3"),
    "a run without shards": (spoil_run(shards=None), "another matrix"),
    "a run with shards of lists": (spoil_run(shards=[["x"]]), "another matrix"),
    "a run of another task": (spoil_run(task=["power"]), "has task"),
    "a run with options of numbers": (spoil_run(options=3), "has options"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_what_is_gone_on_with_and_broken_is_one_message(made, unfinished, capsys, name):
    spoil, says = SPOILED[name]
    spoil(unfinished)
    before = {path.name: path.read_bytes() for path in unfinished.iterdir() if path.is_file()}
    words = ["run", made / "symmetric", "--serial", "--out", unfinished, "power"]
    assert main([*map(str, words), "--resume", "iterations=9"]) == 2
    _, err = capsys.readouterr()
    assert err.startswith("cec-mpi: error: ")
    assert err.count("\n") == 1
    assert says in err
    after = {path.name: path.read_bytes() for path in unfinished.iterdir() if path.is_file()}
    assert after == before


@pytest.mark.parametrize("summary", [[], "power", 3, {"run": []}])
def test_a_summary_that_is_none_does_not_end_a_run(run, unfinished, summary):
    (unfinished / "summary.json").write_text(json.dumps(summary))
    assert run("--resume", "iterations=9", store="symmetric", task="power").code == 8


@pytest.mark.parametrize("change", [-1, 8])
def test_products_of_another_size_are_not_gone_on_with(run, tmp_path, change):
    file = written(tmp_path, {"available": [[1, 2, 3]] * 5 + [[1]]})
    assert run("--availability", file).code == 4
    path = tmp_path / "out" / "result.npy"
    size = path.stat().st_size
    os.truncate(path, size + change)
    gone_on = run("--resume")
    assert gone_on.code == 2
    assert "result.npy is not an array of results" in gone_on.err
    assert path.stat().st_size == size + change
