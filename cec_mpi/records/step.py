"""One step as it is recorded.

A line of ``steps.jsonl`` holds what has changed: a field that is left out has its default where it
has one, since nothing happened, and is as on the line before where it has none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple, get_type_hints

VERSION = 2
"""Of what the lines of ``steps.jsonl`` hold."""

MOST = 2**53
"""Whole numbers are below it: JSON's readers agree on these, and floats hold them."""

MOST_MACHINES = 100_000


class Within(NamedTuple):
    """Numbers that are 0, or lie between two others.

    Attributes
    ----------
    least, most : float
    unit : str
        As the end of a sentence.
    """

    least: float
    most: float
    unit: str


Seconds = Annotated[float, Within(1e-30, 1e30, " seconds")]
"""A time that is counted with: one that adds up and divides to finite numbers."""

Size = Annotated[float, Within(1e-300, 1e300, "")]
"""How large something is."""


@dataclass(frozen=True)
class StepRecord:
    """One step.

    Attributes
    ----------
    step, tick : int
        Counted from 0; they differ where ticks were waited for.
    time : str
        When the step ended: UTC in the form of ISO 8601, with milliseconds.
    waited_ticks : int
        Ticks with too few machines before this step.
    available : tuple of int
        Numbers of the available machines.
    store : int
        Which store, in the order in which they were opened; 0 is the run's own.
    adjoint : bool
        X' V instead of X W.
    columns : int
        Of W or V.
    rows : list of int
        Rows computed by machines 1..N, 0 for the preempted.
    seconds : list of float
        What each machine measured, 0 for the preempted.
    load_seconds : list of float
        What machines 1..N spent, before `seconds`, on reading and checking rows that they
        had not read before: a cost of the first step, and of a new assignment.
    load_bytes : list of int
        How much they read for it.
    predicted_makespan : float or None
        From the plan and the speeds in rows per second, None before these are known.
    measured_makespan : float
        The largest of `seconds`.
    bound : float or None
        What no assignment could beat at the speeds that were expected, in seconds.
    hindsight_makespan : float or None
        What no assignment could beat at the speeds that the machines had in this step;
        the regret of the step is ``measured_makespan / hindsight_makespan - 1``. None with
        stragglers, since machines whose answers did not count have shown no speed.
    announce_seconds, share_seconds, collect_seconds, decode_seconds : float
        Time of each part of the step on the master; collect includes the computation, and
        decode is the transposed decoder, before share, when the step is an adjoint one. What is
        shared goes with what is announced where it is short.
    bytes : dict of str to int
        Payload of the master's part in announce, share and collect.
    plan_changed : bool
        Whether the assignment was sent.
    condition : float
        The largest condition number that the step was decoded with; null in the file where
        it is infinite.
    error_bound, error_estimate : float
        Of the largest error of an entry of the result over its largest entry, in the worst
        column of a block: what it is not above, whatever the roundings were, and what it is
        likely to be below and not far from. Null in the file where they are infinite, since
        the result is zeros.
    events : list of dict
        What happened to machines: ``{"lost": n, "reason": text}``, ``{"late": n}``,
        ``{"given up": n, "reason": text}``, ``{"leaving": n, "reason": text}``,
        ``{"excluded": n, "reason": text}`` where answers were wrong, ``{"wrong": n}``, with a
        ``"reason"`` where an answer was not finite, ``{"joined": n, "rank": r, "host": h}``,
        ``{"rebuilt": n, "rows": count, "first": row, "last": row, "error_bound": b}`` of rows
        of its shard that machine n computed from others,
        ``{"adopted": n, "shard": k, "bytes": b, "seconds": s}`` of a shard that machine n has
        taken over and read, behind those that it had, and ``{"not adopted": n, "shard": k,
        "reason": text}`` where it could not.
    assignment : list of list of int
        Which rows of its shard each machine was to compute: the bounds of its intervals, one
        after the other (``[0, 180, 240, 420]`` is 0..179 and 240..419), none for the preempted.
    """

    step: int
    tick: int
    time: str
    available: tuple[int, ...]
    store: int
    adjoint: bool
    columns: int
    rows: list[int]
    seconds: list[Seconds]
    load_seconds: list[Seconds]
    load_bytes: list[int]
    predicted_makespan: Seconds | None
    measured_makespan: Seconds
    bound: Seconds | None
    hindsight_makespan: Seconds | None
    announce_seconds: Seconds
    share_seconds: Seconds
    collect_seconds: Seconds
    decode_seconds: Seconds
    bytes: dict[str, int]
    condition: Size | None
    error_bound: Size | None
    error_estimate: Size | None
    assignment: list[list[int]]
    waited_ticks: int = 0
    plan_changed: bool = False
    events: list[dict[str, Any]] = field(default_factory=list)


HINTS: dict[str, Any] = get_type_hints(StepRecord, include_extras=True)
"""What each field is, for those who read it back."""
