"""Which module may import which: arrows point down, and only a few modules touch MPI."""

import ast
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import cec_mpi
from cec_mpi.runtime.launchers import without_launcher

ROOT = Path(cec_mpi.__file__).parent
LAYERS = [
    {"errors"},
    {"core"},
    {"store", "availability", "records", "asking"},
    {"runtime"},
    {"tasks", "operator", "opening", "slurm", "hostfile", "progress"},
    {"job", "advice", "checkpoints", "checkup", "doctor", "values", "bench"},
    {"commands"},
    {"cli", "testing"},
    {"__main__"},
]
LEVEL = {room: level for level, layer in enumerate(LAYERS) for room in layer}
USE_MPI = {
    f"cec_mpi.runtime.{name}"
    for name in (
        "launch",
        "places",
        "leaving",
        "collective",
        "messages",
        "answering",
        "peers",
        "spawning",
        "parallel",
    )
}
USE_SCIPY_IN_CORE = {f"cec_mpi.core.{name}" for name in ("mds", "decoder", "recombine", "replan")}
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


def wrong_imports(module, source):
    """What this module imports and may not, as texts."""
    wrong = []
    for found in imports_of(source):
        reasons = []
        if found.of("cec_mpi") and found.name not in ("cec_mpi", "cec_mpi.__version__"):
            if room_of(found.name) not in LEVEL:
                reasons.append("is no module of a known layer")
            elif LEVEL[room_of(found.name)] > LEVEL[room_of(module)]:
                reasons.append("points up")
        if found.name.startswith("."):
            reasons.append("is relative")
        if found.of("mpi4py.MPI") and not (found.for_types or module in USE_MPI):
            reasons.append("is MPI")
        if room_of(module) == "core":
            if any(found.of(name) for name in NOT_IN_CORE):
                reasons.append("is no mathematics")
            if found.of("scipy") and not (module in USE_SCIPY_IN_CORE and found.in_function):
                reasons.append("is SciPy")
        if room_of(module) == "tasks" and found.of("cec_mpi.runtime"):
            reasons.append("is the runtime")
        wrong += [f"{module}:{found.line}: {found.name} {reason}" for reason in reasons]
    return wrong


def name_of(path):
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}
del MODULES["cec_mpi"]  # it imports on demand


@pytest.mark.parametrize("module", MODULES)
def test_no_module_imports_what_it_may_not(module):
    assert room_of(module) in LEVEL
    assert wrong_imports(module, MODULES[module].read_text()) == []


def test_the_package_itself_imports_nothing_until_it_is_asked():
    found = imports_of((ROOT / "__init__.py").read_text())
    at_once = {each.name.split(".")[0] for each in found if not each.for_types}
    assert at_once <= {"__future__", "importlib", "logging", "typing"}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("cec_mpi.errors", "import cec_mpi.core.load"),
        ("cec_mpi.core.load", "from cec_mpi.store import encode"),
        ("cec_mpi.core.load", "from cec_mpi import store"),
        ("cec_mpi.core.load", "from cec_mpi import encode"),
        ("cec_mpi.core.load", "if TYPE_CHECKING:\n    from cec_mpi.records import Recorder"),
        ("cec_mpi.core.load", "def late():\n    from cec_mpi.cli import main"),
        ("cec_mpi.core.load", "from .. import errors"),
        ("cec_mpi.core.load", "import os"),
        ("cec_mpi.core.load", "import os.path"),
        ("cec_mpi.core.load", "from time import sleep"),
        ("cec_mpi.core.load", "def late():\n    import logging"),
        ("cec_mpi.core.load", "def late():\n    from scipy import linalg"),
        ("cec_mpi.core.mds", "from scipy import linalg"),
        ("cec_mpi.records", "from cec_mpi.runtime.master import Master"),
        ("cec_mpi.runtime.master", "from cec_mpi.tasks import power"),
        ("cec_mpi.runtime.master", "from mpi4py import MPI"),
        ("cec_mpi.runtime.session", "import mpi4py.MPI"),
        ("cec_mpi.doctor", "def late():\n    from mpi4py import MPI"),
        ("cec_mpi.tasks.power", "from cec_mpi.runtime.master import Master"),
        ("cec_mpi.tasks.power", "def late():\n    from mpi4py.MPI import COMM_WORLD"),
        ("cec_mpi.job", "from cec_mpi.cli import main"),
        ("cec_mpi.job", "import cec_mpi.unheard_of"),
    ],
)
def test_these_rules_find_what_breaks_them(module, source):
    assert len(wrong_imports(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("cec_mpi.core.load", "import math\nfrom cec_mpi.errors import InputError"),
        ("cec_mpi.core.mds", "def late():\n    from scipy.linalg import lapack"),
        ("cec_mpi.runtime.launch", "from mpi4py import MPI"),
        ("cec_mpi.job", "if TYPE_CHECKING:\n    from mpi4py import MPI"),
        ("cec_mpi.store.encoder", "import cec_mpi\nfrom cec_mpi import __version__"),
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
    assert not any(name.startswith("cec_mpi.runtime") for name in loaded)


COMMAND = "import sys; from cec_mpi.cli import main; assert main(sys.argv[1:]) == 0"
PLAN = ["plan", "--speeds", "1,2,3", "--recovery", "2", "--rows", "60", "--exact", "--json"]


def test_planning_loads_neither_mpi_nor_scipy():
    assert not loaded_after(COMMAND, *PLAN) & {"mpi4py.MPI", "scipy"}


def test_a_machine_that_runs_a_task_loads_no_scipy():
    """Reading it takes longer than all else that a machine does before its first step."""
    loaded = loaded_after("import cec_mpi.job, cec_mpi.runtime.serving")
    assert "numpy" in loaded
    assert "scipy" not in loaded


def test_what_one_process_does_never_starts_mpi(tmp_path):
    X, store, out = tmp_path / "X.npy", tmp_path / "store", tmp_path / "out"
    np.save(X, np.ones((6, 6)))
    for words in (
        ["encode", X, store, "--machines", 3, "--recovery", 2],
        ["info", store],
        ["verify", store],
        ["run", store, "--out", out, "--serial", "--task", "power"],
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
    for script in (Path(__file__).parents[1] / "scripts").glob("*.py"):
        for found in imports_of(script.read_text()):
            module, _, name = found.name.rpartition(".")
            if found.of("cec_mpi") and module:
                wanted.add(f"from {module} import {name}")
    assert len(wanted) > 10
    loaded_after("\n".join(sorted(wanted)))
