"""A report of machines with several shards."""

import base64
import json

import numpy as np
import pytest

import cec_mpi
from cec_mpi.cli import main
from cec_mpi.core.plan.placement import Placement
from cec_mpi.core.plan.planner import plan_placed
from cec_mpi.errors import InputError
from cec_mpi.records.recorder import read_steps
from cec_mpi.report.gathered import Run


@pytest.fixture
def made(tmp_path):
    """A run of machines with 4, 2 and 1 shards, of which three are enough."""
    np.save(tmp_path / "X.npy", np.random.default_rng(0).standard_normal((2100, 20)))
    cec_mpi.encode(tmp_path / "X.npy", tmp_path / "store", 7, 3)
    words = ["run", str(tmp_path / "store"), "--out", str(tmp_path / "out"), "--serial", "-q"]
    more = ["--shards-per-machine", "4,2,1", "--speeds", "2,1,1", "svd", "k=2"]
    assert main([*words, *more]) == 0
    return tmp_path / "out"


def test_the_cyclic_assignment_is_that_of_shards(made):
    run = Run(made)
    _, steps = read_steps(made / "steps.jsonl")
    placement, everyone = Placement((4, 2, 1), 7), (1, 2, 3)
    loads = plan_placed(placement, everyone, (1, 1, 1), 3, 700, scheme="cyclic").counts(3)
    slowest = [
        max(t / m * load for t, m, load in zip(step["seconds"], step["rows"], loads, strict=True))
        for step in steps
    ]
    assert run.costs.compared == len(steps)
    assert run.costs.cyclic == pytest.approx(sum(slowest), rel=0.01)  # but for single rows
    cells = np.frombuffer(base64.b64decode(run.bins.cells()), np.uint8).reshape(3, -1)
    shares = np.array(steps[0]["rows"]) / (700 * np.array([4, 2, 1]))
    assert cells[:, 0].tolist() == (16 + np.rint(shares * 239)).tolist()


def test_assignments_are_not_drawn_and_the_page_says_so(made, tmp_path):
    assert Run(made).assignments.chosen() == []
    assert main(["report", str(made), "--out", str(tmp_path / "page.html")]) == 0
    assert "Machines have several shards" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("wrong", [[[1]], "1", [[1], [], [2]], [[1], 2, [3]]])
def test_a_header_that_cannot_be_is_refused(made, wrong):
    file = made / "steps.jsonl"
    header, *lines = file.read_text().splitlines()
    header = json.loads(header) | {"shards_of_machine": wrong}
    file.write_text("\n".join([json.dumps(header), *lines, ""]))
    with pytest.raises(InputError, match="shards_of_machine"):
        Run(made)
