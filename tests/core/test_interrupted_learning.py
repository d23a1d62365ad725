"""Interrupts while speeds are updated: inconsistent estimates are discarded."""

import math

import numpy as np
import pytest

from cec_mpi.core.demand import CodedDemand
from cec_mpi.core.speeds import SpeedEstimator
from helpers.interrupts import interrupt_at_line

SPEEDS = np.array([1.0, 2.0, 3.0, 4.0])
MACHINES, SOME = (1, 2, 3, 4), (1, 3, 4)
MACHINES_PER_ROW, ROWS = 2, 600
MAX_LINES = 400


def run_step(speeds, available):
    plan_speeds = np.array(speeds.plan_speeds(available))
    assert np.isfinite(plan_speeds).all()
    loads, indices = np.zeros(len(SPEEDS)), np.array(available) - 1
    shares = plan_speeds[indices] / plan_speeds[indices].sum()
    loads[indices] = ROWS * MACHINES_PER_ROW * shares
    speeds.observe("matvec", loads, loads / SPEEDS)
    assert speeds.bound("matvec", available) > 0


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("steps", "available"), [(0, MACHINES), (3, SOME)])
def test_speeds_are_estimated_after_an_interrupt_at_any_line(steps, available):
    for line in range(MAX_LINES):
        speeds = SpeedEstimator(CodedDemand(len(SPEEDS), MACHINES_PER_ROW, ROWS))
        for _ in range(steps):
            run_step(speeds, MACHINES)
        was_interrupted = interrupt_at_line(
            line,
            "core/speeds",
            lambda: run_step(speeds, available),  # noqa: B023
        )
        for _ in range(4):
            run_step(speeds, available)
            run_step(speeds, MACHINES)
        plan_speeds = np.array(speeds.plan_speeds(MACHINES))
        assert plan_speeds / plan_speeds[0] == pytest.approx(SPEEDS, rel=0.05)
        assert math.isfinite(speeds.scale)
        if not was_interrupted:
            break
    assert not was_interrupted
    assert line > 20
