"""Parts of the time of a run, which add up, and its longest steps."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi.report.breakdown import (
    format_sum,
    longest_steps,
    parts_by_bin,
    step_parts,
    time_breakdown,
)
from cec_mpi.report.recorded_run import Run
from helpers.steps import step_of

LATE = [{"late": 4}]


def digits(text):
    """Return a time as a multiple of its last digit."""
    if "min" in text:
        return sum(
            int(n) * {"h": 3600, "min": 60, "s": 1}[u] for n, u in re.findall(r"(\d+) (\w+)", text)
        )
    return round(float(text.split()[0]) * 1000)


@given(st.lists(st.floats(0, 3000) | st.floats(0, 0.5), max_size=7))
def test_rounded_terms_add_up_to_the_rounded_sum(seconds):
    total, texts = format_sum(seconds)
    if all(("min" in text) == ("min" in total) for text in texts):
        assert sum(map(digits, texts)) == digits(total)
    assert len(texts) == len(seconds)


def test_a_run_is_the_sum_of_its_parts(make_run):
    """10 steps of 0.216 s in 10 s; 0.1 s of reading in the first, a stall of 0.5 s in the last."""
    reading = {"load_seconds": [0.0, 0.0, 0.1, 0.0], "load_bytes": [0, 0, 80, 0]}
    no_reading = {"load_seconds": [0.0] * 4, "load_bytes": [0] * 4}
    steps = [step_of(0, **reading, collect_seconds=0.31)]
    steps += [step_of(n, **no_reading) for n in range(1, 9)]
    steps.append(step_of(9, **no_reading, collect_seconds=0.71, events=LATE, delays={4: 0.5}))
    found = time_breakdown(Run(str(make_run(steps))))
    texts = {part["part"]: part["text"] for part in found["parts"]}
    assert texts == {
        "compute": "2.00 s",
        "load": "0.10 s",
        "communication": "0.16 s",
        "stall": "0.50 s",
        "outside": "7.24 s",
    }
    assert sum(part["share"] for part in found["parts"]) == pytest.approx(1)


def test_the_longest_step_of_a_bin_is_kept(make_run):
    """One of 1,000 steps of 0.2 s is stalled for 3 s."""
    steps = [step_of(n) for n in range(1000)]
    steps[500] = step_of(500, collect_seconds=3.21, events=LATE, delays={4: 3.0})
    run = Run(str(make_run(steps)))
    assert [step["step"] for step in longest_steps(run)[:2]] == [500, 0]
    assert longest_steps(run)[0]["parts"]["stall"] == pytest.approx(3)
    for width in (1, 4, 64):
        found = parts_by_bin(run, width)
        key = "value" if width == 1 else "longest"
        assert max(found["stall"][key]) == pytest.approx(3)
        assert found["stall"][key].index(max(found["stall"][key])) == 500 // width
        parts = step_parts(run)
        total = sum(parts.values())
        for bin_ in range(-(-1000 // width)):
            bin_steps = slice(bin_ * width, (bin_ + 1) * width)
            longest = bin_ * width + int(np.argmax(total[bin_steps]))
            assert sum(part[key][bin_] for part in found.values()) == pytest.approx(total[longest])
            if width > 1:
                assert found["compute"]["median"][bin_] == pytest.approx(0.2)


def test_a_clock_that_is_set_back_makes_no_part_negative(make_run):
    steps = [step_of(n, time="2026-01-02T03:04:05.100+00:00") for n in range(5)]
    found = time_breakdown(Run(str(make_run(steps))))
    assert {part["part"] for part in found["parts"]} == {"compute", "communication"}
    assert sum(part["seconds"] for part in found["parts"]) == pytest.approx(1.08)
