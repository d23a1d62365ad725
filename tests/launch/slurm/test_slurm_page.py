"""What docs/howto/slurm.md shows runs, and writes the scripts that are in scripts/slurm."""

from __future__ import annotations

import pytest

from helpers import ROOT
from helpers.pages import blocks_of

pytestmark = [pytest.mark.needs("slurm"), pytest.mark.timeout(300)]  # several jobs, one by one


def test_the_page_runs_from_top_to_bottom(desk):
    for block in blocks_of((ROOT / "docs" / "howto" / "slurm.md").read_text()):
        assert block.kind == "sh"
        printed = desk.run("bash", "-e", "-o", "pipefail", "-c", block.text)
        assert printed == block.printed, f"line {block.line}"
    examples = {path for path in (ROOT / "scripts" / "slurm").iterdir() if path.suffix}
    assert examples
    for path in examples:
        assert (desk.directory / path.name).read_text() == path.read_text()
