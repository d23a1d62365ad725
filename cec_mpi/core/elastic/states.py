"""States of machines in an elastic step, their transitions, and time limits.

The states of a machine are:

- absent: it has no process that can get requests.
- busy: it computes for an earlier step.
- idle: it can get a request.
- computing: it has a request of this step.
- late: it has a request of this step, and other machines compute the same rows. Its answer still
  counts if it is the first. The machine gets no other rows until it has answered.

These states last for one step. `cec_mpi.runtime.roster.State` is the state of a process.

An event changes the state, and has a consequence for the step:

====================  ===============  =========  ==============
event                 state            new state  consequence
====================  ===============  =========  ==============
answered              computing        idle       use answer
answered              late             idle       use answer
answered              absent           absent     nothing
answered              busy             busy       nothing
answered              idle             idle       nothing
freed                 busy             idle       offer rows
freed                 absent           absent     nothing
freed                 idle             idle       nothing
freed                 computing        computing  nothing
freed                 late             late       nothing
computation failed    computing        absent     exclude
computation failed    late             absent     exclude
answered wrongly      computing        absent     drop answers
answered wrongly      late             absent     drop answers
identified as faulty  any              absent     drop answers
deadline passed       computing        late       share rows
lost                  any              absent     reassign rows
unresponsive          any              absent     reassign rows
left                  any              absent     reassign rows
excluded              any              absent     reassign rows
joined                any              idle       offer rows
====================  ===============  =========  ==============

- use answer: the answer counts, and the machine gets the next request.
- offer rows: if the availability lists the machine, it may get rows that lack answers.
- share rows: other machines also compute its rows, and the first answer counts.
- reassign rows: other machines compute its unanswered rows. Its answers are kept.
- drop answers: all its rows are reassigned, and its answers are discarded. It is excluded if its
  current process has answered.
- exclude: its unanswered rows are reassigned, and it is excluded.
- nothing: for example, if an answer arrives after its machine was lost.

A time limit that expires without an answer causes an event (`TIMED_CAUSES`):

=====================  ============================  ===============
state                  seconds                       event
=====================  ============================  ===============
computing              `seconds_until_late`          deadline passed
computing, late, busy  `seconds_until_unresponsive`  unresponsive
=====================  ============================  ===============

If the machines that are present or opening their shards have been too few for more than `--adopt`
seconds, a host adopts a missing machine. The machine joins like any other.

After the step excludes a machine, the roster reports `lost` or `excluded`, although the machine is
already absent. Another process may later join as this machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

MIN_DEADLINE = 0.1  # seconds; processes on shared cores may stall for almost this long
MIN_SILENCE = 5.0  # minimum seconds without an answer before a machine is unresponsive
SILENCE_FACTOR = 10.0  # these seconds as a multiple of the time limit for answers
DISPUTE_SECONDS = 10.0  # wait for a machine that helps to identify the faulty one
WAIT_MARGIN = 1e-6  # seconds by which a wait exceeds its time limit, so that the limit has expired


class State(Enum):
    """The state of a machine in a step."""

    __hash__ = object.__hash__  # faster than that of Enum; every event looks up tables

    ABSENT = "absent"
    BUSY = "busy"
    IDLE = "idle"
    COMPUTING = "computing"
    LATE = "late"


class Cause(Enum):
    """The cause of a change of state."""

    __hash__ = object.__hash__

    ANSWERED = "answered"
    FREED = "freed"
    FAILED = "computation failed"
    WRONG = "answered wrongly"
    IDENTIFIED = "identified as faulty"
    DEADLINE = "deadline passed"
    LOST = "lost"
    UNRESPONSIVE = "unresponsive"
    LEFT = "left"
    EXCLUDED = "excluded"
    JOINED = "joined"


class Consequence(Enum):
    """The consequence of a change of state for the step."""

    NOTHING = "nothing"
    USE = "use answer"
    OFFER = "offer rows"
    SHARE = "share rows"
    REASSIGN = "reassign rows"
    DROP = "drop answers"
    EXCLUDE = "exclude"


PENDING_STATES = State.COMPUTING, State.LATE
TIMED_CAUSES = {
    State.COMPUTING: (Cause.DEADLINE, Cause.UNRESPONSIVE),
    State.LATE: (Cause.UNRESPONSIVE,),
    State.BUSY: (Cause.UNRESPONSIVE,),
}
"""The causes whose time limits apply in each state."""

# Other pairs of a cause and a state change nothing.
_TRANSITIONS = {
    (Cause.ANSWERED, State.COMPUTING): (State.IDLE, Consequence.USE),
    (Cause.ANSWERED, State.LATE): (State.IDLE, Consequence.USE),
    (Cause.FREED, State.BUSY): (State.IDLE, Consequence.OFFER),
    (Cause.FAILED, State.COMPUTING): (State.ABSENT, Consequence.EXCLUDE),
    (Cause.FAILED, State.LATE): (State.ABSENT, Consequence.EXCLUDE),
    (Cause.WRONG, State.COMPUTING): (State.ABSENT, Consequence.DROP),
    (Cause.WRONG, State.LATE): (State.ABSENT, Consequence.DROP),
    (Cause.DEADLINE, State.COMPUTING): (State.LATE, Consequence.SHARE),
}
_TRANSITIONS_IN_ANY_STATE = {
    Cause.IDENTIFIED: (State.ABSENT, Consequence.DROP),
    Cause.LOST: (State.ABSENT, Consequence.REASSIGN),
    Cause.UNRESPONSIVE: (State.ABSENT, Consequence.REASSIGN),
    Cause.LEFT: (State.ABSENT, Consequence.REASSIGN),
    Cause.EXCLUDED: (State.ABSENT, Consequence.REASSIGN),
    Cause.JOINED: (State.IDLE, Consequence.OFFER),
}


def transition(cause: Cause, state: State) -> tuple[State, Consequence]:
    """Return the new state of a machine, and the consequence for the step.

    Examples
    --------
    >>> transition(Cause.DEADLINE, State.COMPUTING)
    (<State.LATE: 'late'>, <Consequence.SHARE: 'share rows'>)
    """
    if cause in _TRANSITIONS_IN_ANY_STATE:
        return _TRANSITIONS_IN_ANY_STATE[cause]
    return _TRANSITIONS.get((cause, state), (state, Consequence.NOTHING))


@dataclass(frozen=True)
class Deadline:
    """A time limit for an answer, in seconds or as a multiple of the expected time.

    Attributes
    ----------
    seconds : float or None
    factor : float
        Multiple of the expected time, used if `seconds` is None.
    min_seconds : float
        Minimum of a time limit that is computed from `factor`.
    """

    seconds: float | None = None
    factor: float = 1.0
    min_seconds: float = MIN_DEADLINE

    def time_limit(self, expected: float | None) -> float | None:
        """Return the time limit for an answer in seconds.

        None if `seconds` is None and the expected time is unknown.

        Examples
        --------
        >>> Deadline(factor=1.5).time_limit(2.0), Deadline(seconds=5.0).time_limit(None)
        (3.0, 5.0)
        """
        if self.seconds is not None:
            return self.seconds
        return None if expected is None else max(self.min_seconds, self.factor * expected)


def seconds_until_late(
    deadline: Deadline | None, answer_seconds: Sequence[float], predicted_seconds: float | None
) -> float | None:
    """Return the time limit for an answer in seconds; None if there is no limit, or none yet.

    Parameters
    ----------
    deadline : Deadline or None
        If None, there is no limit.
    answer_seconds : sequence of float
        Seconds from the start of the step to each answer so far, ascending.
    predicted_seconds : float or None
        Predicted makespan of the plan.
    """
    if deadline is None:
        return None
    expected = []
    if answer_seconds:
        middle = len(answer_seconds) // 2
        expected.append((answer_seconds[middle] + answer_seconds[~middle]) / 2)  # the median
    if predicted_seconds is not None:
        expected.append(predicted_seconds)
    return deadline.time_limit(max(expected, default=None))


def seconds_until_unresponsive(deadline: Deadline | None, time_limit: float | None) -> float:
    """Return the seconds without an answer after which a machine is unresponsive.

    Parameters
    ----------
    deadline : Deadline or None
        If None, no machine becomes unresponsive.
    time_limit : float or None
        Time limit for answers in this step, or in the previous one if this step has none yet. Used
        if the deadline has no `seconds`; if None, no machine becomes unresponsive.
    """
    if deadline is None or not (seconds := deadline.seconds or time_limit):
        return float("inf")
    return max(MIN_SILENCE, SILENCE_FACTOR * seconds)
