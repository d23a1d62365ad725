"""Commands and machines load no more than they need; rules for imports are in pyproject.toml."""

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


def modules_after(program, *arguments):
    """Return the names of the modules that a new Python has loaded after this program."""
    program = f"{program}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        env=remove_launcher_variables(os.environ),
    )
    return set(json.loads(result.stdout.splitlines()[-1]))


def test_importing_the_package_loads_none_of_its_modules():
    loaded = modules_after("import cec_mpi; cec_mpi.__version__; dir(cec_mpi)")
    assert not loaded & {"mpi4py", "scipy", "numpy"}
    assert [name for name in loaded if name.startswith("cec_mpi.")] == ["cec_mpi._version"]


COMMAND = "import sys; from cec_mpi.cli import main; assert main(sys.argv[1:]) == 0"
PLAN = ["plan", "--speeds", "1,2,3", "--recovery", "2", "--rows", "60", "--exact", "--json"]


def test_planning_loads_neither_mpi_nor_scipy():
    assert not modules_after(COMMAND, *PLAN) & {"mpi4py.MPI", "scipy"}


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
def test_a_machine_loads_only_what_it_needs(program):
    """Every rank loads these modules, which takes longer than the first step."""
    loaded = modules_after(program)
    assert {"numpy", "cec_mpi.runtime.machine.machine", "cec_mpi.store.reader"} <= loaded
    rooms = ("core.accuracy.vectors", "encoding", "runtime.master", "tasks")
    store_modules = ("operations", "rebuilding", "work")
    unwanted = (
        *("scipy", "pandas"),
        *("concurrent", "difflib", "fractions", "subprocess"),
        "cec_mpi.cli.run.task_run",
        "cec_mpi.core.plan.load",
        "cec_mpi.core.plan.planner",
        *(f"cec_mpi.{room}" for room in rooms),
        *(f"cec_mpi.store.{module}" for module in store_modules),
        *(("mpi4py",) if program is ELASTIC else ("hashlib", "zmq")),  # only it reads keys
    )
    loaded -= modules_after("import numpy, mpi4py, msgspec")
    assert [name for name in loaded if name.startswith(unwanted)] == []


def test_help_loads_no_numpy():
    """Importing NumPy takes as long as showing the help of all commands."""
    program = "from cec_mpi.cli import build_parser as b; [p.format_help() for _, p in b().walk()]"
    assert not modules_after(program) & {"numpy", "scipy", "mpi4py", "msgspec", "rich", "asyncio"}


def test_a_command_does_not_load_the_others():
    loaded = modules_after("from cec_mpi import cli; cli.build_parser('info')")
    commands = {name for name in loaded if name.startswith("cec_mpi.cli.commands.")}
    assert {name.rpartition(".")[2] for name in commands} == {"info", "parser", "shared"}


def test_commands_in_one_process_never_start_mpi(tmp_path):
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
    assert "mpi4py.MPI" not in modules_after(program, tmp_path, *lines)


def test_a_task_without_a_solver_loads_only_the_version_of_scipy(tmp_path):
    """Loading all of SciPy takes longer than loading the other modules of a run."""
    cec_mpi.encode(np.eye(6), tmp_path / "store", machines=3, recovery=2)
    args = "run", tmp_path / "store", "power", "--serial", "--out", tmp_path / "out"
    loaded = modules_after(COMMAND, *args)
    assert "scipy" in loaded
    assert not loaded & {"scipy.linalg", "scipy.sparse"}


def test_arrays_and_devices_load_only_their_own_libraries(tmp_path):
    encode = "import sys, numpy as np, cec_mpi; cec_mpi.encode(np.eye(5), sys.argv[1], 3, 2)"
    unneeded = {"dask", "h5py", "mpi4py", "pandas", "scipy", "xarray", "zarr"}
    assert not modules_after(encode, tmp_path / "store") & unneeded
    multiply = "import sys, cec_mpi; cec_mpi.open_operator(sys.argv[1]).start()"
    assert not modules_after(multiply, tmp_path / "store") & {"array_api_compat", "jax"}


def test_an_unknown_name_of_the_package_raises_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'decode_all'"):
        cec_mpi.decode_all  # noqa: B018


def test_scripts_import_names_that_exist():
    """Most scripts are not run by any test."""
    imports = set()
    for folder in ("scripts", "tests/helpers"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("cec_mpi."):
                    imports.add(ast.unparse(node))
    assert len(imports) > 10
    modules_after("\n".join(sorted(imports)))


PICKLERS = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
# In mpi4py the lower-case methods of a communicator pickle what they send.
PICKLING = {
    *("bcast", "gather", "allgather", "scatter", "alltoall", "reduce", "allreduce", "scan"),
    *("exscan", "send", "bsend", "ssend", "isend", "ibsend", "issend", "recv", "irecv"),
    *("sendrecv", "mprobe", "improbe"),
}
COMMUNICATORS = ("comm", "comm_world", "comm_self", "message")


@pytest.mark.parametrize("path", sorted(Path(cec_mpi.__file__).parent.rglob("*.py")), ids=str)
def test_no_process_unpickles_what_another_has_sent(path):
    """A process that can send a message must not be able to run code in the receiver."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    imported = {
        alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
    }
    imported |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    assert not {name.partition(".")[0] for name in imported} & PICKLERS
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    methods = [call for call in calls if isinstance(call, ast.Attribute)]
    called = {m.attr for m in methods if ast.unparse(m.value).lower().endswith(COMMUNICATORS)}
    assert not called & PICKLING
