"""What happens when a machine answers, is late, is lost or is wrong.

The state of a machine says what the step can expect of it:

- absent: it has no process that can be asked.
- busy: it computes for an earlier step.
- idle: it can be asked.
- computing: it has a request of this step.
- late: it has a request of this step, and others compute the same rows. Its answer still counts if
  it is the first, and the machine gets no other rows until it has answered.

These states last for one step. `cec_mpi.runtime.roster.State` is that of a process; records have
events.

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
named as wrong        any              absent     drop answers
deadline passed       computing        late       share rows
lost                  any              absent     reassign rows
given up              any              absent     reassign rows
left                  any              absent     reassign rows
excluded              any              absent     reassign rows
joined                any              idle       offer rows
====================  ===============  =========  ==============

- use answer: it counts; the machine gets the next request.
- offer rows: the machine may compute what others miss, if it is available.
- share rows: others compute them too, and the first answer counts.
- reassign rows: others compute what the machine has not answered. Its answers are kept.
- drop answers: as `reassign rows`, and its answers are not used; it is excluded.
- exclude: as `reassign rows`, and it is excluded.
- nothing: among others, the answer to a request that was reassigned because its machine was lost.

A machine that has not answered for so long causes an event by itself (`TIME_LIMITS`):

=====================  ========================  ===============
state                  seconds                   event
=====================  ========================  ===============
computing              `seconds_until_late`      deadline passed
computing, late, busy  `seconds_until_given_up`  given up
=====================  ========================  ===============

If the machines that are left, with those that open their shards, have been too few for as long as
`--adopt` says, one of their hosts carries a missing machine as well. It joins like any other.

After `exclude` and `drop answers` the roster reports `lost` or `excluded`; the machine is absent
already. It may be joined by another process, which can be asked like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

MIN_DEADLINE = 0.1  # the shortest deadline that is a factor: processes on shared cores are late
MIN_LOSS_TIMEOUT = 5.0  # without an answer, at least, for a machine to be taken for lost
LOSS_TIMEOUT_FACTOR = 10.0  # or this many deadlines
DISPUTE_SECONDS = 10.0  # for a machine to come that can tell which of several answers is wrong
RESOLUTION = 1e-6  # after which a clock shows that a moment has passed


class State(Enum):
    """What a step can expect of a machine."""

    __hash__ = object.__hash__  # that of Enum is slow, and each event looks into tables

    ABSENT = "absent"
    BUSY = "busy"
    IDLE = "idle"
    COMPUTING = "computing"
    LATE = "late"


class Cause(Enum):
    """What changes the state of a machine."""

    __hash__ = object.__hash__

    ANSWERED = "answered"
    FREED = "freed"
    FAILED = "computation failed"
    WRONG = "answered wrongly"
    NAMED = "named as wrong"
    DEADLINE = "deadline passed"
    LOST = "lost"
    GIVEN_UP = "given up"
    LEFT = "left"
    EXCLUDED = "excluded"
    JOINED = "joined"


class Consequence(Enum):
    """What follows for the step."""

    NOTHING = "nothing"
    USE = "use answer"
    OFFER = "offer rows"
    SHARE = "share rows"
    REASSIGN = "reassign rows"
    DROP = "drop answers"
    EXCLUDE = "exclude"


ASKED = State.COMPUTING, State.LATE
TIME_LIMITS = {
    State.COMPUTING: (Cause.DEADLINE, Cause.GIVEN_UP),
    State.LATE: (Cause.GIVEN_UP,),
    State.BUSY: (Cause.GIVEN_UP,),
}
"""What happens to a machine that does not answer in time."""

# For a cause that is not in `_IN_ANY_STATE` either: the state stays, and nothing follows.
_BY_STATE = {
    (Cause.ANSWERED, State.COMPUTING): (State.IDLE, Consequence.USE),
    (Cause.ANSWERED, State.LATE): (State.IDLE, Consequence.USE),
    (Cause.FREED, State.BUSY): (State.IDLE, Consequence.OFFER),
    (Cause.FAILED, State.COMPUTING): (State.ABSENT, Consequence.EXCLUDE),
    (Cause.FAILED, State.LATE): (State.ABSENT, Consequence.EXCLUDE),
    (Cause.WRONG, State.COMPUTING): (State.ABSENT, Consequence.DROP),
    (Cause.WRONG, State.LATE): (State.ABSENT, Consequence.DROP),
    (Cause.DEADLINE, State.COMPUTING): (State.LATE, Consequence.SHARE),
}
_IN_ANY_STATE = {
    Cause.NAMED: (State.ABSENT, Consequence.DROP),
    Cause.LOST: (State.ABSENT, Consequence.REASSIGN),
    Cause.GIVEN_UP: (State.ABSENT, Consequence.REASSIGN),
    Cause.LEFT: (State.ABSENT, Consequence.REASSIGN),
    Cause.EXCLUDED: (State.ABSENT, Consequence.REASSIGN),
    Cause.JOINED: (State.IDLE, Consequence.OFFER),
}


def react(cause: Cause, state: State) -> tuple[State, Consequence]:
    """Return the new state of a machine, and what follows for the step.

    Examples
    --------
    >>> react(Cause.DEADLINE, State.COMPUTING)
    (<State.LATE: 'late'>, <Consequence.SHARE: 'share rows'>)
    """
    if cause in _IN_ANY_STATE:
        return _IN_ANY_STATE[cause]
    return _BY_STATE.get((cause, state), (state, Consequence.NOTHING))


@dataclass(frozen=True)
class Deadline:
    """A time limit in seconds, or as a multiple of the expected time.

    Attributes
    ----------
    seconds : float or None
    factor : float
        Multiple of the expected time, used if `seconds` is None.
    least : float
        Lower limit, in seconds, of a limit given by `factor`.
    """

    seconds: float | None = None
    factor: float = 1.0
    least: float = MIN_DEADLINE

    def allowed(self, expected: float | None) -> float | None:
        """Return the time limit in seconds for an answer; None if no time is expected yet.

        Examples
        --------
        >>> Deadline(factor=1.5).allowed(2.0), Deadline(seconds=5.0).allowed(None)
        (3.0, 5.0)
        """
        if self.seconds is not None:
            return self.seconds
        return None if expected is None else max(self.least, self.factor * expected)


def seconds_until_late(
    deadline: Deadline | None, answered: Sequence[float], predicted: float | None
) -> float | None:
    """Return the seconds that a machine has for its answer; None if that is not limited yet.

    Parameters
    ----------
    deadline : Deadline or None
    answered : sequence of float
        Seconds after which other machines have answered, ascending.
    predicted : float or None
        Seconds that were predicted for the plan.
    """
    if deadline is None:
        return None
    middle = len(answered) // 2
    expected = [(answered[middle] + answered[~middle]) / 2] if answered else []  # their median
    if predicted is not None:
        expected.append(predicted)
    return deadline.allowed(max(expected, default=None))


def seconds_until_given_up(deadline: Deadline | None, allowed: float | None) -> float:
    """Return the seconds without an answer after which a machine counts as lost.

    Parameters
    ----------
    deadline : Deadline or None
        Without one, no machine is given up.
    allowed : float or None
        Seconds that machines have for their answers, in this step or the one before. Nothing is
        expected of the very first answers.
    """
    if deadline is None or not (seconds := deadline.seconds or allowed):
        return float("inf")
    return max(MIN_LOSS_TIMEOUT, LOSS_TIMEOUT_FACTOR * seconds)
