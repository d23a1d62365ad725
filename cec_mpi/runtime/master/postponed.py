"""Warnings that are postponed to the end of a step."""

from __future__ import annotations

from cec_mpi.text import warn_caller


class PostponedWarnings:
    """Collects warnings during a step, and issues them after it.

    The program may turn warnings into exceptions, and an exception during a step would leave
    machines waiting.
    """

    def __init__(self) -> None:
        self._pending: list[tuple[str, type[Warning]]] = []

    def add(self, text: str, category: type[Warning] = UserWarning) -> None:
        """Add a warning."""
        self._pending.append((text, category))

    def issue(self) -> None:
        """Issue all warnings that were added since the last call."""
        pending, self._pending = self._pending, []
        for text, category in pending:
            warn_caller(text, category)
