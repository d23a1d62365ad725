"""Names and files that README.md, CONTRIBUTING.md and docs mention exist."""

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
from helpers.pages import find_pages

PAGES = [ROOT / "README.md", *find_pages(".md", ".rst")]
FENCE = re.compile(r"^(```|~~~)(\w*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
NAME = re.compile(r"(?<![\w/])cec_mpi(?:\.[A-Za-z_]\w*)+")
IMPORT = re.compile(r"^\s*from (cec_mpi[\w.]*) import ([\w, ]+)$", re.MULTILINE)
LIST = re.compile(r"`cec_mpi\.(\w+)`((?:,\s+`\w+`|\s+and\s+`\w+`)+)")


def find_names(page):
    """Return the names in the programs of a page and in the code within its text."""
    names = set()
    for _, language, text in FENCE.findall(page):
        if language == "python":
            names |= find_program_names(text)
        for module, listed in IMPORT.findall(text):
            names.update(f"{module}.{name}" for name in re.findall(r"\w+", listed))
    prose = FENCE.sub("", page)
    for code in CODE.findall(prose):
        names.update(NAME.findall(" ".join(code.split())))
    for _, listed in LIST.findall(prose):
        names.update(f"cec_mpi.{name}" for name in re.findall(r"\w+", listed) if name != "and")
    return names - {"cec_mpi"}


def find_program_names(text):
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
        for name in find_names(page.read_text("utf-8"))
    }
)


@pytest.mark.parametrize(("page", "name"), NAMES)
def test_every_name_on_a_page_exists(page, name):
    """A program that imports the package or the module can use it."""
    assert pkgutil.resolve_name(name) is not None


def test_all_public_names_are_documented():
    """``from cec_mpi import *`` imports these names and no others."""
    shown = {name.split(".")[1] for _, name in NAMES}
    assert set(cec_mpi.__all__) <= shown
    scope = {}
    exec("from cec_mpi import *", scope)
    assert set(scope) - {"__builtins__"} == set(cec_mpi.__all__)


@pytest.mark.parametrize(
    "module",
    [name for name in cec_mpi.__all__ if isinstance(getattr(cec_mpi, name), types.ModuleType)],
)
def test_public_modules_load_neither_mpi_nor_scipy(module):
    program = (
        f"import cec_mpi, sys; cec_mpi.{module}.__all__; "
        "assert not {'mpi4py.MPI', 'scipy'} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def test_dir_lists_all_public_names():
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


def test_files_that_pages_mention_exist():
    found = {name for _, name in FILES if "*" not in name and (ROOT / name).exists()}
    found |= {name for _, name in FILES if "*" in name and any(ROOT.glob(name))}
    assert [(page, name) for page, name in FILES if name not in found] == []


def test_files_that_the_test_script_mentions_exist():
    listed = re.findall(r"\btests/[\w./{},]*[\w}]", (ROOT / "scripts" / "test").read_text("utf-8"))
    expanded = subprocess.check_output(["bash", "-c", f"echo {' '.join(listed)}"], text=True)
    assert len(expanded.split()) > len(listed) > 5
    assert [name for name in expanded.split() if not (ROOT / name).exists()] == []
