"""The table of what happens to machines is what the code does; deadlines."""

from __future__ import annotations

import math

import pytest

from cec_mpi.core.elastic import losses
from cec_mpi.core.elastic.losses import (
    Cause,
    Consequence,
    Deadline,
    State,
    react,
    seconds_until_given_up,
    seconds_until_late,
)


def rows_of_table():
    """Yield cause, state, new state and consequence of each row of the docstring."""
    lines = losses.__doc__.splitlines()
    edges = [place for place, line in enumerate(lines) if line.startswith("====")]
    ends = [0, *(k for k, sign in enumerate(lines[edges[0]]) if sign == " ")]
    cuts = [end for end in ends if end == 0 or lines[edges[0]][end + 1 : end + 2] == "="]
    for line in lines[edges[1] + 1 : edges[2]]:
        cause, state, after, consequence = (
            line[a:b].strip() for a, b in zip(cuts, [*cuts[1:], None], strict=True)
        )
        for each in State if state == "any" else [State(state)]:
            yield Cause(cause), each, State(after), Consequence(consequence)


@pytest.mark.parametrize(("cause", "state", "after", "consequence"), list(rows_of_table()))
def test_the_table_says_what_follows(cause, state, after, consequence):
    assert react(cause, state) == (after, consequence)


def test_the_table_has_all_causes_and_what_it_lacks_changes_nothing():
    listed = {(cause, state) for cause, state, *_ in rows_of_table()}
    assert {cause for cause, _ in listed} == set(Cause)
    for cause in Cause:
        for state in set(State) - {state for each, state in listed if each is cause}:
            assert react(cause, state) == (state, Consequence.NOTHING)


def test_a_machine_is_late_after_the_longer_of_what_others_took_and_what_was_predicted():
    deadline = Deadline(factor=2.0, min_seconds=0.0)
    assert seconds_until_late(None, [1.0], 1.0) is None
    assert seconds_until_late(deadline, [], None) is None
    assert seconds_until_late(deadline, [1.0, 2.0, 9.0], None) == 4.0
    assert seconds_until_late(deadline, [1.0], 3.0) == 6.0
    assert seconds_until_late(Deadline(factor=2.0, min_seconds=9.0), [1.0], None) == 9.0
    assert seconds_until_late(Deadline(seconds=0.5), [], None) == 0.5


def test_a_machine_is_given_up_after_ten_deadlines_and_five_seconds():
    assert seconds_until_given_up(None, 1.0) == math.inf
    assert seconds_until_given_up(Deadline(), None) == math.inf
    assert seconds_until_given_up(Deadline(), 0.1) == 5.0
    assert seconds_until_given_up(Deadline(), 2.0) == 20.0
    assert seconds_until_given_up(Deadline(seconds=3.0), 2.0) == 30.0
