"""Terms of X' V, and the terms that replace them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from cec_mpi.core.plan.assignment import Intervals


class TermStatus(Enum):
    """Whether the answer to a request for a term is expected."""

    EXPECTED = "expected"
    LATE = "late"  # it may still come, but the term is replaced
    NONE = "none"  # no answer is expected


@dataclass(eq=False)
class Term:
    """A term of X' V: the sum of rows of a machine's shard, weighted by coefficients.

    Attributes
    ----------
    machine : int
    intervals : tuple of (int, int)
    replaces : Term or None
        The term that this term helps to replace; None for a term of the plan.
    basis : tuple of int
        The L machines whose weighted terms add up to `replaces`; empty for copies of rows.
    replacements : list of Term
        Terms that add up to this term.
    added_terms : tuple of Term
        Terms that the answer adds to this term.
    """

    machine: int
    intervals: Intervals
    replaces: Term | None = None
    basis: tuple[int, ...] = ()
    replacements: list[Term] = field(default_factory=list)
    added_terms: tuple[Term, ...] = ()
    status: TermStatus = TermStatus.EXPECTED
    is_answered: bool = False

    @property
    def is_resolved(self) -> bool:
        """Whether the term or all its replacements are answered."""
        return self.is_answered or (
            bool(self.replacements) and all(term.is_resolved for term in self.replacements)
        )

    @property
    def is_needed(self) -> bool:
        """Whether neither the term nor any term that it replaces, also indirectly, is resolved."""
        return not self.is_resolved and (self.replaces is None or self.replaces.is_needed)

    def answered_terms(self) -> Iterator[Term]:
        """Yield the term if it is answered, else the answered terms of its replacements."""
        if self.is_answered:
            yield self
        else:
            for term in self.replacements:
                yield from term.answered_terms()

    def missing_terms(self) -> Iterator[Term]:
        """Yield the terms that must be replaced to resolve this term.

        A late term that replaces another late term is not replaced itself.
        """
        if self.status is TermStatus.EXPECTED or self.is_resolved:
            return
        for term in self.replacements:
            yield from term.missing_terms()
        parent = self.replaces
        if not self.replacements and (
            self.status is TermStatus.NONE or parent is None or parent.status is TermStatus.NONE
        ):
            yield self

    def subtree(self) -> Iterator[Term]:
        """Yield the term and all its direct and indirect replacements."""
        yield self
        for term in self.replacements:
            yield from term.subtree()
