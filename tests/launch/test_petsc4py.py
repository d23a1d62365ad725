"""The program of the petsc4py page runs where petsc4py is installed."""

from __future__ import annotations

import re
import sys

import pytest

from helpers import ROOT
from helpers.pages import find_blocks

PAGE = (ROOT / "docs" / "ecosystem" / "petsc4py.md").read_text("utf-8")
(PROGRAM,) = re.findall(r"^:::\{code-block\} python\n(# solve\.py\n.*?)^:::$", PAGE, re.M | re.S)


@pytest.mark.any_mpi
def test_petsc_solves_with_a_store(run, tmp_path):
    pytest.importorskip("petsc4py", reason="petsc4py is not installed: PyPI has only its sources")
    (module,) = (block for block in find_blocks(PAGE) if block.kind == "module")
    (tmp_path / "shell.py").write_text(module.text)
    (tmp_path / "solve.py").write_text(PROGRAM)
    assert run([sys.executable, "shell.py"], cwd=tmp_path).returncode == 0
    done = run(["mpirun", "-n", 5, sys.executable, "solve.py"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "True True\n"


def test_the_program_of_the_page_is_python():
    compile(PROGRAM, "solve.py", "exec")
