"""Every name of this package that README.md and docs show is there."""

from __future__ import annotations

import ast
import pkgutil
import re
import subprocess
import sys
import types

import pytest

import cec_mpi
from helpers import ROOT
from helpers.pages import pages_of_docs

PAGES = [ROOT / "README.md", *pages_of_docs(".md", ".rst")]
FENCE = re.compile(r"^(```|~~~)(\w*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
NAME = re.compile(r"(?<![\w/])cec_mpi(?:\.[A-Za-z_]\w*)+")
IMPORT = re.compile(r"^\s*from (cec_mpi[\w.]*) import ([\w, ]+)$", re.MULTILINE)
LIST = re.compile(r"`cec_mpi\.(\w+)`((?:,\s+`\w+`|\s+and\s+`\w+`)+)")


def names_of(page):
    """What a page names: in its programs, and in the code within its text."""
    names = set()
    for _, language, text in FENCE.findall(page):
        if language == "python":
            names |= names_of_program(text)
        for module, wanted in IMPORT.findall(text):
            names.update(f"{module}.{name}" for name in re.findall(r"\w+", wanted))
    prose = FENCE.sub("", page)
    for code in CODE.findall(prose):
        names.update(NAME.findall(" ".join(code.split())))
    for _, others in LIST.findall(prose):
        names.update(f"cec_mpi.{name}" for name in re.findall(r"\w+", others) if name != "and")
    return names - {"cec_mpi"}


def names_of_program(text):
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("cec_mpi."):
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            names.update(a.name for a in node.names if f"{a.name}.".startswith("cec_mpi."))
        elif isinstance(node, ast.Attribute):
            names.update(NAME.findall(ast.unparse(node)))
    return names


NAMES = sorted(
    {
        (str(page.relative_to(ROOT)), name)
        for page in PAGES
        for name in names_of(page.read_text("utf-8"))
    }
)


@pytest.mark.parametrize(("page", "name"), NAMES)
def test_every_name_that_a_page_shows_is_there(page, name):
    """A program gets it that imports the package, or the module, and writes this."""
    assert pkgutil.resolve_name(name) is not None


def test_what_the_package_offers_is_documented():
    """All of ``from cec_mpi import *``, which brings nothing else."""
    shown = {name.split(".")[1] for _, name in NAMES}
    assert set(cec_mpi.__all__) <= shown
    scope = {}
    exec("from cec_mpi import *", scope)
    assert set(scope) - {"__builtins__"} == set(cec_mpi.__all__)


@pytest.mark.parametrize(
    "module",
    [name for name in cec_mpi.__all__ if isinstance(getattr(cec_mpi, name), types.ModuleType)],
)
def test_its_modules_are_there_at_once_without_mpi_and_scipy(module):
    program = (
        f"import cec_mpi, sys; cec_mpi.{module}.__all__; "
        "assert not {'mpi4py.MPI', 'scipy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_dir_says_what_there_is():
    listed = dir(cec_mpi)
    assert listed == sorted(set(listed))
    assert {*cec_mpi.__all__, "__version__", "__doc__", "__all__"} <= set(listed)
    assert {name for name in listed if not name.startswith("_")} == set(cec_mpi.__all__)
    for name in listed:
        getattr(cec_mpi, name)


# --- files --------------------------------------------------------------------------------

FILE = re.compile(r"(?:cec_mpi|docs|hostfiles|scripts|tests|\.ci)/[\w./*-]*[\w*]")
FILES = [
    (str(page.relative_to(ROOT)), name)
    for page in [ROOT / "CONTRIBUTING.md", *PAGES]
    for name in sorted(set(FILE.findall(page.read_text("utf-8"))))
    if not name.startswith("docs/_build/")  # made by scripts/docs
]


def test_files_that_pages_name_are_there():
    found = {name for _, name in FILES if "*" not in name and (ROOT / name).exists()}
    found |= {name for _, name in FILES if "*" in name and any(ROOT.glob(name))}
    assert [(page, name) for page, name in FILES if name not in found] == []


def test_files_that_the_script_of_tests_names_are_there():
    written = re.findall(r"\btests/[\w./{},]*[\w}]", (ROOT / "scripts" / "test").read_text("utf-8"))
    expanded = subprocess.check_output(["bash", "-c", f"echo {' '.join(written)}"], text=True)
    assert len(expanded.split()) > len(written) > 5
    assert [name for name in expanded.split() if not (ROOT / name).exists()] == []
