"""What is loaded when; which room may import which is said in pyproject.toml (lint-imports)."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cec_mpi
from cec_mpi.runtime.processes.launcher import remove_launcher_variables
from helpers import ROOT


def loaded_after(program, *arguments):
    """Names of the modules that a fresh Python has loaded after this program."""
    program = f"{program}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        env=remove_launcher_variables(os.environ),
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_package_loads_nothing_of_it():
    loaded = loaded_after("import cec_mpi; cec_mpi.__version__; dir(cec_mpi)")
    assert not loaded & {"mpi4py", "scipy", "numpy"}
    assert [name for name in loaded if name.startswith("cec_mpi.")] == ["cec_mpi._version"]


COMMAND = "import sys; from cec_mpi.cli import main; assert main(sys.argv[1:]) == 0"
PLAN = ["plan", "--speeds", "1,2,3", "--recovery", "2", "--rows", "60", "--exact", "--json"]


def test_planning_loads_neither_mpi_nor_scipy():
    assert not loaded_after(COMMAND, *PLAN) & {"mpi4py.MPI", "scipy"}


LOCKSTEP = """
import mpi4py.rc
mpi4py.rc.initialize = False
from cec_mpi import cli
cli.build_parser("run").parse_args(["run", "store", "--out", "out"])
import cec_mpi.cli.run.ranks, cec_mpi.runtime.session.serving
import cec_mpi.runtime.wire.collective.machine_endpoint
"""
ELASTIC = "import cec_mpi; cec_mpi.join"


@pytest.mark.parametrize("program", [LOCKSTEP, ELASTIC])
def test_a_machine_of_a_run_loads_what_it_works_with_alone(program):
    """Every rank reads its modules, which takes longer than the first step."""
    loaded = loaded_after(program)
    assert {"numpy", "cec_mpi.runtime.machine.machine", "cec_mpi.store.reader"} <= loaded
    rooms = ("core.accuracy.vectors", "encoding", "runtime.master", "tasks")
    stores = ("operations", "rebuilding", "work")
    unwanted = (
        *("scipy", "pandas"),
        *("concurrent", "difflib", "fractions", "subprocess"),
        "cec_mpi.cli.run.task_run",
        "cec_mpi.core.plan.load",
        "cec_mpi.core.plan.planner",
        *(f"cec_mpi.{room}" for room in rooms),
        *(f"cec_mpi.store.{room}" for room in stores),
        *(("mpi4py",) if program is ELASTIC else ("hashlib", "zmq")),  # which reads keys
    )
    loaded -= loaded_after("import numpy, mpi4py, msgspec")
    assert [name for name in loaded if name.startswith(unwanted)] == []


def test_help_loads_no_numpy():
    """All commands together show their help in the time in which NumPy is imported."""
    program = "from cec_mpi.cli import build_parser as b; [p.format_help() for _, p in b().walk()]"
    assert not loaded_after(program) & {"numpy", "scipy", "mpi4py", "msgspec", "rich", "asyncio"}


def test_a_command_does_not_load_the_others():
    loaded = loaded_after("from cec_mpi import cli; cli.build_parser('info')")
    commands = {name for name in loaded if name.startswith("cec_mpi.cli.commands.")}
    assert {name.rpartition(".")[2] for name in commands} == {"info", "parser", "shared"}


def test_what_one_process_does_never_starts_mpi(tmp_path):
    np.save(tmp_path / "X.npy", np.ones((6, 6)))
    lines = (
        "encode X.npy store --machines 3 --recovery 2",
        "info store",
        "verify store",
        "run store --out out --serial power",
        "run store --out out --local 2 power --overwrite",
    )
    program = (
        "import os, sys; from cec_mpi.cli import main\n"
        "os.chdir(sys.argv[1])\n"
        "assert not [line for line in sys.argv[2:] if main(line.split())]"
    )
    assert "mpi4py.MPI" not in loaded_after(program, tmp_path, *lines)


def test_a_task_of_the_package_that_needs_no_solver_loads_no_scipy(tmp_path):
    """Beyond its version: all of SciPy takes longer than the other modules of a run."""
    cec_mpi.encode(np.eye(6), tmp_path / "store", machines=3, recovery=2)
    words = "run", tmp_path / "store", "power", "--serial", "--out", tmp_path / "out"
    loaded = loaded_after(COMMAND, *words)
    assert "scipy" in loaded
    assert not loaded & {"scipy.linalg", "scipy.sparse"}


def test_only_the_libraries_of_the_array_and_the_device_are_loaded(tmp_path):
    encode = "import sys, numpy as np, cec_mpi; cec_mpi.encode(np.eye(5), sys.argv[1], 3, 2)"
    others = {"dask", "h5py", "mpi4py", "pandas", "scipy", "xarray", "zarr"}
    assert not loaded_after(encode, tmp_path / "store") & others
    multiply = "import sys, cec_mpi; cec_mpi.open_operator(sys.argv[1]).start()"
    assert not loaded_after(multiply, tmp_path / "store") & {"array_api_compat", "jax"}


def test_a_name_that_the_package_does_not_have():
    with pytest.raises(AttributeError, match="no attribute 'decode_all'"):
        cec_mpi.decode_all  # noqa: B018


def test_scripts_import_names_that_exist():
    """No test runs most of the scripts."""
    imports = set()
    for folder in ("scripts", "tests/helpers"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("cec_mpi."):
                    imports.add(ast.unparse(node))
    assert len(imports) > 10
    loaded_after("\n".join(sorted(imports)))


PICKLERS = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
# Of mpi4py: lower-case methods of a communicator pickle what they send.
PICKLING = {
    *("bcast", "gather", "allgather", "scatter", "alltoall", "reduce", "allreduce", "scan"),
    *("exscan", "send", "bsend", "ssend", "isend", "ibsend", "issend", "recv", "irecv"),
    *("sendrecv", "mprobe", "improbe"),
}
ENDS = ("comm", "comm_world", "comm_self", "message")


@pytest.mark.parametrize("path", sorted(Path(cec_mpi.__file__).parent.rglob("*.py")), ids=str)
def test_no_process_unpickles_what_another_has_sent(path):
    """Whoever can send a message to a process must not be able to run code in it."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    imported = {
        alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
    }
    imported |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert not {name.partition(".")[0] for name in imported} & PICKLERS
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    methods = [each for each in calls if isinstance(each, ast.Attribute)]
    called = {each.attr for each in methods if ast.unparse(each.value).lower().endswith(ENDS)}
    assert not called & PICKLING
