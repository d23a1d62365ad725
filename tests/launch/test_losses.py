"""Processes that die, hang or are told to leave, as on a real cluster: runs go on."""

from __future__ import annotations

import json
import re
import socket
import sys
import time

import numpy as np
import pytest

from cec_mpi.records.recorder import read_steps
from helpers import ROOT
from helpers.needs import reason_to_skip
from helpers.ranks import ranks_of

ulfm = pytest.mark.needs("ulfm")
ULFM = ("mpirun", "--with-ft", "ulfm", "-n")
PLAIN = ("mpirun", "-n")
HERE = PLAIN if reason_to_skip("ulfm") else ULFM


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(4).standard_normal((600, 60))


@pytest.fixture(scope="module")
def store(make_store, X):
    return make_store(X, 6, 3)


@pytest.fixture
def multiply(run, store, tmp_path):
    """Thirty products on a store of six machines, three of which are enough."""
    W = np.random.default_rng(5).standard_normal((30, 60))
    np.save(tmp_path / "W.npy", W)

    def multiply(*options, ranks=7, launcher=HERE, code=0):
        out = tmp_path / "out"
        words = ["cec-mpi", "run", store.path, "--out", out, "--vectors", tmp_path / "W.npy"]
        done = run([*launcher, ranks, *words, *options])
        assert done.returncode == code, done.stderr
        if not code:
            assert np.allclose(np.load(out / "result.npy"), W @ store.X.T, atol=1e-10)
        return done

    return multiply


def events(out):
    _, steps = read_steps(out / "steps.jsonl")
    return [(step["step"], event) for step in steps for event in step["events"]]


CONTINUE = ("--on-loss", "continue")
SLOWLY = ("--emulate-speeds", "1,1,1,1,1,1", "--emulate-base", 2000)  # who is to join does, in time
JOINED = {"joined": 3, "rank": 7, "host": socket.gethostname()}


@ulfm
def test_a_killed_machine_is_left_out_from_the_very_step(multiply, tmp_path):
    multiply(*CONTINUE, "--inject", "kill:3@10,kill:5@20")
    assert [(step, event["lost"]) for step, event in events(tmp_path / "out")] == [(10, 3), (20, 5)]
    _, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    assert steps[10]["available"] == [1, 2, 3, 4, 5, 6]
    assert steps[10]["rows"][2] == 0
    assert sum(steps[10]["rows"]) == 3 * 200
    assert steps[-1]["available"] == [1, 2, 4, 6]


def test_a_launcher_that_ends_the_job_is_named_at_the_start(multiply):
    done = multiply(*CONTINUE, launcher=PLAIN)
    assert done.told.count("this launcher ends the job when a process is lost") == 1
    assert "warning" in done.told


@ulfm
def test_a_launcher_that_lets_a_job_go_on_is_no_reason_to_warn(multiply):
    assert multiply(*CONTINUE).told == ""


@ulfm
def test_several_machines_killed_in_one_step(multiply, tmp_path):
    multiply(*CONTINUE, "--inject", "kill:1@10,kill:3@10,kill:6@10")
    assert {event["lost"] for _, event in events(tmp_path / "out")} == {1, 3, 6}


@ulfm
def test_a_spare_takes_the_number_of_a_lost_machine(multiply, tmp_path):
    multiply(*CONTINUE, "--spares", 1, "--inject", "kill:3@5", *SLOWLY, ranks=8)
    found = events(tmp_path / "out")
    assert [set(event) for _, event in found] == [{"lost", "reason"}, {"joined", "rank", "host"}]
    assert found[1][1] == JOINED
    _, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    assert steps[-1]["available"] == [1, 2, 3, 4, 5, 6]
    assert "machine 3 on" in (tmp_path / "out" / "logs" / "machine-0003.log").read_text()


@ulfm
def test_a_process_is_started_in_the_place_of_a_lost_machine(multiply, tmp_path):
    multiply(*CONTINUE, "--replace", "spawn", "--inject", "kill:3@5,kill:5@8", *SLOWLY)
    found = [event for _, event in events(tmp_path / "out")]
    assert [event["lost"] for event in found if "lost" in event] == [3, 5]
    joined = [event for event in found if "joined" in event]
    assert sorted(joined, key=lambda event: event["rank"]) == [
        JOINED,
        JOINED | {"joined": 5, "rank": 8},
    ]
    _, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    assert steps[-1]["available"] == [1, 2, 3, 4, 5, 6]


STRANGERS = """
import socket
from cec_mpi.wire.lifelines import lifelines
begin = lifelines.Lifelines.__init__
def surrounded(self, *given):
    begin(self, *given)
    place = ("127.0.0.1", self.address.places[0][1])
    self.strangers = [socket.create_connection(place) for _ in range(60)]
lifelines.Lifelines.__init__ = surrounded
"""


@ulfm
def test_silent_strangers_keep_nobody_out(multiply, tmp_path, run, store):
    """Neither who is there from the start, nor who comes later."""
    (tmp_path / "sitecustomize.py").write_text(STRANGERS)
    words = ["cec-mpi", "run", store.path, "--out", tmp_path / "out", *CONTINUE]
    words += ["--vectors", tmp_path / "W.npy", "--replace", "spawn", "--inject", "kill:3@5"]
    words += SLOWLY
    done = run([*ULFM, 7, *words], variables={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert done.told.count("\n") == 0  # the warning that machine 3 was lost
    found = [event for _, event in events(tmp_path / "out")]
    assert [event for event in found if "joined" in event] == [JOINED]


@ulfm
def test_a_loss_is_seen_where_rank_0_cannot_listen(multiply, tmp_path, run, store):
    """As when it may open no more files; MPI tells of the loss."""
    (tmp_path / "sitecustomize.py").write_text(
        "import errno, os\n"
        "from cec_mpi.wire.lifelines import reception\n"
        "def full(host, ports):\n"
        "    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))\n"
        "reception._listener = full\n"
    )
    words = ["cec-mpi", "run", store.path, "--out", tmp_path / "out", *CONTINUE]
    words += ["--vectors", tmp_path / "W.npy", "--spares", 1, "--inject", "kill:3@5", *SLOWLY]
    done = run([*ULFM, 8, *words], variables={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert done.told.count("rank 0 cannot listen at 127.0.0.1") == 1
    found = [event for _, event in events(tmp_path / "out")]
    assert [event for event in found if "joined" in event] == [JOINED]


@pytest.mark.parametrize("interface", ["lo", "127.0.0.0/8"])
def test_rank_0_is_reached_at_the_card_that_is_named(multiply, interface):
    done = multiply(*CONTINUE, "--interface", interface)
    assert "cannot be reached" not in done.told


def test_a_card_that_is_not_there_is_told_once(multiply):
    done = multiply(*CONTINUE, "--interface", "nope", code=2)
    assert done.told.count("cec-mpi: error: interface 'nope': rank 0 on ") == 1
    assert "lo (127.0.0.1)" in done.told


@ulfm
def test_processes_are_started_in_a_step_that_cannot_end_without(multiply, tmp_path):
    kills = "kill:1@5,kill:2@5,kill:3@5,kill:4@5"
    multiply(*CONTINUE, "--replace", "spawn", "--inject", kills)
    assert {step for step, event in events(tmp_path / "out") if "joined" in event} >= {5}


def test_spares_are_recommended_where_no_process_can_be_started(multiply):
    done = multiply(*CONTINUE, "--replace", "spawn", launcher=PLAIN, code=2)
    assert "starts no process during a run here" in done.told
    assert "--spares" in done.told


@ulfm
def test_spares_carry_on_where_too_few_would_be_left(multiply, tmp_path):
    kills = "kill:1@5,kill:2@5,kill:3@5,kill:4@5"
    multiply(*CONTINUE, "--spares", 2, "--inject", kills, *SLOWLY, ranks=9)
    assert sum("joined" in event for _, event in events(tmp_path / "out")) == 2


@ulfm
def test_too_few_machines_leave_a_checkpoint_and_code_4(multiply, tmp_path):
    kills = "kill:1@5,kill:2@10,kill:3@12,kill:4@12"
    done = multiply(*CONTINUE, "--checkpoint-every", 4, "--inject", kills, code=4)
    assert "cec-mpi: error: step 12 cannot end: 2 of its machines are left (5, 6)" in done.told
    assert (tmp_path / "out" / "checkpoint.npz").exists()
    multiply("--checkpoint-every", 4, "--resume", "--machines", "2,3,4", ranks=4)


@ulfm
def test_an_exception_of_a_machine_is_a_loss_too(multiply, tmp_path, run, store):
    (tmp_path / "sitecustomize.py").write_text(
        "from cec_mpi.machine.machine import Machine\n"
        "whole = Machine.compute\n"
        "def compute(self, product, values, step):\n"
        "    if self.number == 2 and step == 7:\n"
        "        raise ArithmeticError('no luck')\n"
        "    return whole(self, product, values, step)\n"
        "Machine.compute = compute\n"
    )
    words = ["cec-mpi", "run", store.path, "--out", tmp_path / "out", *CONTINUE]
    words += ["--vectors", tmp_path / "W.npy", "--spares", 1, *SLOWLY]
    done = run([*ULFM, 8, *words], variables={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    (lost, joined) = events(tmp_path / "out")
    assert lost == (7, {"lost": 2, "reason": "ArithmeticError: no luck"})
    assert joined[1]["joined"] == 2
    _, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    assert len(steps) == 30


@pytest.mark.parametrize("launcher", [pytest.param(ULFM, marks=ulfm), PLAIN], ids=["ulfm", "plain"])
def test_a_stopped_machine_is_given_up_and_ended_with_the_run(multiply, tmp_path, launcher):
    multiply("--deadline", 3, "--inject", "stop:4@10", launcher=launcher)
    assert [found for found in events(tmp_path / "out") if 4 in found[1].values()] == [
        (10, {"late": 4})
    ]


@pytest.fixture
def begun(start, store, until_told, tmp_path):
    """Start a run that goes on until it is told; its process, and what waits for its steps."""

    def begun(*options):
        words = ["cec-mpi", "run", store.path, "--out", "out", *until_told.words(store)]
        slowly = ["--emulate-speeds", "1,1,1,1,1,1", "--emulate-base", 2000]
        process = start(["mpirun", "-n", 7, *words, *slowly, *options])

        def wait_until(condition):
            deadline, out = time.monotonic() + 60, tmp_path / "out" / "steps.jsonl"
            while not (out.exists() and (steps := read_steps(out)[1]) and condition(steps)):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)

        return process, wait_until

    return begun


def test_a_machine_that_wakes_up_comes_back(begun, until_told, tmp_path):
    process, wait_until = begun("--deadline", 0.5)
    wait_until(lambda steps: 4 in steps[-1]["available"])
    machine = ranks_of(process)[4]
    machine.suspend()
    wait_until(lambda steps: 4 not in steps[-1]["available"])
    machine.resume()
    wait_until(lambda steps: 4 in steps[-1]["available"])
    until_told.tell()
    assert process.wait(timeout=60) == 0
    assert {"late": 4} in [event for _, event in events(tmp_path / "out")]
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["wrong"] == 0


def test_machines_leave_when_the_master_is_killed(start, store, tmp_path):
    np.save(tmp_path / "W.npy", np.ones((400, 60)))
    out = tmp_path / "out"
    words = ["cec-mpi", "run", store.path, "--out", out, "--vectors", tmp_path / "W.npy"]
    words += [*CONTINUE, "--spares", 1, "--checkpoint-every", 5]
    slowly = ["--emulate-speeds", "1,1,1,1,1,1", "--emulate-base", 1000]  # 40 s in all
    process = start([*HERE, 8, *words, *slowly])
    deadline = time.monotonic() + 60
    while not (out / "checkpoint.npz").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    ranks_of(process)[0].kill()
    assert process.wait(timeout=20) != 0
    resumed = start([*HERE, 8, *words, "--resume"])
    assert resumed.wait(timeout=30) == 0
    assert np.allclose(np.load(out / "result.npy"), np.ones((400, 60)) @ store.X.T)


@ulfm
def test_a_users_program_survives_too(run, store, tmp_path):
    (tmp_path / "program.py").write_text(
        "import sys\nimport numpy as np\nfrom mpi4py import MPI\nimport cec_mpi\n"
        "options = dict(on_loss='continue', spares=1, inject='kill:2@3,kill:5@6')\n"
        "with cec_mpi.open_operator(sys.argv[1], MPI.COMM_WORLD, **options) as X:\n"
        "    if X is not None:\n"
        "        for _ in range(5):\n"
        "            v = X.rmatvec(X @ np.ones(60))\n"
        "        np.save(sys.argv[2], v)\n"
    )
    found = tmp_path / "v.npy"
    done = run([*ULFM, 8, "python", tmp_path / "program.py", store.path, found])
    assert done.returncode == 0, done.stderr
    assert np.allclose(np.load(found), store.X.T @ (store.X @ np.ones(60)))


@ulfm
@pytest.mark.parametrize("more", [[], ["--adopt"]])
def test_random_kills(run, more):
    """A short run of the campaign in scripts."""
    script = ROOT / "scripts" / "campaigns" / "chaos_kill.py"
    done = run([sys.executable, script, "--seed", 11, "--kills", 10, *more], timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.match(r"\d+ runs, 1\d kills: 0 problems\n", done.stdout)


@ulfm
def test_a_machine_that_dies_while_it_opens_its_shard(multiply, tmp_path, run, store):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal\n"
        "if os.environ.get('OMPI_COMM_WORLD_RANK') == '3':\n"
        "    from cec_mpi.session import serving\n"
        "    serving.open_machine = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    words = ["cec-mpi", "run", store.path, "--out", tmp_path / "out", *CONTINUE]
    words += ["--vectors", tmp_path / "W.npy", "--spares", 1, *SLOWLY]
    done = run([*ULFM, 8, *words], variables={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert [set(event) for _, event in events(tmp_path / "out")] == [
        {"lost", "reason"},
        {"joined", "rank", "host"},
    ]


RIDGE = ("--task", "ridge", "--set", "alpha=1")


@pytest.fixture
def solve(run, store, tmp_path):
    """Ridge regression, which has adjoints, and whether it is right."""
    y = store.X @ np.ones(60)
    np.save(tmp_path / "y.npy", y)

    def solve(*options, ranks=7, launcher=HERE):
        out = tmp_path / "out"
        words = ["cec-mpi", "run", store.path, "--out", out, *RIDGE]
        done = run([*launcher, ranks, *words, "--set", f"y={tmp_path / 'y.npy'}", *options])
        assert done.returncode == 0, done.stderr
        mean = store.X.mean(axis=0)
        centred = store.X - mean
        expected = np.linalg.solve(centred.T @ centred + np.eye(60), centred.T @ (y - y.mean()))
        assert np.allclose(np.load(out / "result.npy"), expected, atol=1e-6)
        return out

    return solve


def test_false_lateness_does_no_harm_to_adjoints(solve):
    slowly = ("--emulate-speeds", "1,1,1,1,1,1", "--emulate-base", 2500)  # 40 ms a step
    out = solve("--deadline", 0.02, *slowly)
    assert any("late" in event for _, event in events(out))


def test_late_machines_without_a_substitute_are_waited_for(solve):
    slowly = ("--emulate-speeds", "1,1,1,1,1,1", "--emulate-base", 2500)
    solve("--machines", "1,2,3", "--deadline", 0.02, *slowly, ranks=4)


@ulfm
@pytest.mark.parametrize("step", [2, 3])
def test_a_spare_gives_what_only_its_machine_can(solve, step):
    options = ("--machines", "1,2,3", "--spares", 1, "--inject", f"kill:3@{step}")
    out = solve(*CONTINUE, *options, ranks=5)
    assert sum("joined" in event for _, event in events(out)) == 1


def test_a_machine_that_never_answers_is_no_reason_to_end(begun, until_told, tmp_path):
    process, wait_until = begun("--deadline", 0.5)
    wait_until(lambda steps: 4 in steps[-1]["available"])
    ranks_of(process)[4].suspend()
    wait_until(lambda steps: any("given up" in event for s in steps for event in s["events"]))
    until_told.tell()
    assert process.wait(timeout=60) == 0
    found = [set(event) for _, event in events(tmp_path / "out") if 4 in event.values()]
    assert found[-2:] == [{"late"}, {"given up", "reason"}]
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["wrong"] == 0


@ulfm
def test_the_next_tick_is_waited_for_when_a_step_cannot_end(multiply, tmp_path):
    masks = {"available": [[1, 2, 3], [4, 5, 6]]}
    (tmp_path / "masks.json").write_text(json.dumps(masks))
    options = ("--availability", tmp_path / "masks.json", "--repeat", "--wait")
    multiply(*CONTINUE, *options, "--inject", "kill:3@2")
    _, steps = read_steps(tmp_path / "out" / "steps.jsonl")
    assert len(steps) == 30
    assert {tuple(step["available"]) for step in steps[2:]} == {(4, 5, 6)}


PROGRAM = """
import os, signal, sys, time
import numpy as np
from mpi4py import MPI
import cec_mpi

pids = MPI.COMM_WORLD.gather(os.getpid())
file = open(sys.argv[2], "w")
with cec_mpi.open_operator(sys.argv[1], MPI.COMM_WORLD, on_loss="continue", spares=1) as X:
    if X is not None:
        w, v = np.ones(60), np.ones(600)
        X @ w
        os.kill(pids[3], signal.SIGKILL)
        time.sleep(0.2)
        with X.open(sys.argv[1]) as Y:
            for _ in range(5):
                error = np.abs(Y.H @ v - X.H @ v).max() + np.abs(Y @ w - X @ w).max()
                assert error < 1e-10, error
        file.write("right")
if file.tell():
    try:
        with cec_mpi.open_operator(sys.argv[1], MPI.COMM_SELF):
            pass
    except cec_mpi.errors.InputError as error:
        file.write(f": {error}")
    sys.exit(5)
"""


@ulfm
def test_a_program_goes_on_after_a_loss_and_ends_as_it_says(run, store, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    told = tmp_path / "told.txt"
    done = run([*ULFM, 8, "python", tmp_path / "program.py", store.path, told])
    assert done.returncode == 5, done.stderr
    assert told.read_text().startswith("right: a process was lost before")


SPAWNS = """
import os, signal, sys
import numpy as np
from mpi4py import MPI
import cec_mpi
from cec_mpi.records.recorder import Recorder

happened = []
with cec_mpi.open_operator(
    sys.argv[1], MPI.COMM_WORLD, on_loss="continue", replace="spawn", inject="kill:2@1",
    recorder=Recorder(watch=lambda record: happened.extend(record.events)),
) as X:
    if X is not None:
        w, v = np.ones(X.shape[1]), np.ones(X.shape[0])
        first = X @ w
        while not any("joined" in event for event in happened):
            X @ w
        assert np.allclose(first, X @ w)
        with X.open(sys.argv[2]) as Y:
            print(np.abs(Y @ (w + 1) - 2 * first).max() < 1e-9)
            print(np.abs(X.H @ v - Y.H @ v).max() < 1e-9)
        if len(sys.argv) > 3:
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def spawn(run, store, tmp_path):
    (tmp_path / "program.py").write_text(SPAWNS)
    return lambda *words: run(
        [*ULFM, 7, "python", tmp_path / "program.py", store.path, store.path, *words]
    )


@ulfm
def test_a_started_process_opens_further_stores_and_leaves_in_order(spawn):
    done = spawn()
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True\nTrue\n"


@ulfm
def test_a_started_process_leaves_when_rank_0_is_killed(spawn):
    assert spawn("end").returncode not in (0, None)  # and nothing is left running


ENDS_EARLY = """
import sys, time, numpy as np
from mpi4py import MPI
import cec_mpi
with cec_mpi.open_operator(
    sys.argv[1], MPI.COMM_WORLD, on_loss="continue", replace="spawn", inject="kill:2@1"
) as X:
    if X is not None:
        w = np.ones(X.shape[1])
        lost = time.monotonic()
        while (begin := time.monotonic()) < lost + 10:
            y = X @ w
            if begin > lost + 0.4 and time.monotonic() - begin > 0.05:  # one is started, it seems
                break
        print(np.isfinite(y).all())
"""


@ulfm
def test_a_process_that_is_started_too_late_leaves_with_the_others(run, store, tmp_path):
    (tmp_path / "program.py").write_text(ENDS_EARLY)
    done = run([*ULFM, 7, "python", tmp_path / "program.py", store.path])
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
