"""The documented transitions of machines are those of the code; deadlines."""

from __future__ import annotations

import math

from cec_mpi.core.elastic import states
from cec_mpi.core.elastic.states import (
    Cause,
    Consequence,
    Deadline,
    State,
    react,
    seconds_until_given_up,
    seconds_until_late,
)


def documented_transitions():
    """Return new state and consequence by cause and state, from the table in the docstring."""
    lines = states.__doc__.splitlines()
    rules = [k for k, line in enumerate(lines) if line.startswith("====")]
    widths = [len(column) for column in lines[rules[0]].split()]
    starts = [sum(widths[:k]) + 2 * k for k in range(len(widths))]
    transitions = {}
    for line in lines[rules[1] + 1 : rules[2]]:
        cells = [line[a : a + width].strip() for a, width in zip(starts, widths, strict=True)]
        cause, state, new_state, consequence = cells
        for old_state in State if state == "any" else [State(state)]:
            transition = State(new_state), Consequence(consequence)
            transitions[Cause(cause), old_state] = transition
    return transitions


def test_the_table_has_the_transitions_of_the_code():
    documented = documented_transitions()
    assert {cause for cause, _ in documented} == set(Cause)
    for cause in Cause:
        for state in State:
            expected = documented.get((cause, state), (state, Consequence.NOTHING))
            assert react(cause, state) == expected


def test_a_machine_is_late_after_a_multiple_of_the_expected_time():
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
