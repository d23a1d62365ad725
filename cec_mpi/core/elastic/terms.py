"""A term of X' V: rows of a shard with coefficients, and the terms that replace it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from cec_mpi.core.plan.assignment import Intervals


class AnswerStatus(Enum):
    """Whether a term will be answered."""

    EXPECTED = "expected"
    LATE = "late"  # perhaps, and others compute what it is for
    NONE = "none"


@dataclass(eq=False)
class Term:
    """Some rows of a machine's shard, each times its coefficients.

    Attributes
    ----------
    machine : int
    intervals : tuple of (int, int)
    replaces : Term or None
        None for a term of the plan.
    basis : tuple of int
        The L machines whose terms, with weights, replace that term; empty if rows are copies.
    replacements : list of Term
        Terms whose sum is this one.
    summed : tuple of Term
        The terms, all for the same purpose, whose sum was answered.
    """

    machine: int
    intervals: Intervals
    replaces: Term | None = None
    basis: tuple[int, ...] = ()
    replacements: list[Term] = field(default_factory=list)
    summed: tuple[Term, ...] = ()
    prospect: AnswerStatus = AnswerStatus.EXPECTED
    is_answered: bool = False

    @property
    def is_known(self) -> bool:
        """Whether it, or all that replaces it, is answered."""
        return self.is_answered or (
            bool(self.replacements) and all(term.is_known for term in self.replacements)
        )

    @property
    def is_wanted(self) -> bool:
        """Whether neither the term nor the one that it replaces is known."""
        return not self.is_known and (self.replaces is None or self.replaces.is_wanted)

    def counted(self) -> Iterator[Term]:
        """Yield the terms whose answers count."""
        if self.is_answered:
            yield self
        else:
            for term in self.replacements:
                yield from term.counted()

    def missing(self) -> Iterator[Term]:
        """Yield the terms that others must replace before this one is known.

        A late term that only helps to replace another late one is not replaced: that would not
        help.
        """
        if self.prospect is AnswerStatus.EXPECTED or self.is_known:
            return
        for term in self.replacements:
            yield from term.missing()
        above = self.replaces
        if not self.replacements and (
            self.prospect is AnswerStatus.NONE
            or above is None
            or above.prospect is AnswerStatus.NONE
        ):
            yield self

    def family(self) -> Iterator[Term]:
        """Yield the term and all that replaces it."""
        yield self
        for term in self.replacements:
            yield from term.family()
