"""Warnings of a step that wait for its end."""

from __future__ import annotations

import warnings


class PostponedWarnings:
    """Collects warnings during a step, and issues them after it.

    The program may turn warnings into exceptions, and an exception during a step would leave
    machines waiting.
    """

    def __init__(self) -> None:
        self._found: list[tuple[str, type[Warning]]] = []

    def add(self, text: str, category: type[Warning] = UserWarning) -> None:
        """Keep a warning for `issue`."""
        self._found.append((text, category))

    def issue(self) -> None:
        """Issue all warnings that were added since the last call."""
        found, self._found = self._found, []
        for text, category in found:
            warnings.warn(text, category, stacklevel=3)
