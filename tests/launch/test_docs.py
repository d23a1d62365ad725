"""Commands, programs and examples of the documentation run, and print what the pages show."""

from __future__ import annotations

import ast
import doctest
import inspect
import itertools
import re
import sys

import numpy as np
import pytest

from cec_mpi.tasks import TASKS
from helpers import ROOT
from helpers.pages import blocks_of, pages_of_docs

pytestmark = pytest.mark.any_mpi

DOCS = ROOT / "docs"
README = (DOCS.parent / "README.md").read_text()
PAGE = (DOCS / "howto" / "solvers.md").read_text()


def test_the_commands_of_the_readme_run(run, tmp_path):
    section = README.split("\n## From the shell\n", 1)[1]
    commands = section.split("```sh\n", 1)[1].split("```\n", 1)[0]
    first_step = "until grep -qs '\"step\"' factors/steps.jsonl; do sleep 0.1; done;"
    commands, sleeps = re.subn(r"^sleep \d+;", first_step, commands, flags=re.MULTILINE)
    assert sleeps == 1  # the kill follows the first step, not a time,
    commands, slow = re.subn(r"--emulate-base 5000\b", "--emulate-base 50000", commands)
    assert slow == 1  # and the machines can be faster
    done = run(["bash", "-e", "-o", "pipefail", "-c", commands], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = re.search(
        r"^    (cec-mpi: warning: .*)\n    .*\n    (machines: .*)$", README, re.MULTILINE
    )
    assert shown
    assert shown[1] in done.stderr
    assert shown[2] in done.stdout.splitlines()
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
@pytest.mark.parametrize(
    ("page", "pattern"),
    [
        (DOCS / "howto" / "run.md", r"say `mpirun (\S+) -n 7 cec-mpi\s+run \.\.\.`"),
        (DOCS.parent / "README.md", r"add `(\S+)` after `mpirun`"),
    ],
)
def test_the_remedy_for_too_few_cores_starts_more_ranks(run, tmp_path, page, pattern):
    (words,) = re.findall(pattern, page.read_text("utf-8"))
    # Without the variables of these tests, two ranks exceed the slots.
    unset = "unset PRTE_MCA_rmaps_default_mapping_policy OMPI_MCA_rmaps_base_oversubscribe"
    hosts = tmp_path / "hosts"
    hosts.write_text("localhost slots=1\n")
    for option, starts in ((words, True), ("", False)):
        command = f"{unset}; mpirun --hostfile {hosts} {option} -n 2 true"
        done = run(["bash", "-c", command], cwd=tmp_path)
        assert (done.returncode == 0) is starts, done.stderr
        assert ("not enough slots" in done.stderr) is not starts


# Other tests run their commands, or they need other computers.
ELSEWHERE = {"howto/dask", "howto/ray", "howto/hosts", "howto/slurm", "howto/install"}
BUILT = "gallery/"  # pages that run when the documentation is built
NEEDS = {"howto/preemption": "openmpi"}
PAGES = {str(path.relative_to(DOCS).with_suffix("")): path for path in pages_of_docs()}
RUN = [
    pytest.param(page, marks=pytest.mark.needs(NEEDS[page]) if page in NEEDS else ())
    for page, path in PAGES.items()
    if page not in ELSEWHERE and not page.startswith(BUILT) and blocks_of(path.read_text("utf-8"))
]


# One start runs programs that follow each other. Pytest loads only the plugin that pages name.
RUN_PROGRAMS = (
    "import runpy, sys\nfor name in sys.argv[1:]: runpy.run_path(name, run_name='__main__')"
)
PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_mpi"}


@pytest.mark.parametrize("page", RUN)
def test_the_page_runs_from_top_to_bottom(run, tmp_path, monkeypatch, page):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for kind, found in itertools.groupby(
        blocks_of(PAGES[page].read_text("utf-8")), lambda b: b.kind
    ):
        blocks = list(found)
        if kind == "pycon":
            for block in blocks:
                check_example(block, namespace, page)
        elif kind == "sh":
            for block in blocks:
                command = ["bash", "-e", "-o", "pipefail", "-c", block.text]
                done = run(command, cwd=tmp_path, variables=PLUGINS)
                assert done.returncode == 0, f"line {block.line}: {done.stderr}"
                assert without_measurements(done.stdout) == without_measurements(block.printed), (
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
    assert done.stdout == "".join(block.printed for block in blocks)


def check_example(block, namespace, page):
    """Run examples of doctest, with the names that those before them on the page have made."""
    test = doctest.DocTestParser().get_doctest(
        block.text, namespace, page, f"{page}.md", block.line
    )
    printed: list[str] = []
    results = doctest.DocTestRunner().run(test, out=printed.append, clear_globs=False)
    assert results.attempted
    assert not results.failed, "".join(printed)
    namespace.update(test.globs)


def without_measurements(printed: str) -> str:
    """Replace the duration of a run, and the number of steps of a solver of SciPy."""
    printed = re.sub(r"converged: \d+ steps on", "converged: 1 steps on", printed)
    return re.sub(r"machines, \d+\.\d s$", "machines, 0.0 s", printed, flags=re.MULTILINE)


def stated_options(task: str) -> dict[str, object]:
    """Options and defaults in the page's table; None where it gives no default."""
    row = re.search(rf"^\| `{task}` \|([^|]*)\|[^|]*\|[^|]*\|$", PAGE, re.MULTILINE)
    assert row, f"no task {task} in the table"
    pairs = (item.partition("=") for item in row.group(1).strip(" `").split(", "))
    return {name: _value(text) if equals else None for name, equals, text in pairs}


def _value(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except ValueError:
        return text


@pytest.mark.parametrize("task", [name for name in TASKS if name != "matvec"])
def test_the_table_lists_the_options_of_each_task(task):
    options = list(inspect.signature(TASKS[task]).parameters.values())[1:]
    defaults = {p.name: None if p.default is p.empty else p.default for p in options}
    del defaults["checkpoint"]
    assert stated_options(task) == defaults


PROGRAM = "```python\n# a.py\nopen_operator()\n```\n"


@pytest.mark.parametrize(
    "added",
    [
        "```json\n{}\n```\n",
        "  ```python\n# b.py\n  ```\n",
        "```python\n# b.py\nx = 1\n```\n",
        "```python\nx = 1\n```\n",
        PROGRAM,
        PROGRAM + "```text\nx\n```\n```text\ny\n```\n",
        "```sh\ntrue\n",
        "```pycon\n1\n```\n",
    ],
)
def test_a_block_that_no_test_runs_is_refused(added):
    good = PROGRAM + "```text\nx\n```\n"
    assert len(blocks_of(good)) == 1
    with pytest.raises(AssertionError):
        blocks_of(good + added)
