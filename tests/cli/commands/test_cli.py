"""The command line: results, exit codes, and messages for bad input."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import numpy as np
import pytest

import cec_mpi
from cec_mpi.runtime.processes.launcher import remove_launcher_variables
from helpers import ROOT

RNG = np.random.default_rng(2)
X = RNG.standard_normal((120, 80))


pytestmark = pytest.mark.usefixtures("no_launcher")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A directory with the files that the command lines below use."""
    directory = tmp_path_factory.mktemp("made")
    np.save(directory / "X.npy", X)
    np.save(directory / "W.npy", RNG.standard_normal((3, 80)))
    np.save(directory / "square.npy", np.eye(9))
    (directory / "few.json").write_text('{"available": [[1], [1, 2, 3, 4]]}')
    cec_mpi.encode(directory / "X.npy", directory / "store", 4, 2)
    cec_mpi.encode(directory / "square.npy", directory / "square", 4, 2)
    shutil.copytree(directory / "store", directory / "damaged")
    (directory / "damaged" / "shard-0003.npy").unlink()
    (directory / "tasks_of_the_cli_test.py").write_text(
        "def raises(X, *, checkpoint):\n"
        "    raise KeyError('mine')\n"
        "def exits(X, *, checkpoint):\n"
        "    raise SystemExit(0)\n"
    )
    return directory


@pytest.fixture
def cec(call):
    return lambda *args: call(args)


# --- plan ---------------------------------------------------------------------------------


EXAMPLE = ["plan", "--speeds", "2,2,3,3,4,4", "--recovery", "3", "--rows", "420"]


def test_plan_prints_the_example_of_the_paper(cec):
    code, out, err = cec(*EXAMPLE, "--available", "1,2,3,5", "--json")
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert json.loads(out) == {
        "available": [1, 2, 3, 5],
        "recovery": 3,
        "rows": 420,
        "loads": [240, 240, 360, 0, 420, 0],
        "makespan": 120,
        "bound": pytest.approx(120),
        "blocks": [
            {"start": 0, "stop": 180, "machines": [1, 3, 5]},
            {"start": 180, "stop": 240, "machines": [1, 2, 5]},
            {"start": 240, "stop": 420, "machines": [2, 3, 5]},
        ],
    }


# --- encode, info, verify -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("machines", "recovery", "message", "answers_to_detect"),
    [
        (3, 3, r"not detected, because all machines are needed\n", None),
        (4, 3, r"any 4 machines detect errors above \d\.\de-\d\d .* of a row's terms\n", 4),
        (
            16,
            8,
            r"any 9 machines detect .*; any 11 machines identify the wrong answer; a sample",
            9,
        ),
    ],
)
def test_info_shows_whether_wrong_answers_are_detected(
    cec, files, tmp_path, machines, recovery, message, answers_to_detect
):
    args = ["--machines", machines, "--recovery", recovery]
    assert cec("encode", files / "X.npy", tmp_path / "new", *args)[0] == 0
    assert re.search(f"\nwrong answers  {message}", cec("info", tmp_path / "new")[1])
    facts = json.loads(cec("info", tmp_path / "new", "--json")[1])["wrong_answers"]
    assert facts["answers_to_detect"] == answers_to_detect
    assert (facts["error"] is None) == (answers_to_detect is None)


def test_info_in_json_has_the_numbers_of_the_text(cec, files, tmp_path):
    args = ["--machines", 6, "--recovery", 3, "--code", "gaussian", "--systematic"]
    assert cec("encode", files / "X.npy", tmp_path / "new", *args)[0] == 0
    (tmp_path / "new" / "shard-0004.npy").unlink()
    assert cec("repair", tmp_path / "new")[0] == 0
    text = cec("info", tmp_path / "new")[1]
    code, out, err = cec("info", "--json", tmp_path / "new")
    assert (code, err, out.count("\n")) == (0, "", 1)
    facts = json.loads(out)
    (rebuilt,) = facts["shards"][3]["rebuilt"]
    for figure in (
        f"X               {facts['rows']} x {facts['columns']} {facts['dtype']}\n",
        f"condition number {facts['condition_number']['median']:.1f} (worst ",
        f"{facts['rows_per_shard']} rows each; {facts['bytes']} bytes in all, each ",
        f"shard-0004.npy  rows {rebuilt['start']}..{rebuilt['stop'] - 1} were",
    ):
        assert figure in text
    assert [shard["problem"] for shard in facts["shards"]] == [None] * 6


def test_a_missing_shard_gives_exit_code_5(cec, files):
    code, out, err = cec("info", files / "damaged", "--json")
    facts = json.loads(out)
    assert (code, err.count("\n")) == (5, 1)
    assert [bool(shard["problem"]) for shard in facts["shards"]] == [False, False, True, False]
    page = (ROOT / "docs" / "reference" / "store.md").read_text("utf-8")
    nested = [facts["condition_number"], facts["wrong_answers"], facts["shards"][0]]
    for name in [*facts, *(name for fields in nested for name in fields)]:
        assert f"`{name}`" in page or f".{name}`" in page
    code, out, err = cec("verify", files / "damaged")
    assert [line.split(": ")[1] for line in out.splitlines()] == ["good", "good", "missing", "good"]
    assert (code, err.count("\n")) == (5, 1)
    assert "1 of 4 shards is damaged: shard-0003.npy" in err


# --- bad command lines --------------------------------------------------------------------

RUN = "run {}/store --serial --out {}/out vectors={}/W.npy "
SQUARE = "run {}/square --serial --out {}/out "
POWER = SQUARE + "power "


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        (
            "plan --speeds 1,2 --recovery 1 --rows 3 --available 7",
            ["machine 7, expected 1 to 2"],
        ),
        ("run {}/store --serial --out {}/out", ["vectors=W.npy"]),
        (RUN + "--machines 1,5", ["machines 1,5", "from 1 to 4"]),
        (RUN + "--availability {}/few.json", ["tick 0", "needs 2", "--wait"]),
        (RUN + "nonsense", ["'nonsense'", "matvec", "power", "my_module:function"]),
        (POWER + "iteration=1", ["iteration", "did you mean iterations?"]),
        (POWER + "iterations=3 iterations=4", ["iterations=4: iterations is already set to 3"]),
        (SQUARE + "tasks_of_the_cli_test:exits", ["sys.exit(0)", "its results"]),
        ("encode {}/X.npy {}/new --machine 6", ["--machine ", "did you mean --machines?"]),
        ("encod {}/X.npy {}/new", ["unknown command encod", "did you mean encode?"]),
        ("advise {}/store", ["expected cec-mpi advise --shape Q,R --machines", "--steps T"]),
        (
            "advise --shape 9,9 --steps 2 --machines 4:1:64",
            ["4:2:64G:0.30", "with a unit of memory"],
        ),
        ("info {}/store more", ["unexpected 'more': expected cec-mpi info STORE"]),
        ("join {}/none.json", ["does not exist", "connection file", "--retry TIME"]),
        ("join {}/store", ["is a directory", "DIR/connection.json"]),
        (RUN + "--emulate-speeds -1,2,3,4", ["--emulate-speeds: '-1,2,3,4'"]),
        (RUN + "--availability -who.json", ["-who.json does not exist"]),
        (RUN + "matvec --availability-command cat who.txt", ["'who.txt'", "quote values"]),
        (
            "run {}/store --serial --out {}/out k=5",
            ["task matvec has no option k", "name a task", "svd"],
        ),
        (
            "encode {}/X.npy {}/new --machines 4 --recovery 2 --drop a b",
            ["'b'", "lists without spaces"],
        ),
        (RUN + "--scheme cyclik", ["did you mean cyclic?"]),
        ("slurm --sbatch --mem=4G run {}/store --out {}/out", ["--sbatch=--mem=4G"]),
        ("stage store copies", ["stage was removed: use run --cache DIR"]),
        ("hostfile --format mpich a:2", ["hostfile was removed: ", "hostfiles/"]),
    ],
)
def test_messages_name_found_and_expected_values(cec, files, tmp_path, monkeypatch, line, parts):
    monkeypatch.chdir(files)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    line = line.replace("{}/out", f"{tmp_path}/out").replace("{}", str(files))
    code, _, err = cec(*shlex.split(line))
    assert code != 0
    assert err.count("\n") == 1
    assert [part for part in parts if part not in err] == []


# --- help, versions, processes ------------------------------------------------------------


def test_the_version_is_printed(cec):
    assert cec("--version") == (0, f"cec_mpi {cec_mpi.__version__}\n", "")


def test_without_a_command_all_commands_are_listed_as_an_error(cec):
    assert cec() == (2, "", cec("--help")[1])


@pytest.mark.parametrize(
    ("size", "rank"),
    [("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"), ("PMI_SIZE", "PMI_RANK")],
)
def test_under_a_launcher_only_rank_0_prints(cec, monkeypatch, files, size, rank):
    monkeypatch.setenv(size, "3")
    for number in range(3):
        monkeypatch.setenv(rank, str(number))
        for args in (EXAMPLE, ["info", files / "store"], ["task"], ["run", "--help"], ["nonsense"]):
            code, out, err = cec(*args)
            assert (number == 0) == bool(out + err)
            assert number == 0 or code == 0


def test_serial_is_refused_under_a_launcher(cec, monkeypatch, files, tmp_path):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "5")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    args = ["--serial", "--out", tmp_path / "out", f"vectors={files / 'W.npy'}"]
    code, _, err = cec("run", files / "store", *args)
    assert code == 2
    assert "started 5" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("machines", [3, 3000])
def test_a_closed_pipe_is_no_error_and_a_full_disk_is_one_message(machines):
    speeds = ",".join(["2"] * machines)
    args = ["plan", "--speeds", speeds, "--recovery", "2", "--rows", "20"]
    command = [sys.executable, "-m", "cec_mpi", *args]
    streams = {"stderr": subprocess.PIPE, "env": remove_launcher_variables(os.environ)}
    read_end, write_end = os.pipe()
    os.close(read_end)
    result = subprocess.run(command, stdout=write_end, text=True, check=False, **streams)
    os.close(write_end)
    assert (result.returncode, result.stderr) == (0, "")
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device, not a path
        result = subprocess.run(command, stdout=full, text=True, check=False, **streams)
    assert result.returncode == 2
    assert result.stderr.startswith("cec-mpi: error: ")
    assert result.stderr.count("\n") == 1


def test_help_has_priority_over_errors(cec):
    for line in ("run --seri --help", "run --help --local x", "encode -h --machine 6"):
        code, out, err = cec(*line.split())
        assert (code, err) == (0, "")
        assert out.startswith("usage: ")


@pytest.mark.parametrize("line", ["run x --out y --seri", "run --he", "plan --spe 1,2"])
def test_options_cannot_be_abbreviated(cec, line):
    code, out, err = cec(*line.split())
    assert (code, out) == (2, "")
    assert err.startswith("cec-mpi: error: ")


def test_an_error_of_a_users_task_has_a_short_traceback(cec, files, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(files)])
    task = ["tasks_of_the_cli_test:raises"]
    code, _, err = cec("run", files / "store", "--serial", "--out", tmp_path / "out", *task)
    assert code == 1
    first, location, *_, last = err.splitlines()
    assert first == "Traceback of the task (most recent call last):"
    assert "tasks_of_the_cli_test.py" in location
    assert "cec_mpi" not in err.replace("cec-mpi: error", "").replace(str(files), "")
    assert last == "cec-mpi: error: task tasks_of_the_cli_test:raises raised KeyError: 'mine'"


@pytest.mark.filterwarnings("error")
def test_a_command_prints_warnings_that_would_raise(cec, tmp_path):
    np.save(tmp_path / "X.npy", np.diag(np.logspace(0, 100, 6)))
    args = ["--machines", 3, "--recovery", 2, "--scaling", "none"]
    code, out, err = cec("encode", tmp_path / "X.npy", tmp_path / "store", *args)
    assert code == 0
    assert out.startswith(f"{tmp_path / 'store'}: 6 x 6")
    assert err.startswith("cec-mpi: warning: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("kilobytes", [60_000, 120_000])
def test_a_small_memory_limit_is_one_message(tmp_path, kilobytes):
    line = f'ulimit -v {kilobytes}; exec "$0" -m cec_mpi info store'
    args = ["sh", "-c", line, sys.executable]
    result = subprocess.run(args, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1] == (
        "cec-mpi: error: too little memory to load NumPy and SciPy: found ulimit -v "
        f"{kilobytes} (kB), expected a larger limit"
    )
    assert "Traceback" not in result.stderr


def test_a_working_directory_that_has_been_removed_is_named(tmp_path):
    line = 'mkdir gone; cd gone; rmdir ../gone; exec "$0" -m cec_mpi run ../store power --out out'
    args = ["sh", "-c", line, sys.executable]
    result = subprocess.run(args, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == (
        "cec-mpi: error: the working directory was removed: change to another directory\n"
    )
