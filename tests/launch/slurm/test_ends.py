"""The end of a task under srun decides the exit code, and ends all processes."""

from __future__ import annotations

import pytest

from helpers.ending_tasks import OUTCOMES, TASKS

pytestmark = pytest.mark.needs("slurm")
WAYS = [
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
        marks=pytest.mark.needs("pmi2-always"),
        id="pmi2",
    ),
]


@pytest.mark.parametrize(("start", "options"), WAYS)
@pytest.mark.parametrize("task", ["leaves", "raises"])
def test_the_end_of_a_task_decides_the_exit_code_of_its_run(
    run, cluster, small_store, tmp_path, task, start, options
):
    code, message = OUTCOMES[task]
    (tmp_path / "my_tasks.py").write_text(TASKS)
    words = ["cec-mpi", "run", small_store.path, f"my_tasks:{task}", "--out", "out", *options]
    done = run(["srun", "-n", 4, *start, *words], cwd=tmp_path, variables=cluster)
    if task == "leaves" and not options:  # srun may return the code of another process
        assert done.returncode not in (0, None)
    else:
        assert done.returncode == code, done.stderr
    assert message in done.stderr
    assert done.stderr.count("Traceback") == (task == "raises")
    assert not (tmp_path / "out" / "summary.json").exists()
