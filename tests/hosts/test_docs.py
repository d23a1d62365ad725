"""The commands of the page about several hosts print what the page shows."""

import re

import pytest

from helpers import ROOT
from helpers.pages import blocks_of

pytestmark = pytest.mark.needs("hosts", "openmpi")


def without_numbers(map_lines: str) -> list[list[str]]:
    """Return the words of each line without cores and threads, which depend on the computer."""
    return [re.sub(r"(node\d) +\d+ +\d+", r"\1", line).split() for line in map_lines.splitlines()]


def test_the_page_runs_from_top_to_bottom(run_here, tmp_path):
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    try:
        for block in blocks_of((ROOT / "docs" / "howto" / "hosts.md").read_text("utf-8")):
            login = ["scripts/hosts", "on", "net", "node1"]
            where = [] if block.text.startswith("scripts/hosts") else login
            command = [*where, "bash", "-e", "-o", "pipefail", "-c", block.text]
            done = run_here(command, cwd=tmp_path)
            assert done.returncode == 0, f"line {block.line}: {done.stderr}"
            assert without_numbers(done.stdout) == without_numbers(block.printed), block.text
    finally:
        if (tmp_path / "net").exists():
            run_here(["scripts/hosts", "down", "net"], cwd=tmp_path)
