"""What the page about several hosts shows runs on several hosts, and prints what it says."""

import re
from pathlib import Path

import pytest

pytestmark = [pytest.mark.needs("hosts"), pytest.mark.needs("openmpi")]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "hosts.md").read_text()
BLOCK = re.compile(r"```sh\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)


def without_numbers(map_lines: str) -> list[list[str]]:
    """Words of each line, but for cores and threads, which are those of this computer."""
    return [re.sub(r"(node\d) +\d+ +\d+", r"\1", line).split() for line in map_lines.splitlines()]


def test_the_page_runs_from_top_to_bottom(run_here, tmp_path):
    assert PAGE.count("```") == sum(2 + 2 * bool(printed) for _, printed in BLOCK.findall(PAGE))
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    try:
        for text, printed in BLOCK.findall(PAGE):
            login = ["scripts/hosts", "on", "net", "node1"]
            where = [] if text.startswith("scripts/hosts") else login
            done = run_here([*where, "bash", "-e", "-o", "pipefail", "-c", text], cwd=tmp_path)
            assert done.returncode == 0, f"{text}: {done.stderr}"
            assert without_numbers(done.stdout) == without_numbers(printed), text
    finally:
        if (tmp_path / "net").exists():
            run_here(["scripts/hosts", "down", "net"], cwd=tmp_path)
