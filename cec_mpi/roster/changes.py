"""What becomes of machines, as who plans steps hears of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class _Gone:
    """A machine is not available any more."""

    machine: int
    reason: str
    word: ClassVar[str]  # of records
    said: ClassVar[str]  # to people

    def __str__(self) -> str:
        return f"machine {self.machine} {self.said}: {self.reason}"

    @property
    def record(self) -> dict[str, Any]:
        """As an event in the records."""
        return {self.word: self.machine, "reason": self.reason}


class Lost(_Gone):
    """A machine has no process any more."""

    word, said = "lost", "is lost"


class GivenUp(_Gone):
    """A machine has not answered for so long that it counts as lost, until it does."""

    word, said = "given up", "is given up"


class Left(_Gone):
    """A machine is asked no more, though its process lives."""

    word, said = "leaving", "is asked no more"


@dataclass(frozen=True)
class Joined:
    """A process has become this machine, or one that was given up is back."""

    machine: int
    rank: int

    def __str__(self) -> str:
        return f"rank {self.rank} is machine {self.machine} now"

    @property
    def record(self) -> dict[str, Any]:
        """As an event in the records."""
        return {"joined": self.machine, "rank": self.rank}


Change = Lost | GivenUp | Left | Joined
