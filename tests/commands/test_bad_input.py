"""Bad input ends with one message and the right exit code: the cases of helpers/bad_inputs.py."""

from __future__ import annotations

import multiprocessing

import pytest

from helpers import bad_inputs, commands

CASES = bad_inputs.cases()
SERIAL = [case for case in CASES if not case.ranks]


@pytest.fixture(scope="session")
def processes():
    """Processes that have imported everything already, since there are hundreds of cases."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["pytest", "scipy.linalg", "cec_mpi.run.task_run", "helpers.bad_inputs"]
    )
    return context


def test_the_cases_are_many_and_different():
    assert len({case.name for case in CASES}) == len(CASES)
    assert len({(case.words, case.ranks, case.make) for case in CASES}) >= 100


@pytest.mark.parametrize("case", SERIAL, ids=lambda case: case.name)
def test_bad_input_in_one_process(case, good, processes, tmp_path):
    words = bad_inputs.prepare(case, tmp_path, good)
    process = processes.Process(target=bad_inputs.call, args=(words, tmp_path))
    process.start()
    process.join(bad_inputs.TIME_LIMIT)
    late = process.is_alive()
    process.kill()
    process.join()
    done = commands.Done(
        None if late else process.exitcode,
        (tmp_path / "stdout").read_text(),
        (tmp_path / "stderr").read_text(),
        (),
    )
    assert bad_inputs.judge(done, case.code) is None
