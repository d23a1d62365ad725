"""Which module may import which: arrows point down, and only a few modules touch MPI."""

import ast
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import cec_mpi
from cec_mpi.processes.launch.launchers import without_launcher

ROOT = Path(cec_mpi.__file__).parent
# Its rooms, from the bottom up. Those on one line do not import each other.
HOUSE = """
    _version errors text
    terminal
    core files
    availability records drawing
    store
    processes
    encoding machine live
    options roster
    wire
    master
    session
    linear_operator cluster tasks report
    run doctor sklearn
    bench
    commands
    cli testing
    __main__
"""
LEVEL = {
    f"cec_mpi.{room}": level
    for level, line in enumerate(HOUSE.strip().splitlines())
    for room in line.split()
}
MPI_ROOMS = ("processes", "wire", "session", "bench")
USE_SCIPY_IN_CORE = {
    f"cec_mpi.core.{name}"
    for name in ("code.mds", "code.decoder", "accuracy.recombine", "holding.mixing", "plan.flow")
}
EVERYONES = {"cec_mpi._version", "cec_mpi.errors", "cec_mpi.text"}
NOT_IN_CORE = {"io", "logging", "mpi4py", "os", "pathlib", "subprocess", "threading", "time"}


@dataclass(frozen=True)
class Import:
    """One imported name: ``from a import b`` is ``a.b``."""

    name: str
    line: int
    in_function: bool
    for_types: bool

    def of(self, package):
        return f"{self.name}.".startswith(f"{package}.")


def imports_of(source):
    return list(_imports(ast.parse(source), in_function=False, for_types=False))


def _imports(node, in_function, for_types):
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name, node.lineno, in_function, for_types)
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            name = f"{'.' * node.level}{node.module or ''}.{alias.name}"
            yield Import(name, node.lineno, in_function, for_types)
    elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        for child in node.body:
            yield from _imports(child, in_function, True)
        for child in node.orelse:
            yield from _imports(child, in_function, for_types)
    else:
        inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.iter_child_nodes(node):
            yield from _imports(child, inside, for_types)


def room_of(name):
    return name.split(".")[1] if "." in name else ""


def points_up(module, name):
    """Whether an import of this name leads up, or to a room that is not listed."""
    mine, its = (".".join(each.split(".")[:2]) for each in (module, name))
    return mine != its and (its not in LEVEL or LEVEL[its] >= LEVEL[mine])


def said_of(room):
    """What a room may import, as its docstring says: names below the package."""
    text = " ".join((ast.get_docstring(ast.parse(ROOMS[room].read_text())) or "").split())
    found = re.findall(r"May import: (?:nothing|((?:`[a-z_.]+`(?:, )?)+))\.", text)
    expected = "one sentence `May import: nothing.`, or of rooms: May import: `core`, `files`."
    assert len(found) == 1, f"the docstring of {room} has no {expected}"
    return re.findall(r"[a-z_.]+", found[0])


def may_import(module, found):
    """Whether the rooms that a module is in say that it may import this."""
    if any(found.of(name) for name in EVERYONES):
        return True
    rooms = [room for room in ROOMS if room != "cec_mpi" and f"{module}.".startswith(f"{room}.")]
    return all(
        any(found.of(name) for name in (room, *(f"cec_mpi.{each}" for each in said_of(room))))
        for room in rooms
    )


def wrong_imports(module, source):
    """What this module imports and may not, as texts."""
    wrong = []
    for found in imports_of(source):
        reasons = []
        if found.name == "cec_mpi":
            reasons.append("is the package")
        elif found.of("cec_mpi") and points_up(module, found.name):
            reasons.append("is not below it in HOUSE")
        elif found.of("cec_mpi") and not may_import(module, found):
            reasons.append("is not among what the docstring of its room says: May import")
        if found.name.startswith("."):
            reasons.append("is relative")
        if found.of("mpi4py.MPI") and not found.for_types and room_of(module) not in MPI_ROOMS:
            reasons.append("is MPI")
        if room_of(module) == "core":
            if any(found.of(name) for name in NOT_IN_CORE):
                reasons.append("is no mathematics")
            if found.of("scipy") and not (module in USE_SCIPY_IN_CORE and found.in_function):
                reasons.append("is SciPy")
        wrong += [f"{module}:{found.line}: {found.name} {reason}" for reason in reasons]
    return wrong


def name_of(path):
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}
ROOMS = {name: path for name, path in MODULES.items() if path.stem == "__init__"}


@pytest.mark.parametrize("module", [name for name in MODULES if name != "cec_mpi"])
def test_no_module_imports_what_it_may_not(module):
    room = ".".join(module.split(".")[:2])
    assert room in LEVEL, f"write {room_of(module)} into HOUSE, below what imports it"
    assert wrong_imports(module, MODULES[module].read_text()) == []


@pytest.mark.parametrize("room", [name for name in ROOMS if name != "cec_mpi"])
def test_a_room_says_what_it_is_for(room):
    unknown = [name for name in said_of(room) if f"cec_mpi.{name}" not in MODULES]
    assert not unknown, f"the docstring of {room} names {unknown}, which are not there"


def test_the_plan_names_what_is_there():
    there = {*MODULES, *ROOMS}
    gone = sorted(name for name in LEVEL if name not in there)
    assert not gone, f"HOUSE names {gone}, which are not there"


def test_the_package_itself_imports_nothing_until_it_is_asked():
    found = imports_of((ROOT / "__init__.py").read_text())
    at_once = {each.name.split(".")[0] for each in found if not each.for_types}
    assert at_once <= {"__future__", "cec_mpi", "importlib", "logging", "typing"}
    ours = {each.name for each in found if each.of("cec_mpi") and not each.for_types}
    assert ours == {"cec_mpi._version.__version__"}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("cec_mpi.errors", "import cec_mpi.core.plan.load"),
        ("cec_mpi.core.plan.load", "from cec_mpi.store import encode"),
        ("cec_mpi.core.plan.load", "from cec_mpi import store"),
        ("cec_mpi.core.plan.load", "from cec_mpi import encode"),
        ("cec_mpi.core.plan.load", "if TYPE_CHECKING:\n    from cec_mpi.store import Store"),
        ("cec_mpi.core.plan.load", "def late():\n    from cec_mpi.cli import main"),
        ("cec_mpi.core.plan.load", "from .. import errors"),
        ("cec_mpi.core.plan.load", "import os"),
        ("cec_mpi.core.plan.load", "import os.path"),
        ("cec_mpi.core.plan.load", "from time import sleep"),
        ("cec_mpi.core.plan.load", "def late():\n    import logging"),
        ("cec_mpi.core.plan.load", "def late():\n    from scipy import linalg"),
        ("cec_mpi.core.code.mds", "from scipy import linalg"),
        ("cec_mpi.records.recorder", "from cec_mpi.master.master import Master"),
        ("cec_mpi.master.master", "from cec_mpi.tasks import power"),
        ("cec_mpi.master.master", "from mpi4py import MPI"),
        ("cec_mpi.machine.machine", "import mpi4py.MPI"),
        ("cec_mpi.doctor.examine", "def late():\n    from mpi4py import MPI"),
        ("cec_mpi.tasks.power", "from cec_mpi.master.master import Master"),
        ("cec_mpi.tasks.power", "from cec_mpi.linear_operator import entrance"),
        ("cec_mpi.tasks.power", "def late():\n    from mpi4py.MPI import COMM_WORLD"),
        ("cec_mpi.run.task_run", "from cec_mpi.cli import main"),
        ("cec_mpi.run.task_run", "import cec_mpi.unheard_of"),
        ("cec_mpi.run.task_run", "import cec_mpi"),
    ],
)
def test_these_rules_find_what_breaks_them(module, source):
    assert len(wrong_imports(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("cec_mpi.core.plan.load", "import math\nfrom cec_mpi.errors import InputError"),
        ("cec_mpi.core.code.mds", "def late():\n    from scipy.linalg import lapack"),
        ("cec_mpi.processes.start", "from mpi4py import MPI"),
        ("cec_mpi.run.task_run", "if TYPE_CHECKING:\n    from mpi4py import MPI"),
        ("cec_mpi.store.operations.encode", "from cec_mpi._version import __version__"),
        ("cec_mpi.__main__", "from cec_mpi.cli import main"),
    ],
)
def test_these_rules_let_the_rest_pass(module, source):
    assert wrong_imports(module, source) == []


# --- what is loaded when ------------------------------------------------------------------


def loaded_after(program, *arguments):
    """Names of the modules that a fresh Python has loaded after this program."""
    program = f"{program}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=True,
        env=without_launcher(os.environ),
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_package_loads_neither_mpi_nor_scipy():
    loaded = loaded_after("import cec_mpi; cec_mpi.__version__; dir(cec_mpi)")
    assert "cec_mpi" in loaded
    assert not loaded & {"mpi4py", "mpi4py.MPI", "scipy", "numpy"}


def test_the_pytest_plugin_loads_nothing_that_a_run_without_it_would_not():
    before = loaded_after("import pytest")
    loaded = loaded_after("import pytest, cec_mpi.testing") - before
    assert {
        name for name in loaded if name != "logging" and not name.startswith("cec_mpi")
    } == set()
    rooms = {room_of(name) for name in loaded if name.startswith("cec_mpi.")}
    assert rooms <= {"testing", "_version", "processes", "errors", "text"}


COMMAND = "import sys; from cec_mpi.cli import main; assert main(sys.argv[1:]) == 0"
PLAN = ["plan", "--speeds", "1,2,3", "--recovery", "2", "--rows", "60", "--exact", "--json"]


def test_planning_loads_neither_mpi_nor_scipy():
    assert not loaded_after(COMMAND, *PLAN) & {"mpi4py.MPI", "scipy"}


LOCKSTEP = """
import mpi4py.rc
mpi4py.rc.initialize = False
from cec_mpi import cli
cli.build_parser("run").parse_args(["run", "store", "--out", "out"])
import cec_mpi.run.ranks, cec_mpi.session.serving, cec_mpi.wire.collective.machine_end
"""
ELASTIC = "import cec_mpi.session.machine"


@pytest.mark.parametrize("program", [LOCKSTEP, ELASTIC])
def test_a_machine_of_a_run_loads_what_it_works_with_alone(program):
    """Every rank reads its modules, which takes longer than the first step."""
    loaded = loaded_after(program)
    assert {"numpy", "cec_mpi.machine.machine", "cec_mpi.store.plain"} <= loaded
    rooms = ("core.deviation", "live.steps", "master", "report", "tasks")
    stores = ("making", "operations", "sources", "degraded", "rebuilding", "work")
    unwanted = (
        "scipy",
        *("concurrent", "decimal", "difflib", "fractions", "subprocess"),
        "cec_mpi.run.task_run",
        "cec_mpi.core.plan.load",
        "cec_mpi.core.plan.planner",
        *(f"cec_mpi.{room}" for room in rooms),
        *(f"cec_mpi.store.{room}" for room in stores),
        *(("mpi4py",) if program is ELASTIC else ("hashlib", "zmq")),  # which reads keys
    )
    loaded -= loaded_after("import numpy, mpi4py")
    assert [name for name in loaded if name.startswith(unwanted)] == []


def test_a_command_does_not_load_the_others():
    loaded = loaded_after("from cec_mpi import cli; cli.build_parser('info')")
    assert "cec_mpi.commands.info" in loaded
    assert not loaded & {f"cec_mpi.commands.{name}" for name in ("doctor", "encode", "plan", "run")}


def test_what_one_process_does_never_starts_mpi(tmp_path):
    X, store, out = tmp_path / "X.npy", tmp_path / "store", tmp_path / "out"
    np.save(X, np.ones((6, 6)))
    for words in (
        ["encode", X, store, "--machines", 3, "--recovery", 2],
        ["info", store],
        ["verify", store],
        ["run", store, "--out", out, "--serial", "--task", "power"],
        ["run", store, "--out", out, "--local", 2, "--task", "power", "--overwrite"],
    ):
        assert "mpi4py.MPI" not in loaded_after(COMMAND, *words)


@pytest.mark.parametrize("name", cec_mpi.__all__)
def test_every_name_of_the_package_is_there(name):
    assert getattr(cec_mpi, name) is not None
    assert name in dir(cec_mpi)


def test_a_name_that_the_package_does_not_have():
    with pytest.raises(AttributeError, match="no attribute 'decode_all'"):
        cec_mpi.decode_all  # noqa: B018


def test_scripts_import_what_is_there():
    wanted = set()
    shared = (ROOT.parent / "tests" / "helpers").glob("*.py")
    for script in [*(ROOT.parent / "scripts").rglob("*.py"), *shared]:
        for found in imports_of(script.read_text()):
            module, _, name = found.name.rpartition(".")
            if found.of("cec_mpi") and module:
                wanted.add(f"from {module} import {name}")
    assert len(wanted) > 10
    loaded_after("\n".join(sorted(wanted)))


def test_no_test_imports_a_script():
    """What they share is in `helpers`, whose modules no script has to be on a path for."""
    scripts = {path.stem for path in (ROOT.parent / "scripts").rglob("*.py")}
    tests = [*(ROOT.parent / "tests").rglob("*.py")]
    assert len(tests) > 50
    assert "chaos" in scripts
    for path in tests:
        for found in imports_of(path.read_text()):
            assert found.name.split(".")[0] not in scripts | {"scripts"}, f"{path}:{found.line}"
