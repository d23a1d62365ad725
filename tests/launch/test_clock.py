"""A clock that is set by hours during a run changes no times, rates or limits."""

from __future__ import annotations

import csv
import json
from datetime import datetime, timedelta

import pytest

from helpers.needs import FAKETIME

pytestmark = [pytest.mark.needs("faketime"), pytest.mark.any_mpi]

SETS = """
import os, numpy as np
def sets_the_clock(X, *, checkpoint):
    for hours in (0, 5, 5, -5, -5, 0):
        with open(os.environ["FAKETIME_TIMESTAMP_FILE"], "w") as file:
            file.write(f"{hours:+}h")
        y = X @ np.ones(X.shape[1])
        checkpoint.save(y=y)
    return {"result": y}
"""


def test_recorded_times_ascend_although_the_clock_is_set(cec, small_store, tmp_path):
    (tmp_path / "tasks.py").write_text(SETS)
    (tmp_path / "clock").write_text("+0h")
    variables = {
        "LD_PRELOAD": FAKETIME,
        "FAKETIME_TIMESTAMP_FILE": str(tmp_path / "clock"),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "PYTHONPATH": str(tmp_path),
    }
    words = ["run", small_store.path, "--out", "out", "--serial", "tasks:sets_the_clock"]
    done = cec(*words, "--time-limit", 3600, cwd=tmp_path, variables=variables)
    assert done.returncode == 0, done.stderr

    lines = [json.loads(line) for line in (tmp_path / "out/steps.jsonl").read_text().splitlines()]
    moments = [line["started"] for line in lines if line["kind"] == "header"]
    moments += [line["time"] for line in lines if line["kind"] == "step"]
    times = list(map(datetime.fromisoformat, moments))
    assert len(times) == 7
    assert times == sorted(times)
    assert times[-1] - times[0] < timedelta(hours=1)

    assert cec("report", "out", "--csv", "steps.csv", cwd=tmp_path).returncode == 0
    with (tmp_path / "steps.csv").open() as file:
        elapsed = [float(row["time"]) for row in csv.DictReader(file)]
    assert elapsed == sorted(elapsed)
    assert 0 <= elapsed[0] <= elapsed[-1] < 3600
