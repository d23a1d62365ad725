"""Commands, programs and examples of the documentation run, and print what the pages show."""

from __future__ import annotations

import doctest
import inspect
import itertools
import re
import sys

import numpy as np
import pytest

from cec_mpi.tasks import TASKS
from helpers import ROOT
from helpers.pages import find_blocks, find_pages

pytestmark = pytest.mark.any_mpi

DOCS = ROOT / "docs"
README = (DOCS.parent / "README.md").read_text()
PAGE = (DOCS / "howto" / "solvers.md").read_text()


def test_the_commands_of_the_readme_run(run, tmp_path):
    section = README.split("\n## From the shell\n", 1)[1]
    commands = section.split("```sh\n", 1)[1].split("```\n", 1)[0]
    first_step = "until grep -qs '\"step\"' factors/steps.jsonl; do sleep 0.1; done;"
    commands, sleeps = re.subn(r"^sleep \d+;", first_step, commands, flags=re.MULTILINE)
    assert sleeps == 1  # the kill follows the first step, not a delay
    commands, slow = re.subn(r"--emulate-base 5000\b", "--emulate-base 50000", commands)
    assert slow == 1  # fast machines also need enough time
    done = run(["bash", "-e", "-o", "pipefail", "-c", commands], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    match = re.search(
        r"^    (cec-mpi: warning: .*)\n    .*\n    (machines: .*)$", README, re.MULTILINE
    )
    assert match
    assert match[1] in done.stderr
    assert match[2] in done.stdout.splitlines()
    X = np.load(tmp_path / "X.npy")
    values = np.linalg.svd(X, compute_uv=False)[:5]
    assert np.allclose(np.load(tmp_path / "factors" / "result.npy"), values)
    assert np.allclose(np.load(tmp_path / "X-again.npy"), X)
    assert "</html>" in (tmp_path / "report.html").read_text()


def test_the_first_program_of_the_readme_prints_what_it_shows(run, tmp_path):
    program, printed = re.findall(r"^```(?:python|text)\n(.*?)^```", README, re.M | re.S)[:2]
    (tmp_path / "program.py").write_text(program)
    done = run([sys.executable, "program.py"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed


@pytest.mark.needs("openmpi")
def test_the_remedy_for_too_few_cores_starts_more_ranks(run, tmp_path):
    (word,) = re.findall(r"add `(\S+)` after `mpirun`", README)
    assert f"`mpirun {word} -n 7" in (DOCS / "howto" / "run.md").read_text("utf-8")
    # Without the variables of these tests, two ranks exceed the slots.
    unset = "unset PRTE_MCA_rmaps_default_mapping_policy OMPI_MCA_rmaps_base_oversubscribe"
    (tmp_path / "hosts").write_text("localhost slots=1\n")
    command = f"{unset}; mpirun --hostfile hosts {{}} -n 2 true"
    assert run(["bash", "-c", command.format(word)], cwd=tmp_path).returncode == 0
    refused = run(["bash", "-c", command.format("")], cwd=tmp_path)
    assert "not enough slots" in refused.stderr


# Pages whose commands other tests run, or that need other computers.
ELSEWHERE = {"howto/dask", "howto/ray", "howto/hosts", "howto/slurm", "howto/install"}
GALLERY = "gallery/"  # pages that run when the documentation is built
NEEDS = {"howto/preemption": "openmpi"}
PAGES = {str(path.relative_to(DOCS).with_suffix("")): path for path in find_pages()}
PAGES_TO_RUN = [
    pytest.param(page, marks=pytest.mark.needs(NEEDS[page]) if page in NEEDS else ())
    for page, path in PAGES.items()
    if page not in ELSEWHERE
    and not page.startswith(GALLERY)
    and find_blocks(path.read_text("utf-8"))
]


# One launch runs consecutive programs. Pytest loads only the plugin that pages name.
RUN_PROGRAMS = (
    "import runpy, sys\nfor name in sys.argv[1:]: runpy.run_path(name, run_name='__main__')"
)
PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_mpi"}


@pytest.mark.parametrize("page", PAGES_TO_RUN)
def test_the_page_runs_from_top_to_bottom(run, tmp_path, monkeypatch, page):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for kind, group in itertools.groupby(
        find_blocks(PAGES[page].read_text("utf-8")), lambda b: b.kind
    ):
        blocks = list(group)
        if kind == "pycon":
            for block in blocks:
                check_example(block, namespace, page)
        elif kind == "sh":
            for block in blocks:
                command = ["bash", "-e", "-o", "pipefail", "-c", block.text]
                done = run(command, cwd=tmp_path, variables=PLUGINS)
                assert done.returncode == 0, f"line {block.line}: {done.stderr}"
                assert without_measurements(done.stdout) == without_measurements(block.output), (
                    f"line {block.line}"
                )
        else:
            for block in blocks:
                (tmp_path / block.name).write_text(block.text)
            if kind != "module":
                check_programs(run, tmp_path, blocks, ["mpirun", "-n", "5"] * (kind == "program"))


def check_programs(run, directory, blocks, launcher):
    """Run programs in files one after the other, and compare their output."""
    names = [block.name for block in blocks]
    words = [*launcher, sys.executable, "-c", RUN_PROGRAMS, *names]
    done = run(words, cwd=directory)
    assert done.returncode == 0, f"lines {[block.line for block in blocks]}: {done.stderr}"
    assert done.stdout == "".join(block.output for block in blocks)


def check_example(block, namespace, page):
    """Run doctest examples with the names that earlier examples on the page have defined."""
    test = doctest.DocTestParser().get_doctest(
        block.text, namespace, page, f"{page}.md", block.line
    )
    printed: list[str] = []
    results = doctest.DocTestRunner().run(test, out=printed.append, clear_globs=False)
    assert results.attempted
    assert not results.failed, "".join(printed)
    namespace.update(test.globs)


def without_measurements(printed: str) -> str:
    """Replace the duration of a run and the number of steps of a SciPy solver."""
    printed = re.sub(r"converged: \d+ steps on", "converged: 1 steps on", printed)
    return re.sub(r"machines, \d+\.\d s$", "machines, 0.0 s", printed, flags=re.MULTILINE)


@pytest.mark.parametrize("task", [name for name in TASKS if name != "matvec"])
def test_the_table_lists_the_options_of_each_task(task):
    (cell,) = re.findall(rf"^\| `{task}` \| `([^`]*)` \|", PAGE, re.MULTILINE)
    stated = dict(item.partition("=")[::2] for item in cell.split(", "))
    parameters = dict(inspect.signature(TASKS[task]).parameters)
    del parameters["X"], parameters["checkpoint"]
    assert list(stated) == list(parameters)
    for name, text in stated.items():
        default = parameters[name].default
        if default in (None, inspect.Parameter.empty):
            assert not text
        else:
            assert type(default)(text) == default
