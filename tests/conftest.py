"""Fixtures and marks that all tests share."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from cec_mpi import encode
from cec_mpi.cli import main
from cec_mpi.runtime.processes.launcher import detect_launcher, remove_launcher_variables
from cec_mpi.runtime.processes.notices import ADDRESS_VARIABLE
from helpers import ROOT
from helpers.commands import finish, run_to_end
from helpers.commands import start as start_command
from helpers.endless_task import STOP_FILE
from helpers.needs import NEEDS, reason_to_skip
from helpers.stores import SmallStore
from helpers.waiting import END_LIMIT, LIMIT

# With CEC_REPEATABLE all runs have the same examples; otherwise they differ, so 25 suffice.
repeatable = "CEC_REPEATABLE" in os.environ
settings.register_profile("tests", deadline=None, max_examples=25, derandomize=repeatable)
settings.load_profile("tests")

# No test cuts the power, and without this most of the time would be spent waiting for the disk.
os.fsync = lambda descriptor: None
# On a cloud instance tests do not use its metadata service.
os.environ.setdefault(ADDRESS_VARIABLE, "127.0.0.1:9")
os.environ.pop("PYTHONUNBUFFERED", None)  # ranks write whole lines


def pytest_configure(config):
    config.addinivalue_line("markers", "any_mpi: same outcome with every MPI, see CONTRIBUTING.md")
    config.addinivalue_line("markers", f"needs(name): any of {', '.join(NEEDS)}; helpers/needs.py")


def pytest_collection_modifyitems(items):
    for item in items:
        for mark in item.iter_markers("needs"):
            reasons = [reason for name in mark.args if (reason := reason_to_skip(name))]
            if reasons:
                item.add_marker(pytest.mark.skip(reason=reasons[0]))


def pytest_terminal_summary(terminalreporter):
    """Append skipped tests to the file that CEC_SKIPPED names."""
    launcher = detect_launcher()
    is_main = "PYTEST_XDIST_WORKER" not in os.environ and not (launcher and launcher.rank)
    if "CEC_SKIPPED" not in os.environ or not is_main:
        return
    with Path(os.environ["CEC_SKIPPED"]).open("a") as file:
        for report in terminalreporter.stats.get("skipped", ()):
            path, _, reason = report.longrepr
            print(f"{Path(path).name}: {reason.removeprefix('Skipped: ')}", file=file)


@pytest.fixture
def no_launcher(monkeypatch):
    """Remove the environment variables of a launcher."""
    for name in os.environ.keys() - remove_launcher_variables(os.environ):
        monkeypatch.delenv(name)


@pytest.fixture
def start(tmp_path):
    """Start a command; return its process. Kill a process that outlives the test, and fail."""
    commands = []

    def start(command, *, cwd=tmp_path, variables=None, **options: Any):
        commands.append(start_command(command, cwd=cwd, variables=variables, **options))
        return commands[-1].process

    yield start
    survivors = [finish(command, limit=END_LIMIT).survivors for command in commands]
    assert not any(survivors)


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """Run a command; fail if it exceeds a time limit or leaves processes behind."""
    default = tmp_path_factory.mktemp("cwd")

    def run(command, *, cwd=default, timeout=LIMIT, variables=None):
        result = run_to_end(command, cwd=cwd, limit=timeout, variables=variables)
        assert result.returncode is not None, f"timeout of {result.survivors}: {result.stderr}"
        assert not result.survivors
        return result

    return run


@pytest.fixture
def endless_task(tmp_path):
    """A task that makes steps until `stop` is called; `prepare` returns the arguments of a run."""
    shutil.copy(ROOT / "tests" / "helpers" / "endless_task.py", tmp_path)

    def prepare(store):
        np.save(tmp_path / "X.npy", store.X)
        return ["endless_task:products"]

    def stop():
        (tmp_path / STOP_FILE).touch()

    return SimpleNamespace(prepare=prepare, stop=stop)


@pytest.fixture
def call(capfd, monkeypatch):
    """Run ``cec-mpi`` in this process; return its exit code, standard output and error."""

    def call(args, cwd="."):
        monkeypatch.chdir(cwd)
        capfd.readouterr()
        try:
            code = main(list(map(str, args)))
        except SystemExit as exit:
            code = exit.code or 0
        return code, *capfd.readouterr()

    return call


@pytest.fixture(scope="session")
def make_store(tmp_path_factory):
    def make_store(X, machines, recovery, **options):
        directory = tmp_path_factory.mktemp("store")
        np.save(directory / "X.npy", X)
        encode(directory / "X.npy", directory / "store", machines, recovery, **options)
        return SmallStore(directory / "store", X, machines, recovery)

    return make_store


@pytest.fixture(scope="session")
def small_store(make_store):
    """A store of three machines, any two of which suffice; its number of rows is odd."""
    return make_store(np.random.default_rng(1).standard_normal((31, 12)), 3, 2)


@pytest.fixture(scope="session")
def large_store(make_store):
    """A store of the paper's six machines, any three of which suffice."""
    return make_store(np.random.default_rng(3).standard_normal((1259, 12)), 6, 3)
