"""The programs on the pages about Dask and Ray print what the pages show."""

from __future__ import annotations

from tempfile import TemporaryDirectory

import pytest

from helpers import ROOT
from helpers.pages import find_blocks

pytestmark = pytest.mark.any_mpi

SETTINGS = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


@pytest.mark.parametrize("engine", ["dask", pytest.param("ray", marks=pytest.mark.needs("ray"))])
def test_the_page_runs_from_top_to_bottom(run, tmp_path, engine):
    program, command = find_blocks((ROOT / "docs" / "howto" / f"{engine}.md").read_text("utf-8"))
    assert program.text.count("\n") <= 20
    (tmp_path / program.name).write_text(program.text)
    with TemporaryDirectory(prefix="ray", dir="/tmp") as scratch:  # Ray's sockets need short names
        settings = {**SETTINGS, "RAY_TMPDIR": scratch, "DASK_TEMPORARY_DIRECTORY": scratch}
        result = run(["bash", "-e", "-c", command.text], cwd=tmp_path, variables=settings)
    assert result.returncode == 0, (tmp_path / "notes.txt").read_text()
    assert result.stdout == command.output, (tmp_path / "notes.txt").read_text()
