"""Commands of the pages about Slurm run, and write the scripts in scripts/slurm."""

from __future__ import annotations

import subprocess

import pytest

from helpers import ROOT
from helpers.pages import find_blocks

pytestmark = [pytest.mark.any_mpi, pytest.mark.needs("slurm")]
LIMIT = 240  # seconds for a block; sbatch --wait polls at intervals of up to 30 s


def run_page(slurm, name):
    for block in find_blocks((ROOT / "docs" / name).read_text("utf-8")):
        assert block.kind == "sh"
        try:
            printed = slurm.run("bash", "-e", "-o", "pipefail", "-c", block.text, limit=LIMIT)
        except subprocess.TimeoutExpired:
            outputs = [path.read_text() for path in slurm.directory.glob("slurm-*.out")]
            raise AssertionError(f"line {block.line}: {slurm.jobs()}, {outputs}") from None
        assert printed == block.output, f"line {block.line}"


def test_the_example_of_the_gallery_is_preempted_and_continues(slurm):
    run_page(slurm, "gallery/slurm.md")


def test_the_page_runs_from_top_to_bottom(slurm):
    run_page(slurm, "howto/slurm.md")
    examples = {path for path in (ROOT / "scripts" / "slurm").iterdir() if path.suffix}
    assert examples
    for path in examples:
        assert (slurm.directory / path.name).read_text() == path.read_text()
