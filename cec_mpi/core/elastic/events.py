"""The events that an elastic step handles, and the instructions that it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from cec_mpi.core.checks.finite import NonfiniteAnswer
from cec_mpi.core.elastic.terms import Term
from cec_mpi.core.plan.assignment import Intervals

# --- events of machines -------------------------------------------------------------------


@dataclass(frozen=True)
class MachineUnavailable:
    """A machine is no longer available."""

    machine: int
    reason: str
    kind: ClassVar[Literal["lost", "unresponsive", "left", "excluded"]]
    predicate: ClassVar[str]

    def __str__(self) -> str:
        return f"machine {self.machine} {self.predicate}: {self.reason}"


class MachineLost(MachineUnavailable):
    """The process of a machine has ended, or is unreachable."""

    kind, predicate = "lost", "was lost"


class MachineUnresponsive(MachineUnavailable):
    """A machine has been silent for so long that it counts as lost until it answers."""

    kind, predicate = "unresponsive", "is unresponsive"


class MachineLeft(MachineUnavailable):
    """A machine has left after a shutdown notice, and gets no more requests."""

    kind, predicate = "left", "has left"


class MachineExcluded(MachineUnavailable):
    """A machine was excluded for wrong answers, and gets no more requests."""

    kind, predicate = "excluded", "was excluded"


@dataclass(frozen=True)
class MachineJoined:
    """A process has become this machine, or an unresponsive machine has answered."""

    machine: int
    rank: int = 0
    host: str = ""  # empty if unknown
    device: str = ""  # empty for the CPU
    pid: int = field(default=0, compare=False)  # 0 if unknown

    def __str__(self) -> str:
        where = f" on {self.host} {self.device}".rstrip() if self.host else ""
        return f"rank {self.rank}{where} is now machine {self.machine}"


@dataclass(frozen=True)
class MachineLate:
    """A machine has missed its deadline, and the step no longer waits for it."""

    machine: int

    def __str__(self) -> str:
        return f"machine {self.machine} is late"


@dataclass(frozen=True)
class WrongAnswer:
    """A machine has sent a wrong answer."""

    machine: int
    reason: str = ""  # set if the answer was not finite

    def __str__(self) -> str:
        return f"machine {self.machine} {self.reason or 'sent a wrong answer'}"


RosterChange = MachineUnavailable | MachineJoined
"""Events that the roster reports."""

MachineEvent = RosterChange | MachineLate | WrongAnswer
"""Events that are recorded."""


@dataclass(frozen=True)
class ExpectedMachines:
    """The set of machines that may become available has changed.

    Attributes
    ----------
    opening : frozenset of int
        Machines whose processes are opening their shards. A lost machine that a spare replaces is
        included as soon as the loss is reported.
    vacant : frozenset of int
        Machines without a process, if the run waits for processes to join.
    adoptable : frozenset of int
        Machines that a running host could adopt: they have no process, or their process is slow to
        open its shard.
    """

    opening: frozenset[int] = frozenset()
    vacant: frozenset[int] = frozenset()
    adoptable: frozenset[int] = frozenset()


@dataclass(frozen=True)
class AvailabilityChanged:
    """The availability was read before the start of a step; it may be unchanged.

    Attributes
    ----------
    listed_machines : frozenset of int
        Machines that the availability lists, whether they are lost or not.
    """

    listed_machines: frozenset[int]


# --- requests, and events of answers ------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Request:
    """An instruction: request rows of X W, or a term of X' V, from a machine.

    Attributes
    ----------
    machine : int
    intervals : tuple of (int, int)
        Rows of its shard, ascending.
    term : Term or None
        The term of X' V; its coefficients are sent with the request.
    """

    machine: int
    intervals: Intervals
    term: Term | None = None


@dataclass(frozen=True)
class RequestsSent:
    """Requests were sent; their time limits start now."""

    requests: Sequence[Request]


@dataclass(frozen=True)
class RequestAnswered:
    """A request was answered, and the answer is finite.

    Attributes
    ----------
    request : Request
    added_terms : tuple of Term
        Terms of X' V that the answer adds to the requested term.
    """

    request: Request
    added_terms: tuple[Term, ...] = ()


@dataclass(frozen=True)
class BusyMachineAnswered:
    """A machine has answered a request of an earlier step."""

    machine: int


@dataclass(frozen=True)
class ComputationFailed:
    """A machine reports that its computation failed."""

    request: Request


@dataclass(frozen=True)
class AnswerRejected:
    """An answer is not finite, or has failed its check.

    Attributes
    ----------
    request : Request
    nonfinite : NonfiniteAnswer or None
        The entry that is not finite. None if a check has failed.
    """

    request: Request
    nonfinite: NonfiniteAnswer | None = None


# --- events of comparisons ----------------------------------------------------------------


@dataclass(frozen=True)
class AnsweredRows:
    """Rows ``start <= row < stop``, and machines with answers for them, ascending."""

    start: int
    stop: int
    machines: tuple[int, ...]


class RowsAgree(AnsweredRows):
    """The answers of these machines for these rows agree."""


class RowsDisagree(AnsweredRows):
    """The answers of these machines for these rows disagree."""


@dataclass(frozen=True)
class FaultUndetermined(AnsweredRows):
    """The answers of these machines disagree, but it is not certain which machine is faulty.

    Attributes
    ----------
    candidates : tuple of tuple of int
        Machines, or pairs of machines, that may be faulty. Empty if more than two are faulty, or
        if two are and there are fewer than L + 3 answers.
    """

    candidates: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class FaultsIdentified:
    """These machines are known to have sent wrong answers."""

    machines: tuple[int, ...]


Event = (
    RosterChange
    | ExpectedMachines
    | AvailabilityChanged
    | RequestsSent
    | RequestAnswered
    | BusyMachineAnswered
    | ComputationFailed
    | AnswerRejected
    | RowsAgree
    | RowsDisagree
    | FaultUndetermined
    | FaultsIdentified
)

# --- instructions -------------------------------------------------------------------------


@dataclass(frozen=True)
class StartStep:
    """Plan the step for these machines, and start it."""

    machines: tuple[int, ...]


class Compare(AnsweredRows):
    """Compare the answers of these machines for these rows."""


class IdentifyFaults(AnsweredRows):
    """Identify the faulty machines among those with answers for these rows."""


class Decode(AnsweredRows):
    """Decode these rows from the answers of these L machines."""


@dataclass(frozen=True)
class MarkLate:
    """Record that a machine is late; other machines now compute its rows as well."""

    machine: int


@dataclass(frozen=True)
class MarkUnresponsive:
    """Count a machine as lost, because it has been silent for this many seconds."""

    machine: int
    seconds: float


@dataclass(frozen=True)
class Exclude:
    """Send a machine no more requests, because its computation failed or its answers were wrong."""

    machine: int
    event_type: type[MachineLost | MachineExcluded]  # which the roster then reports


@dataclass(frozen=True)
class Adopt:
    """Let a running host adopt this machine."""

    machine: int


@dataclass(frozen=True)
class WaitUntil:
    """Wait for an event, until this clock time at the latest."""

    clock_time: float


@dataclass(frozen=True)
class Done:
    """The result is complete; pending answers are no longer needed."""


# --- causes of failure --------------------------------------------------------------------


@dataclass(frozen=True)
class TooFewMachines:
    """The remaining machines are too few."""

    machines: tuple[int, ...]


@dataclass(frozen=True)
class Disagreement:
    """Answers for rows disagree, and no further machine can identify the faulty one.

    Attributes
    ----------
    dispute : FaultUndetermined
        The interval of rows with the most answers.
    other_intervals : int
        Number of other intervals of rows with disagreements.
    """

    dispute: FaultUndetermined
    other_intervals: int = 0


@dataclass(frozen=True)
class StepFailed:
    """The step cannot be completed.

    Attributes
    ----------
    cause : TooFewMachines, Disagreement, NonfiniteAnswer or FaultsIdentified
        For a `NonfiniteAnswer` or `FaultsIdentified`, no machine can replace the faulty one.
    """

    cause: TooFewMachines | Disagreement | NonfiniteAnswer | FaultsIdentified


Instruction = (
    StartStep
    | Request
    | Compare
    | IdentifyFaults
    | Decode
    | MarkLate
    | MarkUnresponsive
    | Exclude
    | Adopt
    | WaitUntil
    | Done
    | StepFailed
)
