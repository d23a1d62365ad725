"""The events that an elastic step takes, and the instructions that it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from cec_mpi.core.checks.finite import NonfiniteAnswer
from cec_mpi.core.elastic.terms import Term
from cec_mpi.core.plan.assignment import Intervals

# --- events of machines -------------------------------------------------------------------


@dataclass(frozen=True)
class MachineUnavailable:
    """A machine is not available any more."""

    machine: int
    reason: str
    word: ClassVar[Literal["lost", "given up", "left", "excluded"]]  # in records
    message_text: ClassVar[str]  # in messages

    def __str__(self) -> str:
        return f"machine {self.machine} {self.message_text}: {self.reason}"


class Lost(MachineUnavailable):
    """The process of a machine has ended, or cannot be reached."""

    word, message_text = "lost", "is lost"


class GivenUp(MachineUnavailable):
    """A machine has not answered for so long that it counts as lost until it answers."""

    word, message_text = "given up", "is given up"


class Left(MachineUnavailable):
    """A machine has left: it was warned, and gets no more requests."""

    word, message_text = "left", "has left"


class Excluded(MachineUnavailable):
    """A machine gets no more requests, because its answers were wrong."""

    word, message_text = "excluded", "is excluded"


@dataclass(frozen=True)
class Joined:
    """A process has become this machine, or a machine that was given up has answered."""

    machine: int
    rank: int = 0
    host: str = ""  # empty if it is not known
    device: str = ""  # empty for the processor

    def __str__(self) -> str:
        where = f" on {self.host} {self.device}".rstrip() if self.host else ""
        return f"rank {self.rank}{where} is machine {self.machine} now"


@dataclass(frozen=True)
class MachineLate:
    """A step does not wait for a machine any longer."""

    machine: int

    def __str__(self) -> str:
        return f"machine {self.machine} is late"


@dataclass(frozen=True)
class WrongAnswer:
    """A machine has answered wrong numbers."""

    machine: int
    reason: str = ""  # if the answer was not finite

    def __str__(self) -> str:
        return f"machine {self.machine} {self.reason or 'answered wrong numbers'}"


Change = MachineUnavailable | Joined
"""What the roster reports of a machine."""

MachineEvent = Change | MachineLate | WrongAnswer
"""What happens to a machine, as it is recorded."""


@dataclass(frozen=True)
class PendingMachines:
    """Which machines are about to be available; an event whenever that has changed.

    Attributes
    ----------
    opening : frozenset of int
        Machines whose processes open their shards. A spare that replaces a lost machine is here as
        soon as the loss is reported.
    vacant : frozenset of int
        Machines without a process, if the run waits for processes; others may join at any time.
    adoptable : frozenset of int
        Machines that a living host could carry, because they have no process or it is slow to open
        its shard.
    """

    opening: frozenset[int] = frozenset()
    vacant: frozenset[int] = frozenset()
    adoptable: frozenset[int] = frozenset()


@dataclass(frozen=True)
class AvailabilityTick:
    """Which machines the availability lists before a step begins.

    Attributes
    ----------
    listed : frozenset of int
        Lost ones too.
    """

    listed: frozenset[int]


# --- requests, and events of answers ------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Request:
    """An instruction: ask a machine for rows of its shard, or for a term of X' V.

    Attributes
    ----------
    machine : int
    intervals : tuple of (int, int)
        Rows of its shard, ascending.
    term : Term or None
        The term of X' V, whose coefficients are sent.
    """

    machine: int
    intervals: Intervals
    term: Term | None = None


@dataclass(frozen=True)
class Sent:
    """Requests were sent; their time begins."""

    requests: Sequence[Request]


@dataclass(frozen=True)
class Answered:
    """A request was answered, with finite numbers.

    Attributes
    ----------
    request : Request
    summed : tuple of Term
        The terms of X' V whose sum was answered, with that of the request.
    """

    request: Request
    summed: tuple[Term, ...] = ()


@dataclass(frozen=True)
class BusyMachineAnswered:
    """A machine has answered a request of an earlier step."""

    machine: int


@dataclass(frozen=True)
class ComputationFailed:
    """A machine reports that it could not compute."""

    request: Request


@dataclass(frozen=True)
class AnswerRejected:
    """An answer is not finite, or has failed its check.

    Attributes
    ----------
    request : Request
    found : NonfiniteAnswer or None
        The number that is not finite; `found.other` is one of another machine in the same place.
    """

    request: Request
    found: NonfiniteAnswer | None = None


# --- events of comparisons ----------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Rows ``start <= row < stop``, and machines that have answered them, ascending."""

    start: int
    stop: int
    machines: tuple[int, ...]


class RowsAgree(Rows):
    """The answers of these machines to these rows agree."""


class RowsDisagree(Rows):
    """The answers of these machines to these rows disagree."""


@dataclass(frozen=True)
class FaultUndetermined(Rows):
    """Of the machines whose answers disagree it is not certain which one is wrong.

    Attributes
    ----------
    candidates : tuple of tuple of int
        Machines each of which may be the wrong one, or pairs of them; empty if more are wrong.
    """

    candidates: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Named:
    """These machines have certainly answered wrong numbers."""

    machines: tuple[int, ...]


Event = (
    Change
    | PendingMachines
    | AvailabilityTick
    | Sent
    | Answered
    | BusyMachineAnswered
    | ComputationFailed
    | AnswerRejected
    | RowsAgree
    | RowsDisagree
    | FaultUndetermined
    | Named
)

# --- instructions -------------------------------------------------------------------------


@dataclass(frozen=True)
class StartStep:
    """Plan the step for these machines, and begin it."""

    machines: tuple[int, ...]


class Compare(Rows):
    """Compare the answers of these machines to these rows."""


class IdentifyFaulty(Rows):
    """Find out which of these machines have answered these rows wrongly."""


class Decode(Rows):
    """Decode these rows from the answers of these L machines."""


@dataclass(frozen=True)
class MarkLate:
    """Have others compute the rows of this machine too; its answer is used if it is the first."""

    machine: int


@dataclass(frozen=True)
class GiveUp:
    """Count a machine as lost, which has not answered for so many seconds."""

    machine: int
    seconds: float


@dataclass(frozen=True)
class Exclude:
    """Give a machine no more requests: it could not compute, or its answers were wrong."""

    machine: int
    kind: type[Lost | Excluded]


@dataclass(frozen=True)
class Adopt:
    """Have a living host carry this machine, which has no host."""

    machine: int


@dataclass(frozen=True)
class WaitUntil:
    """Wait for an event, but not beyond this moment."""

    moment: float


@dataclass(frozen=True)
class Done:
    """The result is complete; of these machines no answer is needed any more."""

    unanswered: tuple[int, ...]


# Why a step fails.


@dataclass(frozen=True)
class TooFewMachines:
    """Too few machines are left: these."""

    machines: tuple[int, ...]


@dataclass(frozen=True)
class Disagreement:
    """Answers to rows disagree, and no other machine can tell which is wrong.

    Attributes
    ----------
    found : FaultUndetermined
        The rows with the most answers.
    others : int
        Number of other places where answers disagree.
    """

    found: FaultUndetermined
    others: int = 0


@dataclass(frozen=True)
class StepFailed:
    """The step cannot end.

    Attributes
    ----------
    cause : TooFewMachines, Disagreement, Unusable or Named
        With an `NonfiniteAnswer` or `Named`, no machine can replace the faulty one.
    """

    cause: TooFewMachines | Disagreement | NonfiniteAnswer | Named


Instruction = (
    StartStep
    | Request
    | Compare
    | IdentifyFaulty
    | Decode
    | MarkLate
    | GiveUp
    | Exclude
    | Adopt
    | WaitUntil
    | Done
    | StepFailed
)
