"""The commands on the page about several hosts print what the page shows."""

import re
import subprocess

import pytest

from helpers import ROOT
from helpers.commands import environment
from helpers.mpi_at_hand import ONE_HOST_ONLY
from helpers.pages import find_blocks
from helpers.waiting import LIMIT

pytestmark = pytest.mark.needs("hosts", "openmpi")


def without_numbers(map_lines: str) -> list[list[str]]:
    """Return the words of each line without the cores and threads of this computer."""
    return [re.sub(r"(node\d) +\d+ +\d+", r"\1", line).split() for line in map_lines.splitlines()]


def run_locally(args, cwd):
    """Run a command on this computer; the hosts that it starts may outlive it."""
    variables = environment(OMPI_MCA_mpi_yield_when_idle="1")
    for name in ONE_HOST_ONLY:
        variables.pop(name, None)
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(args, cwd=cwd, env=variables, text=True, timeout=LIMIT, **pipes)


def test_the_page_runs_from_top_to_bottom(tmp_path):
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    try:
        for block in find_blocks((ROOT / "docs" / "howto" / "hosts.md").read_text("utf-8")):
            on_node1 = ["scripts/hosts", "on", "net", "node1"]
            prefix = [] if block.text.startswith("scripts/hosts") else on_node1
            command = [*prefix, "bash", "-e", "-o", "pipefail", "-c", block.text]
            result = run_locally(command, cwd=tmp_path)
            assert result.returncode == 0, f"line {block.line}: {result.stderr}"
            assert without_numbers(result.stdout) == without_numbers(block.output), block.text
    finally:
        if (tmp_path / "net").exists():
            run_locally(["scripts/hosts", "down", "net"], cwd=tmp_path)
