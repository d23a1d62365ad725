"""The demo shows the paper's four steps."""

from __future__ import annotations

import re
import sys

import pytest

from helpers import ROOT

pytestmark = pytest.mark.any_mpi

DEMO = ROOT / "scripts" / "demo.py"

GOLDEN = [
    ("1 2 3 4 5 6", "140 140 210 210 280 280"),
    ("1 2 3 5 6", "168 168 252 - 336 336"),
    ("1 2 3 5", "240 240 360 - 420 -"),
    ("2 3 5", "- 420 420 - 420 -"),
]


def test_the_demo_shows_the_four_steps_of_the_paper(run, tmp_path):
    options = ["--rows", 1260, "--columns", 20, "--repeats", 2, "--keep", tmp_path / "kept"]
    done = run([sys.executable, DEMO, *options], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    table = [line for line in done.stdout.splitlines() if re.match(r" +\d  ", line)]
    assert len(table) == 4
    for number, (line, (available, rows)) in enumerate(zip(table, GOLDEN, strict=True), start=1):
        step, machines, shares, *_, speed_up, error = re.split(r" {2,}", line.strip())
        assert (int(step), machines, shares) == (number, available, rows)
        assert float(speed_up) > 0
        assert float(error) < 1e-10
    assert {"heterogeneous", "cyclic", "store"} <= {p.name for p in (tmp_path / "kept").iterdir()}
