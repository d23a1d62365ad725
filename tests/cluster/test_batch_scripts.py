"""Batch scripts that ``cec-mpi slurm`` writes: their text, and what bash makes of it."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cec_mpi
from cec_mpi.cli import main
from cec_mpi.cluster.slurm import LAUNCHERS, batch_script, elastic_scripts, seconds_of
from cec_mpi.errors import InputError
from helpers import ROOT

GOLDEN = Path(__file__).parent / "golden"
EXAMPLES = ROOT / "scripts" / "slurm"
RUN = "run '/data/my store' --out \"it's\" ridge y=y.npy"
WRITTEN = {  # which words write which file
    "plain": f"--ntasks 7 {RUN}",
    "quoted": '--ntasks 7 --job-name "it\'s 5 * $HOME" --time 1-12:00:00 --nodes 3 '
    "--cpus-per-task 4 --partition low --account 'a b' --sbatch mem=4G --sbatch exclusive "
    "--setup 'module load openmpi' --setup '. venv/bin/activate' run '$store' --out '`out`' "
    "'my_tasks:f' 'name=a \"b\" $(c) ; d' empty=",
    "hydra-preemptible": f"--launcher hydra --ntasks 7 --preemptible --warning 300 --restarts 3 "
    f"--time 60 {RUN}",
    "mpirun-elastic": f"--ntasks 9 {RUN} --elastic",
    "pmi2-all": f"--launcher pmi2 --ntasks 7 --preemptible --array {EXAMPLES}/alphas.txt "
    f"{RUN} --stragglers 1",
}
KINDS = ("master", "machines")  # of the scripts of --elastic

pytestmark = pytest.mark.usefixtures("no_launcher")


@pytest.fixture
def slurm(capsys):
    """Run ``cec-mpi slurm``: its exit code, standard output and standard error."""

    def run(*words):
        return main(["slurm", *map(str, words)]), *capsys.readouterr()

    return run


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    directory = tmp_path_factory.mktemp("store")
    np.save(directory / "X.npy", np.ones((6, 3)))
    cec_mpi.encode(directory / "X.npy", directory / "store", 4, 2)
    return directory / "store"


# --- text ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WRITTEN)
def test_the_script_is_the_golden_file(slurm, name):
    code, out, err = slurm(*shlex.split(WRITTEN[name]))
    assert (code, err) == (0, "")
    assert out == (GOLDEN / f"{name}.sbatch").read_text()


@pytest.mark.parametrize(
    "path", [*GOLDEN.glob("*.sbatch"), *EXAMPLES.glob("*.sbatch")], ids=lambda path: path.stem
)
def test_bash_can_read_it(path):
    done = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        ("", 5),
        ("--machines 1,2,4", 4),
    ],
)
def test_the_ranks_are_those_that_the_run_needs(slurm, store, words, ranks):
    code, out, _ = slurm("run", store, "--out", "results", *words.split())
    assert code == 0
    assert f"#SBATCH --ntasks={ranks}\n" in out


def test_a_job_of_one_process_needs_no_mpi(slurm, store):
    code, script, _ = slurm("--ntasks", 1, "run", store, "svd", "--out", "o", "--local", 4)
    assert code == 0
    assert "srun --mpi=none" in script
    assert "mpirun" not in script


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1", 60),
        ("90", 5400),
        ("0:30", 30),
        ("10:00", 600),
        ("1:00:00", 3600),
        ("2-0", 172800),
        ("1-1:1", 90060),
        ("1-1:1:1", 90061),
    ],
)
def test_times_as_slurm_writes_them(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "00:00", "-1", "1:", "1-", "1:2:3:4", "1h", "x", "1.5"])
def test_what_is_no_time(text):
    with pytest.raises(InputError, match="expected 30"):
        seconds_of(text)


def test_the_scripts_of_a_run_whose_machines_are_jobs(slurm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = "--elastic 24 --job-name elastic --time 2:00:00 --cpus-per-task 4 --partition low "
    words += "--sbatch mem=8G --master-sbatch partition=high --master-sbatch time=7-0 "
    words += f"--master-sbatch mem=2G --setup '. venv/bin/activate' {RUN} --resume"
    code, out, err = slurm(*shlex.split(words))
    assert (code, err) == (0, "")
    assert out == "sbatch elastic-machines.sbatch $(sbatch --parsable elastic-master.sbatch)\n"
    for path in tmp_path.iterdir():
        assert path.read_text() == (GOLDEN / path.name).read_text()
    assert len(list(tmp_path.iterdir())) == 2


def test_the_connection_file_may_be_elsewhere(slurm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert slurm("--elastic", 2, "run", "s", "--out", "o", "--accept", "a b")[0] == 0
    master, machines = (Path(f"cec-mpi-{name}.sbatch").read_text() for name in KINDS)
    assert "\nset -- s --accept 'a b'\n" in master
    assert "cec-mpi join 'a b' --retry 30" in machines


def test_scripts_that_somebody_has_changed_are_not_replaced(slurm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["run", "s", "--out", "o"]
    for _ in range(2):
        assert slurm("--elastic", 2, *words)[0] == 0
    machines = Path("cec-mpi-machines.sbatch")
    machines.write_text(machines.read_text().replace("1-2", "1-3"))
    master = Path("cec-mpi-master.sbatch").read_text()
    code, _, err = slurm("--elastic", 2, *words, "svd", "k=4")
    assert code == 2
    assert ".sbatch exists with other content: remove it, or choose another --job-name" in err
    assert "1-3" in machines.read_text()
    assert Path("cec-mpi-master.sbatch").read_text() == master


@pytest.mark.parametrize(
    ("machines", "options", "is_told"),
    [
        (1, "", True),
        (2, "", False),
        (1, "--machines 1,2", False),
    ],
)
def test_too_few_machines_for_a_step_are_told(
    slurm, store, tmp_path, monkeypatch, machines, options, is_told
):
    monkeypatch.chdir(tmp_path)
    code, _, err = slurm("--elastic", machines, "run", store, "--out", "o", *options.split())
    assert code == 0
    text = f"--elastic {machines}: a step needs 2 machines: "
    assert (text in err) is is_told
    assert err.count("warning") == is_told


# --- what bash makes of it ----------------------------------------------------------------

PRINT = '#!/bin/bash\nprintf "%s\\0" "$0" "$@"\n'


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Run a script with launchers that say with which words they were started."""
    directory = tmp_path_factory.mktemp("bin")
    programs = dict.fromkeys(("mpirun", "mpiexec.hydra", "srun"), PRINT)
    for name, text in {**programs, "scontrol": "#!/bin/bash\nexit 1\n"}.items():
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)

    def run(script, *words, code=0, **variables):
        done = subprocess.run(
            ["bash", "-c", script, "script", *words],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            env={"PATH": f"{directory}:{os.environ['PATH']}", "SLURM_NTASKS": "7"}
            | {"SLURM_CPUS_PER_TASK": "2", "SLURM_JOB_ID": "12", **variables},
        )
        assert (done.returncode, done.stderr) == (code, "")
        name, *rest = done.stdout.split("\0")[:-1]
        return [Path(name).name, *rest]

    return run


ONE_LINE = st.text(
    st.characters(exclude_categories=["C", "Zl", "Zp", "Zs"], include_characters=" ")
)


@given(words=st.lists(ONE_LINE, max_size=5), out=ONE_LINE)
def test_every_word_arrives_as_it_was(said, words, out):
    script = batch_script(words, out)
    assert said(script) == ["mpirun", "-n", "7", "cec-mpi", "run", f"--out={out}", *words]


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize("preemptible", [False, True])
@pytest.mark.parametrize("arguments", [False, True])
def test_all_ways_to_start_run_the_same(said, launcher, elastic, preemptible, arguments):
    options = {"launcher": launcher, "preemptible": preemptible, "elastic": elastic}
    words = ["my store", "--seed", "3"]
    code = 3 if elastic else 0  # the launchers here write no summary
    if arguments:
        found = said(batch_script(**options), words[0], "o u t", *words[1:], code=code)
    else:
        found = said(batch_script(words, "o u t", **options), code=code)
    command = found[found.index("cec-mpi") :]
    assert command == ["cec-mpi", "run", "--out=o u t", *["--resume"] * preemptible, *words]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"launcher": "mpirun"}, ["--bind-to", "none"]),
        ({"launcher": "mpirun", "elastic": True}, ["--bind-to", "none", "--with-ft", "ulfm"]),
        ({"launcher": "hydra"}, []),
    ],
)
def test_a_rank_of_mpirun_may_use_more_than_one_core(said, options, words):
    script = batch_script(["s"], "out", {"cpus-per-task": 2}, **options)
    found = said(script, code=3 if "elastic" in options else 0)
    assert found[3 : 4 + len(words)] == [*words, "cec-mpi"]


def test_each_task_of_an_array_has_its_own_options_and_directory(said):
    script = batch_script(["s"], "out", parameters=[["a=1"], ["b=x y"]])
    for number, option in (("1", "a=1"), ("2", "b=x y")):
        words = said(script, SLURM_ARRAY_TASK_ID=number)
        assert words[3:] == ["cec-mpi", "run", f"--out=out/{number}", "s", option]


@pytest.mark.parametrize("number", ["0", "3"])
def test_a_task_that_an_array_does_not_have_fails(number):
    done = subprocess.run(
        ["bash", "-c", batch_script(["s"], "out", parameters=[["--seed", "1"], ["--seed", "2"]])],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SLURM_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": number},
    )
    assert (done.returncode, done.stderr) == (2, f"no task {number}: expected 1 to 2\n")


@pytest.mark.parametrize("words", [[], ["store"]])
def test_a_script_that_takes_arguments_says_which(words):
    done = subprocess.run(
        ["bash", "-c", batch_script(), "job", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SLURM_JOB_ID": "12"},
    )
    assert (done.returncode, done.stderr) == (2, "expected STORE DIR [options of cec-mpi run]\n")


def scripts():
    """One script of each kind."""
    return [batch_script(["s"], "out"), *elastic_scripts(3, ["s"], "out", "file").values()]


@pytest.mark.parametrize("script", scripts(), ids=["job", *KINDS])
@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "not in a job of Slurm: expected sbatch job.sh\n"),
        (
            {"SLURM_JOB_ID": "5", "SLURM_HET_SIZE": "2", "SLURM_JOB_ID_HET_GROUP_0": "5"},
            "this job has 2 components: expected one, which has all ranks\n",
        ),
    ],
)
def test_a_script_elsewhere_than_in_a_job_of_one_component_says_so(script, variables, message):
    done = subprocess.run(
        ["bash", "-c", script, "job.sh", "4"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], **variables},
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", message)


# What srun adds to the environment of a shell, and sbatch passes on.
LEFT_BEHIND = {
    "SLURM_CPU_BIND": "quiet,mask_cpu:0x8",
    "SLURM_CPU_BIND_LIST": "0x8",
    "SLURM_CPU_BIND_TYPE": "mask_cpu:",
    "SLURM_DISTRIBUTION": "cyclic",
    "SLURM_GPUS_PER_NODE": "1",
    "SLURM_HET_SIZE": "2",
    "SLURM_JOB_ID_HET_GROUP_0": "3",
    "SLURM_MEM_PER_CPU": "100",
    "SLURM_NTASKS_PER_NODE": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_THREADS_PER_CORE": "1",
    "SLURM_TRES_PER_TASK": "cpu:1",
    "PMI_RANK": "0",
    "PMI_SIZE": "2",
    "PMIX_SERVER_URI41": "pmix-server.9;tcp4://127.0.0.1:1",
}
KEPT = {"SLURM_CONF": "/etc/slurm.conf", "SLURM_KILL_BAD_EXIT": "1", "PMIX_MCA_gds": "hash"}


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, set()),
        ({"threads-per-core": "1", "distribution": "cyclic"}, {"THREADS_PER_CORE", "DISTRIBUTION"}),
    ],
)
def test_variables_of_the_shell_that_submitted_a_job_do_not_reach_its_run(tmp_path, options, kept):
    """Unless an option of the job has set them again."""
    (tmp_path / "mpirun").write_text("#!/bin/bash\nenv -0\n")
    (tmp_path / "mpirun").chmod(0o755)
    job = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "5", "SLURM_NTASKS": "2"}
    done = subprocess.run(
        ["bash", "-c", batch_script(["s"], "out", sbatch=options)],
        capture_output=True,
        text=True,
        check=True,
        env={**job, **LEFT_BEHIND, **KEPT},
    )
    found = {line.partition("=")[0] for line in done.stdout.split("\0")}
    assert KEPT.keys() <= found
    still = {name for name in LEFT_BEHIND if "_HET_" not in name} & found
    assert still == {f"SLURM_{name}" for name in kept}


# --- warned scripts -----------------------------------------------------------------------


@pytest.fixture
def warned(tmp_path):
    """Run a preemptible script: its exit code, and what the launcher had done at a requeue."""

    def run(start, job="", preemptible=True, **options):
        programs = {
            **dict.fromkeys(("mpirun", "mpiexec.hydra", "srun"), start),
            "scontrol": 'if [ "$1" = show ]; then cat job; else cat done; exit 1; fi',
        }
        (tmp_path / "job").write_text(job)
        for name, text in programs.items():
            (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
            (tmp_path / name).chmod(0o755)
        done = subprocess.run(
            ["bash", "-c", batch_script(["s"], "out", preemptible=preemptible, **options)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_NTASKS": "7"}
            | {"SLURM_CPUS_PER_TASK": "1", "SLURM_JOB_ID": "12"},
        )
        return done.returncode, done.stdout

    return run


def test_a_warning_before_the_run_has_it_done_later(warned):
    setup = ["echo only setup > done", "kill -USR1 $$"]
    assert warned("echo started > done", setup=setup) == (6, "only setup\n")


def test_a_launcher_that_ends_as_the_warning_comes_keeps_its_code(warned):
    launcher = "kill -STOP $PPID; kill -USR1 $PPID; (sleep 0.3; kill -CONT $PPID) & exit 0"
    assert warned(launcher) == (0, "")


def test_a_second_warning_waits_for_the_checkpoint_too(warned):
    launcher = """
        trap 'told=yes' USR1
        kill -USR1 $PPID
        until [ "$told" ]; do sleep 0.1; done
        kill -USR1 $PPID
        sleep 0.5
        echo checkpoint > done
        exit 6"""
    assert warned(launcher) == (6, "checkpoint\n")


def times(text):
    """Fill in times of today: in a name of a test they would differ between processes."""
    now = int(time.time())
    return text.format(soon=now + 150, later=now + 3600)


@pytest.mark.parametrize(
    ("job", "code"),
    [
        ("JobId=12 EndTime={later} PreemptTime=None", 3),
        ("JobId=12 EndTime=Unknown PreemptTime=None", 3),
        ("JobId=12 EndTime={soon} PreemptTime=None", 6),
        ("JobId=12 EndTime={later} PreemptTime={soon}", 6),
        ("JobId=13 EndTime={soon}\nJobId=12 EndTime={later} PreemptTime=None", 3),
        ("", 3),
    ],
)
def test_a_job_that_lost_a_process_is_requeued_only_if_slurm_ends_it(warned, job, code):
    options = {"launcher": "pmi2", "elastic": True, "warning": 120}
    requeued = "started\n" if code == 6 else ""
    assert warned("echo started > done; exit 137", times(f"{job}\n"), **options) == (code, requeued)


@pytest.mark.parametrize("launched", [0, 137, 255, 4])
def test_a_warned_launcher_that_lost_a_process_is_started_again(warned, launched):
    launcher = f"kill -USR1 $PPID; sleep 0.3; echo checkpoint > done; exit {launched}"
    assert warned(launcher, elastic=True) == (6, "checkpoint\n")


WRITTEN_SUMMARY = "mkdir -p out; echo > out/new; mv out/new out/summary.json;"


@pytest.mark.parametrize("preemptible", [False, True])
@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize(
    ("before", "start", "code"),
    [
        ("", WRITTEN_SUMMARY + "exit 137", 0),
        (WRITTEN_SUMMARY, WRITTEN_SUMMARY + "exit 255", 0),
        (WRITTEN_SUMMARY, "exit 0", 0),  # nothing to resume
        (WRITTEN_SUMMARY, "exit 137", 3),
        ("", "exit 0", 3),
        ("", "exit 4", 4),
    ],
)
def test_a_new_summary_says_that_a_run_has_completed(
    warned, launcher, before, start, code, preemptible
):
    options = {"launcher": launcher, "setup": [before or ":"], "preemptible": preemptible}
    soon = "JobId=12 EndTime={soon}\n" if code == 0 else ""  # a completed run is not requeued
    assert warned(start, times(soon), elastic=True, **options) == (code, "")


@pytest.mark.parametrize(
    ("codes", "master", "expected"),
    [
        ([3, 3, 6], "42", (6, ["srun", "sleep 5"] * 2 + ["srun", "scontrol requeue 7_2"])),
        ([3], "43", (0, ["scancel --quiet --state=PENDING 7"])),
        ([137], "42", (137, ["srun"])),
        ([3, 7], "42", (7, ["srun", "sleep 5", "srun"])),
    ],
)
def test_a_job_starts_its_machine_again_after_a_while(tmp_path, codes, master, expected):
    log = 'echo "$(basename "$0") $*" >> log;'
    programs = {
        "srun": "echo srun >> log; code=$(head -1 codes); sed -i 1d codes; exit $code",
        "squeue": f"echo {master}",
        "sleep": log,
        "scancel": log,
        "scontrol": f"{log} exit 1",
    }
    (tmp_path / "codes").write_text("".join(f"{code}\n" for code in codes))
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    script = elastic_scripts(3, ["s"], "out", "file")["machines"]
    done = subprocess.run(
        ["bash", "-c", script, "script", "42;cluster"],
        cwd=tmp_path,
        timeout=20,
        check=False,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_CPUS_PER_TASK": "1"}
        | {"SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "2"},
    )
    assert (done.returncode, (tmp_path / "log").read_text().splitlines()) == expected


# --- bad input ----------------------------------------------------------------------------

STORE = "run nothing --out o"
BAD = [
    ("", "--ntasks"),
    ("--ntasks 0", "at least 1"),
    ("--ntasks 7 walk", "found 'walk' after the options, expected run STORE"),
    (STORE, "nothing does not exist, expected a store"),
    ("run", "STORE, --out"),
    ("--ntasks 7 run", "STORE, --out"),
    ("run --out o", "STORE"),
    ("run nothing", "--out"),
    (f"{STORE} --serial", "--serial"),
    (f"{STORE} --local 0", "--local"),
    (f"--ntasks 7 {STORE} --local 2", "--local: the ranks of the job are the machines"),
    (f"{STORE} --stepps 3", "--stepps"),
    (f"--ntasks 7 --time soon {STORE}", "--time 'soon'"),
    (f"--ntasks 7 --preemptible {STORE} --overwrite", "--overwrite"),
    (f"--ntasks 7 --warning 60 {STORE}", "--preemptible"),
    (f"--ntasks 7 --restarts 3 {STORE}", "--preemptible"),
    (f"--ntasks 7 --preemptible --time 2 {STORE}", "at most 119 seconds"),
    (f"--ntasks 7 --preemptible --warning 65536 {STORE}", "at most 65535"),
    (f"--ntasks 7 --on-loss continue {STORE}", "it was removed; use elastic"),
    (f"--ntasks 7 {STORE} --on-loss continue", "it was removed; use elastic"),
    (f"--ntasks 7 --launcher ssh {STORE}", "pmix"),
    (f"--ntasks 7 --sbatch ntasks=3 {STORE}", "--ntasks already"),
    (f"--ntasks 7 --sbatch array=1-3 {STORE}", "use --array"),
    (f"--ntasks 7 --preemptible --sbatch no-requeue {STORE}", "use --array or --preemptible"),
    (f"--ntasks 7 --sbatch mem=1 --sbatch mem=2 {STORE}", "once"),
    (f"--ntasks 7 --sbatch 'a b=1' {STORE}", "'a b'"),
    (f"--ntasks 7 --sbatch =1 {STORE}", "long option"),
    (f"--ntasks 7 --sbatch n=3 {STORE}", "'n': expected a long option"),
    (f"--ntasks 7 --job-name 'a\nb' {STORE}", "one line"),
    (f"--ntasks 7 --setup 'a\nb' {STORE}", "one line"),
    (f"--ntasks 7 {STORE} my:f 'a=\n'", "one line"),
    (f"--ntasks 7 {STORE} sdv k=3", "did you mean svd?"),
    (f"--ntasks 7 {STORE} svd kk=3", "task svd has no option kk"),
    (f"--ntasks 7 --array absent.txt {STORE}", "absent.txt"),
    (f"--ntasks 7 --array empty.txt {STORE}", "empty.txt has no options"),
    (f"--ntasks 7 --array open.txt {STORE}", "open.txt, line 2: No closing quotation"),
    (f"--ntasks 7 --array wrong.txt {STORE}", "wrong.txt, line 1: "),
    (f"--ntasks 7 --array out.txt {STORE}", "DIR/1"),
    (f"--ntasks 7 --array bytes.txt {STORE}", "bytes.txt"),
    (f"--array ranks.txt {STORE}", "numbers of ranks, [3, 4]"),
    ("--elastic 6", "--elastic needs run STORE"),
    (f"--elastic 0 {STORE}", "--elastic"),
    (f"--elastic 6 --ntasks 7 {STORE}", "--ntasks cannot be combined with --elastic"),
    (f"--elastic 6 --launcher pmi2 {STORE}", "--launcher cannot be combined with --elastic"),
    (f"--elastic 6 --preemptible {STORE}", "--preemptible cannot be combined with --elastic"),
    (f"--elastic 6 {STORE} --overwrite", "--overwrite with --elastic"),
    (f"--elastic 6 {STORE} --listen host:5000", "accept and listen cannot be combined"),
    (f"--elastic 6 {STORE} --stepps 3", "--stepps"),
    (f"--elastic 6 --time 2 {STORE}", "at most 119 seconds"),
    (f"--elastic 6 --job-name a/b {STORE}", "--job-name 'a/b'"),
    (f"--elastic 6 --job-name=-x {STORE}", "--job-name '-x'"),
    (f"--elastic 6 --job-name '' {STORE}", "--job-name ''"),
    (f"--elastic 6 --sbatch array=1-3 {STORE}", "--sbatch array"),
    (f"--elastic 6 --sbatch ntasks=3 {STORE}", "--ntasks already"),
    (f"--elastic 6 --master-sbatch ntasks=3 {STORE}", "--ntasks already"),
    (f"--elastic 6 --master-sbatch account= {STORE}", "--master-sbatch account: expected a value"),
    (f"--elastic 6 --master-sbatch time {STORE}", "--master-sbatch time: expected a value"),
    (f"--elastic 6 --master-sbatch cpus-per-task=x {STORE}", "cpus-per-task=x"),
    (
        f"--elastic 6 --master-sbatch array=1-3 {STORE}",
        "--master-sbatch array is set by the scripts",
    ),
    (f"--elastic 6 --master-sbatch no-requeue {STORE}", "--master-sbatch no-requeue"),
    (f"--elastic 6 --master-sbatch mem=1 --master-sbatch mem=2 {STORE}", "--master-sbatch mem"),
    (f"--ntasks 7 --master-sbatch mem=1 {STORE}", "--master-sbatch needs --elastic"),
    (f"--elastic 6 {STORE} --accept 'a\nb'", "one line"),
]


@pytest.mark.parametrize(("line", "names"), BAD)
def test_bad_input_gets_one_message(slurm, tmp_path, monkeypatch, line, names):
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").write_text("# nothing\n\n")
    Path("open.txt").write_text("--seed 1\n'a=1\n")
    Path("wrong.txt").write_text("--local none\n")
    Path("out.txt").write_text("--seed 1 --out there\n")
    Path("bytes.txt").write_bytes(b"\xff\xfe")
    Path("ranks.txt").write_text("--machines 1,2\n--machines 1,2,3\n")
    code, out, err = slurm(*shlex.split(line))
    assert (code, out) == (2, "")
    assert err.startswith("cec-mpi: error: ")
    assert err.count("\n") == 1
    assert names in err
