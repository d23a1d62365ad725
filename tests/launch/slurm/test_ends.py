"""An exception of a task under srun decides the exit code, and ends all processes."""

from __future__ import annotations

import pytest

from helpers.ending_tasks import OUTCOMES, TASKS

pytestmark = pytest.mark.needs("slurm")
LAUNCHES = [
    pytest.param(("--mpi=none", "-N", 2), ("--elastic",), marks=pytest.mark.any_mpi, id="elastic"),
    pytest.param(
        ("--mpi=pmix", "--kill-on-bad-exit", "-N", 4),
        (),
        marks=pytest.mark.needs("openmpi", "slurm-pmix"),
        id="pmix",
    ),
    pytest.param(
        ("--mpi=pmi2", "--kill-on-bad-exit", "-N", 2),
        (),
        marks=pytest.mark.needs("reliable-pmi2"),
        id="pmi2",
    ),
]


@pytest.mark.parametrize(("srun_options", "options"), LAUNCHES)
def test_an_exception_of_a_task_decides_the_exit_code_of_its_run(
    run, cluster, small_store, tmp_path, srun_options, options
):
    code, message = OUTCOMES["raises"]
    (tmp_path / "my_tasks.py").write_text(TASKS)
    words = ["cec-mpi", "run", small_store.path, "my_tasks:raises", "--out", "out", *options]
    done = run(["srun", "-n", 4, *srun_options, *words], cwd=tmp_path, variables=cluster)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert done.stderr.count("Traceback") == 1
    assert not (tmp_path / "out" / "summary.json").exists()
