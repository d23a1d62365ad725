"""Links from the Python reference to other projects."""

from __future__ import annotations

import io
import re

import pytest

from helpers import ROOT

sphinx = pytest.importorskip("sphinx.application")
docutils = pytest.importorskip("sphinx.util.docutils")

NAMES = {
    "numpy": ["numpy.typing.ArrayLike"],
    "scipy": ["scipy.sparse.linalg.LinearOperator", "scipy.sparse.linalg.svds"],
    "mpi4py": ["mpi4py.MPI.Intracomm"],
}


def write_inventory(path, project):
    """Write a Sphinx inventory with the names of a project; return its path."""
    lines = [f"{name} class {name}.html\n" for name in NAMES[project]]
    path.write_text(
        f"# Sphinx inventory version 1\n# Project: {project}\n# Version: 1\n{''.join(lines)}"
    )
    return str(path)


def test_names_of_other_projects_are_links(tmp_path):
    (tmp_path / "index.rst").write_text(
        "X\n=\n\nUse `scipy.sparse.linalg.svds`.\n\n"
        ".. currentmodule:: cec_mpi\n\n.. autofunction:: open_operator\n"
        ".. autoclass:: cec_mpi.core.code.mds.MDSCode\n"
    )
    warnings, out = io.StringIO(), tmp_path / "out"
    directories = [str(tmp_path), str(ROOT / "docs"), str(out), str(tmp_path / "doctrees")]
    inventories = {
        project: (f"https://{project}.org", write_inventory(tmp_path / project, project))
        for project in NAMES
    }
    settings = {"intersphinx_mapping": inventories}
    with docutils.docutils_namespace():  # Sphinx registers its directives again
        sphinx.Sphinx(*directories, "html", settings, status=None, warning=warnings).build()
    assert not warnings.getvalue()
    links = re.findall(r'href="https://(\w+)\.org/([\w.]+)\.html', (out / "index.html").read_text())
    assert set(links) == {(project, name) for project in NAMES for name in NAMES[project]}
