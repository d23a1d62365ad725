"""Ctrl-C while speeds are learned or planned with: what is not known whole is learned again."""

import math

import numpy as np
import pytest

from cec_mpi.core.demand import CodedDemand
from cec_mpi.core.speeds import SpeedEstimator
from helpers.interrupts import interrupted

SPEEDS = np.array([1.0, 2.0, 3.0, 4.0])
EVERYONE, OTHERS = (1, 2, 3, 4), (1, 3, 4)
COPIES, ROWS = 2, 600
FAR = 400  # lines


def make_step(speeds, available):
    """Plan and learn; the machines take as long as they are slow."""
    planned = np.array(speeds.plan_speeds(available))
    assert np.isfinite(planned).all()
    loads = np.zeros(len(SPEEDS))
    which = np.array(available) - 1
    loads[which] = ROWS * COPIES * planned[which] / planned[which].sum()
    speeds.observe("matvec", loads, loads / SPEEDS)
    assert speeds.bound("matvec", available) > 0


def learned(speeds):
    found = np.array(speeds.plan_speeds(EVERYONE))
    return found / found[0]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("known", [0, 3])
@pytest.mark.parametrize("available", [EVERYONE, OTHERS])
def test_a_step_cut_off_at_any_line_leaves_speeds_that_are_learned_again(known, available):
    for place in range(FAR):
        speeds = SpeedEstimator(CodedDemand(len(SPEEDS), COPIES, ROWS))
        for _ in range(known):
            make_step(speeds, EVERYONE)
        cut = interrupted(place, "core/speeds", lambda: make_step(speeds, available))  # noqa: B023
        for _ in range(4):
            make_step(speeds, available)
            make_step(speeds, EVERYONE)
        assert learned(speeds) == pytest.approx(SPEEDS, rel=0.05)
        assert math.isfinite(speeds.scale)
        if not cut:
            break
    assert not cut
    assert place > 20
