"""`cec-mpi run --serial` and `open_operator(store, None)`: all machines in one process."""

import json
import os
import shutil
import socket
import sys
from pathlib import Path

import numpy as np
import pytest

import cec_mpi
from cec_mpi.cli import main
from cec_mpi.core.plan.planner import plan_step
from cec_mpi.errors import InputError
from cec_mpi.runtime.availability.models import RandomAvailability
from cec_mpi.runtime.machine.emulation import Emulation, SpeedChange
from cec_mpi.runtime.processes.resources import detect_process
from cec_mpi.runtime.records.recorder import read_steps
from cec_mpi.store.files.durable import locked

MACHINES, RECOVERY = 6, 3
ROWS, COLUMNS, STEPS = 1259, 17, 12  # 420 rows per shard, one of them padding
RNG = np.random.default_rng(5)
X = RNG.standard_normal((ROWS, COLUMNS))
W = RNG.standard_normal((STEPS, COLUMNS))
BASIS, _ = np.linalg.qr(RNG.standard_normal((30, 30)))
SYMMETRIC = BASIS @ np.diag(np.linspace(-1, 3, 30)) @ BASIS.T


pytestmark = pytest.mark.usefixtures("no_launcher")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    directory = tmp_path_factory.mktemp("made")
    np.save(directory / "W.npy", W)
    for name, matrix in (("float64", X), ("float32", X.astype("f4")), ("symmetric", SYMMETRIC)):
        np.save(directory / "X.npy", matrix)
        cec_mpi.encode(directory / "X.npy", directory / name, MACHINES, RECOVERY)
    return directory


class Run:
    """A finished run and its files."""

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

    def step_values(self, field):
        return [step[field] for step in self.steps]


@pytest.fixture
def run(inputs, tmp_path, capsys):
    """Run a task (by default the products with W) and read its files."""

    def start(*args, store="float64", task="matvec", out="out"):
        has_vectors = any(str(word).startswith("vectors=") for word in args)
        vectors = [f"vectors={inputs / 'W.npy'}"] if task == "matvec" and not has_vectors else []
        args = ["--serial", "--out", tmp_path / out, task, *vectors, *args]
        code = main(["run", str(inputs / store), *map(str, args)])
        _, err = capsys.readouterr()
        return Run(code, err, tmp_path / out)

    return start


def write_json(directory, content, name="availability.json"):
    path = directory / name
    path.write_text(json.dumps(content))
    return path


def relative_error(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


# --- results ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("store", "scheme", "accuracy"),
    [("float64", "heterogeneous", 1e-12), ("float32", "cyclic", 1e-4)],
)
def test_products_are_correct_and_reproducible(run, store, scheme, accuracy):
    args = ["--available-probability", 0.6, "--wait", "--seed", 3, "--scheme", scheme]
    first, second = (run(*args, "--speeds", "2,2,3,3,4,4", store=store, out=out) for out in "ab")
    assert (first.code, first.err) == (0, "")
    assert first.result.dtype == np.float64
    assert relative_error(first.result, W @ X.T) < accuracy
    assert len(set(map(tuple, first.step_values("available")))) > 5
    assert np.array_equal(first.result, second.result)
    assert first.step_values("rows") == second.step_values("rows")


# --- tasks of users ------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The name of a module in the working directory with tasks of a user."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    name = f"module_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(
        "import numpy as np\n"
        "def echo(X, *, checkpoint, **options):\n"
        "    return {'result': np.zeros(1), **options}\n"
        "def three(X, *, checkpoint, times=2):\n"
        "    y = [X.matvec(np.full(X.shape[1], t + 1.0)) for t in range(times)]\n"
        "    return {'result': np.array(y), 'first': y[0], 'times': times, 'odd': [[1], [2, 3]]}\n"
        "def unconverged(X):\n"
        "    return {'result': np.ones(1), 'converged': np.array(False)}\n"
        "def nothing(X):\n"
        "    X.matvec(np.ones(X.shape[1]))\n"
        "def unsaved(X):\n"
        "    return {'result': X.matvec(np.ones(X.shape[1])), 'f': lambda: 0}\n"
    )
    return name


def test_results_of_a_users_task_are_saved(run, module):
    outcome = run("times=3", task=f"{module}:three")
    assert outcome.code == 0
    assert relative_error(outcome.result, np.outer([1, 2, 3], X.sum(axis=1))) < 1e-12
    assert np.array_equal(np.load(outcome.out / "first.npy"), outcome.result[0])
    assert outcome.summary["task"] == f"{module}:three"
    assert outcome.summary["times"] == 3
    (warning,) = outcome.summary["warnings"]
    assert "odd.npy" in warning
    assert f"cec-mpi: warning: {warning}\n" == outcome.err
    assert len(outcome.steps) == 3


def test_task_options_are_numbers_lists_or_text(run, module):
    args = ["a=3", "b=2.5", "c=text", "d=[1, 2]", "e=None", "f='3'", "g=x=y", "h=True", "i="]
    outcome = run(*args, task=f"{module}:echo")
    found = [outcome.summary[name] for name in "abcefghi"]
    assert found == [3, 2.5, "text", None, "3", "x=y", True, ""]
    assert np.load(outcome.out / "d.npy").tolist() == [1, 2]


def test_converged_may_be_an_array(run, module):
    outcome = run(task=f"{module}:unconverged")
    assert outcome.code == 8
    assert "did not converge" in outcome.err
    assert np.load(outcome.out / "result.npy").tolist() == [1]


@pytest.mark.parametrize(
    ("name", "message"), [("nothing", "returned nothing"), ("unsaved", "'f' of type function")]
)
def test_a_result_that_cannot_be_saved_is_an_error(run, module, name, message):
    outcome = run(task=f"{module}:{name}")
    assert outcome.code == 2
    assert message in outcome.err
    assert (outcome.out / "result.npy").exists() == (name == "unsaved")
    assert not (outcome.out / "summary.json").exists()


# --- availability --------------------------------------------------------------------------


def test_steps_use_the_machines_of_their_tick(run, tmp_path):
    file = write_json(tmp_path, {"available": [[1, 2], [], [1, 2, 3], [4], [4, 5, 6]]})
    outcome = run("--availability", file, "--wait", "--repeat", "iterations=4")
    assert outcome.step_values("available") == [[1, 2, 3], [4, 5, 6]] * 2
    assert outcome.step_values("tick") == [2, 4, 7, 9]
    assert outcome.step_values("waited_ticks") == [2, 1, 2, 1]
    assert outcome.summary["waited_ticks"] == 6
    assert relative_error(outcome.result, W[:4] @ X.T) < 1e-12


def test_a_product_whose_square_overflows_is_named_with_its_step_and_machine(tmp_path):
    manifest = cec_mpi.encode(X, tmp_path / "store", MACHINES, RECOVERY, scaling="none")
    shard = np.load(tmp_path / "store" / manifest.shards[1].file, mmap_mode="r+")
    shard[:] = np.where(shard < 0, -1e300, 1e300)  # as a faulty machine could answer
    shard.flush()
    with cec_mpi.open_operator(tmp_path / "store", verify="never", availability={2, 3, 5}) as A:
        y = A @ np.ones(COLUMNS)
        with np.errstate(all="ignore"):
            w = y[:COLUMNS] / (y @ y) - np.inf
        message = r"w\[0\] is -?(nan|inf): .* step 0 has numbers of about .e\+30., .* machine 2\)"
        with pytest.raises(InputError, match=message):
            A @ w
        A @ np.zeros(COLUMNS)
        with pytest.raises(InputError, match=r"w\[0\] is nan: expected finite float64 numbers$"):
            A @ np.full(COLUMNS, np.nan)


def test_modified_products_are_not_resumed(run, tmp_path):
    command = "sh -c 'test $CEC_TICK -lt 7 && echo 1 2 3'"
    assert run("--availability-command", command, "--availability-every", 1e-9).code == 2
    out = tmp_path / "out"
    result = np.load(out / "result.npy")
    modified = result.copy()
    modified[3, 5] += 1
    with (out / "result.npy").open("r+b") as file:
        np.save(file, modified)
    refused = run("--resume")
    assert refused.code == 2
    assert "result.npy has changed since the checkpoint was written: the checksum" in refused.err
    assert refused.err.count("\n") == 1
    np.save(out / "result.npy", result.astype("f4"))
    assert "and dtype float32, but this run computes (12, 1259) in float64" in run("--resume").err
    np.save(out / "result.npy", result)
    outcome = run("--resume")
    assert (outcome.code, relative_error(outcome.result, W @ X.T) < 1e-12) == (0, True)


@pytest.mark.parametrize(
    ("sets", "args", "message", "steps"),
    [
        ([[1, 2, 3], [2, 3, 4], [4, 5]], [], "2 machines are available at tick 2 (4, 5): a", 2),
        ([[1, 2, 3], [4, 5, 6]], ["--machines=1-3", "--wait"], "0 machines are available at", 1),
        ([[1]], [], "1 machine is available at tick 0 (1): a step needs 3", 0),
    ],
)
def test_a_run_ends_if_too_few_machines_remain(run, tmp_path, sets, args, message, steps):
    outcome = run("--availability", write_json(tmp_path, {"available": sets}), *args)
    assert (outcome.code, outcome.err.count("\n")) == (4, 1)
    assert message in outcome.err
    assert "--wait" not in outcome.err  # no later tick has more
    if not steps:
        assert not list(tmp_path.glob("out/*.*"))
        assert run().code == 0
        return
    assert len(outcome.steps) == steps
    assert not (outcome.out / "summary.json").exists()
    assert np.isfinite(outcome.result[:steps]).all()
    assert np.isnan(outcome.result[steps:]).all()


# --- records ------------------------------------------------------------------------------


def test_records_and_summary_agree(run):
    args = ["--available-probability", 0.6, "--wait", "--seed", 3]
    outcome = run(*args, "--speeds", "2,2,3,3,4,4")
    availability = RandomAvailability(MACHINES, 0.6, seed=3)
    assert outcome.step_values("step") == list(range(STEPS))
    for before, step in zip([{"tick": -1}, *outcome.steps], outcome.steps, strict=False):
        assert step["tick"] == before["tick"] + 1 + step["waited_ticks"]
        assert step["available"] == list(availability.at(step["tick"]))
        plan = plan_step(step["available"], [2, 2, 3, 3, 4, 4], RECOVERY, 420)
        assert step["rows"] == plan.assignment.row_counts(MACHINES).tolist()
        assert [rows > 0 for rows in step["rows"]] == [time > 0 for time in step["compute_seconds"]]
        assert step["measured_makespan"] == max(step["compute_seconds"]) <= step["collect_seconds"]
        assert step["payload_bytes"]["collect"] == 8 * RECOVERY * 420
        assert step["condition_number"] >= 1
        if step["step"]:
            scale = plan.makespan / step["predicted_makespan"]
            assert step["makespan_bound"] * scale == pytest.approx(plan.bound)
    assert outcome.steps[0]["predicted_makespan"] is outcome.steps[0]["makespan_bound"] is None
    assert outcome.summary["steps"] == STEPS
    assert outcome.summary["waited_ticks"] == sum(outcome.step_values("waited_ticks"))
    assert outcome.summary["seconds"] >= sum(outcome.step_values("measured_makespan"))
    assert outcome.summary["rows_per_second_per_speed"] > 0


def test_the_map_lists_nodes_and_shard_files(inputs, tmp_path, capsys):
    store, vectors = str(inputs / "float64"), str(inputs / "W.npy")
    args = ["run", store, "--out", str(tmp_path / "out"), f"vectors={vectors}"]
    assert main([*args, "--serial", "--map"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["machine", "rank", "host", "cores", "threads", "shard"]
    cores = str(detect_process().cores)
    assert lines[1].split() == ["master", "0", socket.gethostname(), cores, cores]
    shards = [str(inputs / "float64" / f"shard-{n:04d}.npy") for n in range(1, 7)]
    assert [line.split()[-1] for line in lines[2:8]] == shards


def test_speeds_may_be_given_by_host(run):
    outcome = run("--speeds", f"elsewhere=1,{socket.gethostname()}=3")
    assert outcome.header["speeds"] == [3] * MACHINES
    assert np.array_equal(outcome.result, run("--speeds", "3,3,3,3,3,3", out="listed").result)


@pytest.mark.parametrize(
    "damage", [Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:-8])]
)
def test_the_error_of_an_unreadable_shard_names_repair_and_elastic(run, inputs, tmp_path, damage):
    store = shutil.copytree(inputs / "float64", tmp_path / "store")
    damage(store / "shard-0004.npy")
    outcome = run(store=store)
    assert (outcome.code, outcome.err.count("\n")) == (5, 1)
    for text in ("machine 4 on ", "cec-mpi repair", "--elastic"):
        assert text in outcome.err


@pytest.mark.parametrize(
    ("task", "args"),
    [
        ("matvec", ["--speeds=1,2"]),
        ("svd", ["k=abc"]),
        ("svd", ["k=999"]),
        ("ridge", ["y=absent.npy"]),
        ("svd", ["k=0", "--resume"]),
    ],
)
def test_a_refused_run_leaves_no_directory(run, tmp_path, task, args):
    assert run(*args, task=task, out="new/deep").code == 2
    (tmp_path / "mine").mkdir()
    assert run(*args, task=task, out="mine").code == 2
    assert list(tmp_path.rglob("*")) == [tmp_path / "mine"]


def test_results_are_replaced_only_with_overwrite(run, tmp_path):
    assert run().code == 0
    saved = {path: path.read_bytes() for path in tmp_path.glob("out/*.*")}
    assert {path.name for path in saved} == {"result.npy", "steps.jsonl", "summary.json"}
    refused = run("iterations=2")
    assert refused.code == 2
    assert "--overwrite" in refused.err
    assert {path: path.read_bytes() for path in tmp_path.glob("out/*.*")} == saved
    replaced = run("iterations=2", "--overwrite")
    assert replaced.code == 0
    assert replaced.result.shape == (2, ROWS)
    assert len(replaced.steps) == replaced.summary["steps"] == 2


# --- emulated speeds ----------------------------------------------------------------------

BASE = 100_000.0
SPEEDS = (2.0, 2.0, 3.0, 3.0, 4.0, 4.0)


def test_an_emulated_machine_takes_at_least_its_time(run):
    listed = ",".join(map(str, SPEEDS))
    args = ["--emulate-speeds", listed, "--emulate-base", BASE, "--emulate-noise", 0.3]
    changes = ["--emulate-change", "3:5:0.5", "--emulate-change", "6:5:0.5"]
    outcome = run("--speeds", listed, *args, *changes, "--seed", 4)
    assert relative_error(outcome.result, W @ X.T) < 1e-12
    changes = (SpeedChange(3, 5, 0.5), SpeedChange(6, 5, 0.5))
    emulation = Emulation(SPEEDS, BASE, noise=0.3, seed=4, changes=changes)
    for step in outcome.steps:
        for n, (rows, seconds) in enumerate(
            zip(step["rows"], step["compute_seconds"], strict=True), 1
        ):
            assert seconds >= rows / emulation.rate(n, step["step"])
    noiseless = Emulation(SPEEDS, BASE, changes=changes)
    assert [noiseless.rate(5, step) / BASE for step in (2, 3, 5, 6)] == [4, 2, 2, 1]
    header = outcome.header["emulation"]
    assert (header["speeds"], header["base"], header["noise"]) == (list(SPEEDS), BASE, 0.3)


# --- the operator -------------------------------------------------------------------------


def test_modified_vectors_end_the_run(run, inputs, tmp_path):
    vectors = tmp_path / "W.npy"
    vectors.write_bytes((inputs / "W.npy").read_bytes())
    change = f"[ $CEC_TICK != 1 ] || printf 'x' | dd of={vectors} bs=1 seek=900 conv=notrunc"
    source = ["--availability-command", f'sh -c "{change}; echo 1-4"', "--availability-every", 1e-9]
    outcome = run(f"vectors={vectors}", *source)
    assert outcome.code == 2
    assert f"{vectors} was modified during the run" in outcome.err
    assert 1 <= len(outcome.steps) <= 2


def test_two_runs_do_not_share_a_directory(run, tmp_path):
    (tmp_path / "out").mkdir()
    with locked(tmp_path / "out", "another run"):
        outcome = run()
    assert outcome.code == 2
    assert "in use by another run" in outcome.err


def test_machines_of_an_operator_may_be_written_as_ranges(inputs):
    with cec_mpi.open_operator(inputs / "float64", None, machines="1-3,5") as Y:
        assert Y.available == (1, 2, 3, 5)
        Y.available = "2-3, 5"
        assert Y.available == (2, 3, 5)
        for text in ("5-6", "3-1", "two", "1-"):
            with pytest.raises(InputError, match="available"):
                Y.available = text
    with pytest.raises(InputError, match="machines"):
        cec_mpi.open_operator(inputs / "float64", None, machines="1-7").__enter__()


# --- resumed runs may be damaged or hostile ----------------------------------------------


@pytest.fixture
def unfinished(run):
    """The directory of a run that stopped after three iterations."""
    outcome = run("iterations=3", store="symmetric", task="power")
    assert outcome.code == 8
    return outcome.out


def insert_line(out, content):
    lines = (out / "steps.jsonl").read_text().splitlines(keepends=True)
    (out / "steps.jsonl").write_text("".join([*lines[:2], content + "\n", *lines[2:]]))


def change_run(out, **changes):
    summary = json.loads((out / "summary.json").read_text())
    summary["run"] |= changes
    (out / "summary.json").write_text(json.dumps(summary))


@pytest.mark.parametrize(
    ("line", "changes", "message"),
    [
        ('{"kind": "step", "tick": 1}', {}, "line 3"),
        ("", {"shards": None}, "another matrix"),
        ("", {"shards": [["x"]]}, "another matrix"),
        ("", {"task": ["power"]}, "has task"),
    ],
)
def test_a_damaged_run_is_not_resumed(inputs, unfinished, capsys, line, changes, message):
    if line:
        insert_line(unfinished, line)
    change_run(unfinished, **changes)
    before = {path.name: path.read_bytes() for path in unfinished.iterdir() if path.is_file()}
    args = ["run", inputs / "symmetric", "--serial", "--out", unfinished, "power", "--resume"]
    assert main([*map(str, args), "iterations=9"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("cec-mpi: error: ")
    assert err.count("\n") == 1
    assert message in err
    after = {path.name: path.read_bytes() for path in unfinished.iterdir() if path.is_file()}
    assert after == before


@pytest.mark.parametrize("change", [-1, 8])
def test_products_of_another_size_are_not_resumed(run, tmp_path, change):
    file = write_json(tmp_path, {"available": [[1, 2, 3]] * 5 + [[1]]})
    assert run("--availability", file).code == 4
    path = tmp_path / "out" / "result.npy"
    size = path.stat().st_size
    os.truncate(path, size + change)
    resumed = run("--resume")
    assert resumed.code == 2
    assert "result.npy is not an array written by cec_mpi" in resumed.err
    assert path.stat().st_size == size + change
