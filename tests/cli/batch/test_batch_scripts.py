"""Batch scripts of ``cec-mpi slurm``: their text and what bash does with them."""

from __future__ import annotations

import os
import shlex
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cec_mpi
from cec_mpi.cli.batch.slurm import LAUNCHERS, batch_script, parse_time_limit
from cec_mpi.errors import InputError
from helpers import ROOT
from helpers.waiting import LIMIT

GOLDEN = Path(__file__).parent / "golden"
EXAMPLES = ROOT / "scripts" / "slurm"
RUN = "run '/data/my store' --out \"it's\" ridge y=y.npy"
EXAMPLE = "--time 00:30:00 run store power --out results"
COMMAND_LINES = {  # arguments that print each file
    EXAMPLES / "lockstep.sbatch": f"--ntasks 7 {EXAMPLE}",
    EXAMPLES / "elastic.sbatch": f"--ntasks 7 {EXAMPLE} --elastic",
    GOLDEN / "quoted.sbatch": '--ntasks 7 --job-name "it\'s 5 * $HOME" --time 1-12:00:00 --nodes 3 '
    "--cpus-per-task 4 --partition low --account 'a b' --sbatch mem=4G --sbatch exclusive "
    "--setup 'module load openmpi' --setup '. venv/bin/activate' run '$store' --out '`out`' "
    "'my_tasks:f' 'name=a \"b\" $(c) ; d' empty=",
}
SCRIPT_KINDS = ("master", "machines")  # of the scripts of --elastic

pytestmark = pytest.mark.usefixtures("no_launcher")


@pytest.fixture
def slurm(call):
    return lambda *args: call(["slurm", *args])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    directory = tmp_path_factory.mktemp("store")
    np.save(directory / "X.npy", np.ones((6, 3)))
    cec_mpi.encode(directory / "X.npy", directory / "store", 4, 2)
    return directory / "store"


# --- text ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", COMMAND_LINES, ids=lambda path: path.stem)
def test_scripts_equal_the_golden_files(slurm, path):
    code, out, err = slurm(*shlex.split(COMMAND_LINES[path]))
    assert (code, err) == (0, "")
    assert out == path.read_text()


@pytest.mark.parametrize(
    ("args", "ranks"),
    [
        ("", 5),
        ("--machines 1,2,4", 4),
    ],
)
def test_a_job_has_the_ranks_that_the_run_needs(slurm, store, args, ranks):
    code, out, _ = slurm("run", store, "--out", "results", *args.split())
    assert code == 0
    assert f"#SBATCH --ntasks={ranks}\n" in out


def test_a_job_of_one_process_needs_no_mpi(slurm, store):
    code, script, _ = slurm("--ntasks", 1, "run", store, "svd", "--out", "o", "--local", 4)
    assert code == 0
    assert "srun --mpi=none" in script
    assert "mpirun" not in script


@pytest.mark.parametrize("text", ["", "0", "00:00", "-1", "1:", "1-", "1:2:3:4", "1h", "x", "1.5"])
def test_invalid_time_limits_are_refused(text):
    with pytest.raises(InputError, match="expected 30"):
        parse_time_limit(text)


def test_scripts_of_a_run_whose_machines_are_jobs(slurm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args = "--elastic 24 --job-name elastic --time 2:00:00 --cpus-per-task 4 --partition low "
    args += f"--sbatch mem=8G --setup '. venv/bin/activate' {RUN}"
    code, out, err = slurm(*shlex.split(args))
    assert (code, err) == (0, "")
    assert out == "sbatch elastic-machines.sbatch $(sbatch --parsable elastic-master.sbatch)\n"
    for path in tmp_path.iterdir():
        assert path.read_text() == (GOLDEN / path.name).read_text()
    assert len(list(tmp_path.iterdir())) == 2


def test_the_job_of_the_master_keeps_machines(slurm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args = shlex.split(f"--job-name 'a b' --time 2:00:00 {RUN}")
    code, out, err = slurm("--keep", 24, *args)
    assert (code, out, err) == (0, "sbatch 'a b-master.sbatch'\n", "")
    master = Path("a b-master.sbatch").read_text()
    assert master == (GOLDEN / "keeping-master.sbatch").read_text()
    machines = Path("a b-machines.sbatch").read_text()
    for path in tmp_path.iterdir():
        path.unlink()
    assert slurm("--elastic", 24, *args)[0] == 0
    assert machines == Path("a b-machines.sbatch").read_text()


def test_the_connection_file_may_be_elsewhere(slurm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert slurm("--elastic", 2, "run", "s", "--out", "o", "--accept", "a b")[0] == 0
    master, machines = (Path(f"cec-mpi-{name}.sbatch").read_text() for name in SCRIPT_KINDS)
    assert "--resume s --accept 'a b' \"$@\"" in master
    assert "cec-mpi join 'a b' --retry 30" in machines


@pytest.mark.parametrize("flag", ["--elastic", "--keep"])
def test_jobs_of_machines_have_the_device_of_the_run(slurm, tmp_path, monkeypatch, flag):
    monkeypatch.chdir(tmp_path)
    args = ["run", "s", "--out", "o", "--device"]
    assert slurm(flag, 2, *args, "torch:cuda")[0] == 0
    machines = Path("cec-mpi-machines.sbatch").read_text()
    assert "cec-mpi join o/connection.json --device torch:cuda --retry 30" in machines
    code, _, err = slurm(flag, 2, *args, "cpu,cuda")
    assert code == 2
    assert "device cpu,cuda: expected cpu, auto, cuda" in err


def test_edited_scripts_are_not_replaced(slurm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args = ["run", "s", "--out", "o"]
    for _ in range(2):
        assert slurm("--elastic", 2, *args)[0] == 0
    machines = Path("cec-mpi-machines.sbatch")
    machines.write_text(machines.read_text().replace("1-2", "1-3"))
    master = Path("cec-mpi-master.sbatch").read_text()
    code, _, err = slurm("--elastic", 2, *args, "svd", "k=4")
    assert code == 2
    assert ".sbatch exists with other content: remove it, or choose another --job-name" in err
    assert "1-3" in machines.read_text()
    assert Path("cec-mpi-master.sbatch").read_text() == master


# --- behaviour in bash ---------------------------------------------------------------------

PRINT_ARGUMENTS = 'printf "%s\\0" "$0" "$@"'
SLEEP = '[ "$1" = 1 ] || exec /bin/sleep "$1"'  # no pause: these launchers handle signals at once
JOB = {"SLURM_JOB_ID": "12", "SLURM_NTASKS": "7", "SLURM_CPUS_PER_TASK": "2"}


def run_script(directory, script, *args, programs, **variables):
    """Run a script in a directory with these programs in place of those of Slurm and MPI."""
    for name, text in {"scontrol": "exit 1", "sleep": SLEEP, **programs}.items():
        (directory / name).write_text(f"#!/bin/bash\n{text}\n")
        (directory / name).chmod(0o755)
    return subprocess.run(
        [word.encode() for word in ("bash", "-c", script, "script", *args)],
        cwd=directory,
        capture_output=True,
        encoding="utf-8",
        timeout=LIMIT,
        check=False,
        env={"PATH": f"{directory}:{os.environ['PATH']}", **JOB, **variables},
    )


@pytest.fixture(scope="module")
def launcher_arguments(tmp_path_factory):
    """Run a script with launchers that print their arguments."""
    directory = tmp_path_factory.mktemp("bin")
    programs = dict.fromkeys(("mpirun", "mpiexec.hydra", "srun"), PRINT_ARGUMENTS)

    def run(script, *args, code=0):
        result = run_script(directory, script, *args, programs=programs)
        assert (result.returncode, result.stderr) == (code, "")
        name, *rest = result.stdout.split("\0")[:-1]
        return [Path(name).name, *rest]

    return run


ONE_LINE = st.text(
    st.characters(exclude_categories=["C", "Zl", "Zp", "Zs"], include_characters=" ")
)


def lockstep(args=("s",), out="out", options=None, **settings):
    return batch_script("lockstep", options or {}, run_words=args, out=out, **settings)


def elastic(args=("s",), out="out", options=None, **settings):
    return batch_script("elastic", options or {}, run_words=args, out=out, **settings)


def machines():
    return batch_script("machines", {"array": "1-3"}, connection_file="file")


@given(args=st.lists(ONE_LINE, max_size=5), out=ONE_LINE)
def test_arguments_are_quoted(launcher_arguments, args, out):
    found = launcher_arguments(lockstep(args, out))
    assert found == ["mpirun", "-n", "7", "cec-mpi", "run", f"--out={out}", "--resume", *args]


SCRIPTS = [*(pytest.param(partial(lockstep, launcher=name), 0, id=name) for name in LAUNCHERS)]
SCRIPTS += [pytest.param(elastic, 3, id="elastic")]  # 3, because these launchers write no summary


@pytest.mark.parametrize(("script", "code"), SCRIPTS)
def test_a_script_accepts_a_directory_and_options(launcher_arguments, script, code):
    found = launcher_arguments(script(["s", "ridge"]), "out/a b", "alpha=0.1", code=code)
    command = found[found.index("cec-mpi") :]
    assert command == ["cec-mpi", "run", "--out=out/a b", "--resume", "s", "ridge", "alpha=0.1"]


@pytest.mark.parametrize(
    ("launcher", "args"),
    [("mpirun", ["--bind-to", "none"]), ("hydra", []), ("pmi2", ["--cpus-per-task=2"])],
)
def test_a_rank_of_mpirun_may_use_more_than_one_core(launcher_arguments, launcher, args):
    found = launcher_arguments(lockstep(options={"cpus-per-task": 2}, launcher=launcher))
    assert found[3 : 4 + len(args)] == [*args, "cec-mpi"]


@pytest.mark.parametrize("script", [lockstep(), elastic(), machines()], ids=["l", "e", "m"])
@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"SLURM_JOB_ID": ""}, "not in a Slurm job: expected sbatch script\n"),
        (
            {"SLURM_HET_SIZE": "2", "SLURM_JOB_ID_HET_GROUP_0": "12"},
            "this job has 2 components: expected one, which has all ranks\n",
        ),
    ],
)
def test_a_script_outside_a_job_of_one_component_is_refused(tmp_path, script, variables, message):
    result = run_script(tmp_path, script, "4", programs={}, **variables)
    assert (result.returncode, result.stdout, result.stderr) == (2, "", message)


# Variables that srun adds to the environment of a shell and sbatch passes on.
STEP_VARIABLES = [
    *("CPU_BIND", "CPU_BIND_LIST", "DISTRIBUTION", "GPUS_PER_NODE", "MEM_PER_CPU"),
    *("NTASKS_PER_NODE", "STEP_ID", "STEP_NUM_TASKS", "THREADS_PER_CORE", "TRES_PER_TASK"),
]
STEP_VARIABLES = [f"SLURM_{name}" for name in STEP_VARIABLES] + ["PMI_RANK", "PMIX_SERVER_URI41"]
UNRELATED = {"SLURM_CONF": "/etc/slurm.conf", "SLURM_KILL_BAD_EXIT": "1", "PMIX_MCA_gds": "hash"}


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, set()),
        ({"threads-per-core": "1", "distribution": "cyclic"}, {"THREADS_PER_CORE", "DISTRIBUTION"}),
    ],
)
def test_variables_of_an_srun_step_do_not_reach_the_run(tmp_path, options, kept):
    """They reach the run only if an option of the job sets them again."""
    variables = dict.fromkeys(STEP_VARIABLES, "1") | UNRELATED
    script = lockstep(user_options=options)
    result = run_script(tmp_path, script, programs={"mpirun": "env -0"}, **variables)
    found = {line.partition("=")[0] for line in result.stdout.split("\0")}
    assert UNRELATED.keys() <= found
    assert found & {*STEP_VARIABLES} == {f"SLURM_{name}" for name in kept}


# --- kept machines --------------------------------------------------------------------------


@pytest.fixture
def run_master(tmp_path):
    """Run the master's script with these programs; return its result and the calls of sbatch."""

    def run(squeue, srun):
        programs = {"squeue": squeue, "srun": srun, "sleep": "exec /bin/sleep 0.01"}
        programs["sbatch"] = 'printf "%s\\n" "$*" >> submitted'
        script = elastic(keep=2, machines_script="my machines.sbatch")
        result = run_script(tmp_path, script, programs=programs)
        calls = tmp_path / "submitted"
        return result, calls.read_text().splitlines() if calls.exists() else []

    return run


UNTIL_DONE = "until [ -e done ]; do /bin/sleep 0.01; done; exit 4"


def array_arguments(count):
    return f"--quiet --job-name=cec-mpi-machines-12 --array=1-{count} my machines.sbatch 12"


def test_missing_machines_are_submitted(run_master):
    counts = "echo x >> queries; n=$(wc -l < queries); [ $n -lt 6 ] || touch done"
    lines = "case $n in 1) ;; 2 | 3) echo 7; echo 7 ;; 4) echo 7 ;; *) echo 7; echo 9 ;; esac"
    result, calls = run_master(f"{counts}; {lines}", UNTIL_DONE)
    assert (result.returncode, result.stderr) == (4, "")
    assert calls == [array_arguments(2), array_arguments(1)]


def test_failing_machines_are_submitted_at_most_five_times(run_master):
    until_keeper_ends = "until [ $(pgrep -cP $PPID) = 1 ]; do /bin/sleep 0.01; done; exit 4"
    result, calls = run_master("", until_keeper_ends)  # until keep_machines has ended
    assert calls == [array_arguments(2)] * 5
    assert result.stderr == "10 machines were started within ten minutes: no more are started\n"
    assert result.returncode == 4


def test_no_machine_is_submitted_while_slurm_does_not_answer(run_master):
    counts = "echo x >> queries; [ $(wc -l < queries) -lt 6 ] || touch done"
    result, calls = run_master(f"{counts}; exit 1", UNTIL_DONE)
    assert (result.returncode, calls) == (4, [])


# --- scripts that receive a warning ---------------------------------------------------------


@pytest.fixture
def run_job(tmp_path):
    """Run a script; return its exit code, and the launcher's file when it was requeued."""

    def run(launcher, job="", script=lockstep, **options):
        programs = dict.fromkeys(("mpirun", "mpiexec.hydra", "srun"), launcher)
        programs["scontrol"] = 'if [ "$1" = show ]; then cat job; else cat done; exit 1; fi'
        (tmp_path / "job").write_text(job)
        result = run_script(tmp_path, script(**options), programs=programs)
        return result.returncode, result.stdout

    return run


def test_a_job_warned_before_the_run_is_requeued(run_job):
    setup = ["echo only setup > done", "kill -USR1 $$"]
    assert run_job("echo started > done", setup=setup) == (6, "only setup\n")


def test_a_warning_does_not_change_the_exit_code_of_an_ended_launcher(run_job):
    # The stopped script may have waited for the launcher already.
    resume = 'while grep -qs ") [^Z]" /proc/$$/stat; do sleep 0.01; done; kill -CONT $PPID'
    launcher = f"kill -STOP $PPID; kill -USR1 $PPID; ({resume}) & exit 0"
    assert run_job(launcher) == (0, "")


def test_a_second_warning_waits_for_the_checkpoint_too(run_job):
    launcher = """
        trap 'warned=yes' USR1
        kill -USR1 $PPID
        until [ "$warned" ]; do sleep 0.1; done
        kill -USR1 $PPID
        sleep 0.5
        echo checkpoint > done
        exit 6"""
    assert run_job(launcher) == (6, "checkpoint\n")


@pytest.mark.parametrize(
    ("job", "code"),
    [
        ("JobId=12 EndTime=2030-01-01T00:00:00 PreemptTime=None", 3),
        ("JobId=12 EndTime=Unknown PreemptTime=2030-01-01T00:00:00", 6),
        ("JobId=13 PreemptTime=2030-01-01T00:00:00\nJobId=12 PreemptTime=None", 3),
        ("", 3),
    ],
)
def test_a_job_that_lost_a_process_is_requeued_only_if_slurm_ends_it(run_job, job, code):
    requeued = "started\n" if code == 6 else ""
    assert run_job("echo started > done; exit 137", f"{job}\n", elastic) == (code, requeued)


@pytest.mark.parametrize("launcher_code", [0, 137, 255, 4])
def test_a_warned_job_that_lost_a_process_is_requeued(run_job, launcher_code):
    launcher = f"trap : USR1; kill -USR1 $PPID; echo checkpoint > done; exit {launcher_code}"
    assert run_job(launcher, script=elastic) == (6, "checkpoint\n")


WRITE_SUMMARY = "mkdir -p out; echo > out/new; mv out/new out/summary.json;"


@pytest.mark.parametrize(
    ("before", "start", "code"),
    [
        ("", WRITE_SUMMARY + "exit 137", 0),
        (WRITE_SUMMARY, WRITE_SUMMARY + "exit 255", 0),
        (WRITE_SUMMARY, "exit 0", 0),  # nothing to resume
        (WRITE_SUMMARY, "exit 137", 3),
        ("", "exit 0", 3),
        ("", "exit 4", 4),
    ],
)
def test_a_new_summary_means_that_the_run_has_completed(run_job, before, start, code):
    preempted = "JobId=12 PreemptTime=2030-01-01T00:00:00\n" if code == 0 else ""
    assert run_job(start, preempted, elastic, setup=[before or ":"]) == (code, "")


@pytest.mark.parametrize(
    ("codes", "master", "expected"),
    [
        ([3, 3, 6], "42", (6, ["srun", "sleep 5"] * 2 + ["srun", "scontrol requeue 7_2"])),
        ([3], "43", (0, ["scancel --quiet --state=PENDING 7"])),
        ([137], "42", (137, ["srun"])),
        ([3, 7], "42", (7, ["srun", "sleep 5", "srun"])),
    ],
)
def test_a_job_restarts_its_machine(tmp_path, codes, master, expected):
    log_call = 'echo "$(basename "$0") $*" >> log;'
    programs = {
        "srun": "echo srun >> log; code=$(head -1 codes); sed -i 1d codes; exit $code",
        "squeue": f"echo {master}",
        "sleep": log_call,
        "scancel": log_call,
        "scontrol": f"{log_call} exit 1",
    }
    (tmp_path / "codes").write_text("".join(f"{code}\n" for code in codes))
    variables = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"}
    result = run_script(tmp_path, machines(), "42;cluster", programs=programs, **variables)
    assert (result.returncode, (tmp_path / "log").read_text().splitlines()) == expected


# --- bad input ----------------------------------------------------------------------------

STORE = "run nothing --out o"
BAD = [
    ("", "found nothing after the options, expected run STORE"),
    ("--ntasks 7 walk", "found 'walk' after the options, expected run STORE"),
    (STORE, "nothing does not exist, expected a store"),
    ("run", "STORE, --out"),
    (f"{STORE} --serial", "--serial"),
    (f"--ntasks 7 {STORE} --local 2", "--local cannot be combined with several ranks"),
    (f"{STORE} --stepps 3", "--stepps"),
    (f"--ntasks 7 --time soon {STORE}", "--time 'soon'"),
    (f"--ntasks 7 --time 2 {STORE}", "--time 2: expected more than 2 minutes"),
    (f"--ntasks 7 {STORE} --overwrite", "--overwrite would discard"),
    (f"--ntasks 7 --on-loss continue {STORE}", "it was removed; use elastic"),
    (f"--ntasks 7 --preemptible {STORE}", "it was removed; every script requeues"),
    (f"--ntasks 7 --array a.txt {STORE}", "it was removed; submit the script once for each run"),
    (f"--elastic 6 --master-sbatch mem=1 {STORE}", "submit the master"),
    (f"--ntasks 7 --launcher ssh {STORE}", "pmix"),
    (f"--ntasks 7 --launcher pmix {STORE} --elastic", "srun starts an elastic run"),
    (f"--ntasks 7 --sbatch ntasks=3 {STORE}", "already sets --ntasks"),
    (f"--ntasks 7 --sbatch array=1-3 {STORE}", "submit the script once for each run"),
    (f"--ntasks 7 --sbatch mem=1 --sbatch mem=2 {STORE}", "once"),
    (f"--ntasks 7 --sbatch 'a b=1' {STORE}", "'a b'"),
    (f"--ntasks 7 --sbatch n=3 {STORE}", "'n': expected a long option"),
    (f"--ntasks 7 --job-name 'a\nb' {STORE}", "one line"),
    (f"--ntasks 7 --setup 'a\nb' {STORE}", "one line"),
    (f"--ntasks 7 {STORE} my:f 'a=\n'", "one line"),
    (f"--ntasks 7 {STORE} sdv k=3", "did you mean svd?"),
    (f"--ntasks 7 {STORE} svd kk=3", "task svd has no option kk"),
    (f"--elastic 6 --ntasks 7 {STORE}", "--ntasks cannot be combined with --elastic"),
    (f"--elastic 6 --launcher pmi2 {STORE}", "--launcher cannot be combined with --elastic"),
    (f"--elastic 6 {STORE} --local 2", "--local cannot be combined with --elastic"),
    (f"--elastic 6 {STORE} --listen host:5000", "accept and listen cannot be combined"),
    (f"--elastic 6 --job-name a/b {STORE}", "--job-name 'a/b'"),
    (f"--elastic 6 --job-name '' {STORE}", "--job-name ''"),
    (f"--keep 0 {STORE}", "--keep: '0': expected a whole number of at least 1"),
    (f"--keep 2 --elastic 2 {STORE}", "--elastic and --keep cannot be combined"),
    (f"--keep 2 --ntasks 3 {STORE}", "--ntasks cannot be combined with --keep, where each"),
    (f"--elastic 6 {STORE} --accept 'a\nb'", "one line"),
]


@pytest.mark.parametrize(("line", "message"), BAD)
def test_bad_input_gives_one_message(slurm, tmp_path, monkeypatch, line, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = slurm(*shlex.split(line))
    assert (code, out) == (2, "")
    assert err.startswith("cec-mpi: error: ")
    assert err.count("\n") == 1
    assert message in err
