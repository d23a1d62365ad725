"""The test script runs all stages even if some fail, and all studies have help."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import pytest

from helpers import ROOT
from helpers.waiting import LIMIT, wait_until

TOOL = """#!/bin/sh
echo "${0##*/} $*" >> "$RAN"
case "${0##*/} $*" in
    "ruff check"*) exit 7 ;;
    *pytest*tests/packages) exit 3 ;;
    *pytest*tests/docs | *pytest*tests/hosts | *pytest*" tests/launch --ignore"*)
        trap 'echo interrupted >> "$RAN"; exit 2' INT
        echo waiting >> "$RAN"
        while :; do sleep 0.01; done
        ;;
esac
"""


@pytest.fixture
def script(tmp_path):
    """Start scripts/test of a project whose programs only record that they ran."""
    processes = []
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("python", "mpirun", "ruff", "lint-imports", "mypy"):
        (tools / name).write_text(TOOL)
        (tools / name).chmod(0o755)
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "test", tmp_path / "scripts")
    (tmp_path / "scripts" / "environment").write_text(f'root={tmp_path}; PATH="{tools}:$PATH"')
    (tmp_path / "scripts" / "docs").write_text(TOOL)
    (tmp_path / "scripts" / "docs").chmod(0o755)

    def start(stages):
        variables = {"RAN": str(tmp_path / "ran"), "TMPDIR": str(tmp_path)}
        command = ["bash", tmp_path / "scripts" / "test", "--only", stages]
        processes.append(
            subprocess.Popen(
                command,
                env={**os.environ, **variables},
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
                # Where pytest runs in the background, Ctrl-C is ignored.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def list_runs(directory):
    """Return the commands that ran, except queries of Python and compilation."""
    lines = (directory / "ran").read_text().splitlines()
    return [line for line in lines if "mpi_at_hand" not in line and "compileall" not in line]


def test_all_stages_run_and_failed_ones_are_listed(script, tmp_path):
    process = script("lint,types,packages,slurm")
    output, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    commands = [line.split(" -q")[0] for line in list_runs(tmp_path)]
    assert sorted(commands) == ["lint-imports ", "mypy "] + 2 * ["python -m pytest"] + [
        "ruff check .",
        "ruff format --check .",
    ]
    assert "\n== packages" in output
    *_, head, first, second = output.splitlines()
    assert head.startswith("Failed, after ")
    first, second = sorted((first, second))
    assert first == "  lint: ruff check . (exit code 7)"
    assert second.startswith("  packages: ")
    assert second.endswith("python -m pytest -q tests/packages (exit code 3)")


def test_an_interrupt_ends_all_stages_at_once(script, tmp_path):
    process = script("docs,ranks,packages,hosts,slurm,launch")
    wait_until(lambda: (tmp_path / "ran").exists() and list_runs(tmp_path).count("waiting") == 3)
    os.killpg(process.pid, signal.SIGINT)  # a terminal does this for Ctrl-C
    output, _ = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert list_runs(tmp_path)[-3:] == ["interrupted"] * 3
    assert "All passed" not in output
    assert not list(tmp_path.glob("cec.*"))


STUDIES = [
    path
    for folder in ("benchmarks", "campaigns")
    for path in sorted((ROOT / "scripts" / folder).glob("*.py"))
    if path.name not in ("measure.py", "petsc_step.py")  # modules of other studies
]


HELP = """
import contextlib, io, os, runpy, sys
for path in sys.argv[1:]:
    sys.argv, sys.path[0], output = [path, "--help"], os.path.dirname(path), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        runpy.run_path(path, run_name="__main__")
    assert "--seed" in output.getvalue() and "--seconds" in output.getvalue(), path
print("all have help")
"""


def test_all_studies_start_and_print_their_help():
    """This checks that every name that they import exists."""
    command = [sys.executable, "-c", HELP, *STUDIES]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "all have help\n", "")
