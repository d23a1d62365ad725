"""What becomes of machines, as who plans steps hears of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

WARNED = "it was warned that it has to leave"  # why it has `Left`


@dataclass(frozen=True)
class Gone:
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


class Lost(Gone):
    """A machine has no process any more."""

    word, said = "lost", "is lost"


class GivenUp(Gone):
    """A machine has not answered for so long that it counts as lost, until it does."""

    word, said = "given up", "is given up"


class Left(Gone):
    """A machine is asked no more, since its process is to end."""

    word, said = "leaving", "is asked no more"


class Excluded(Gone):
    """A machine is asked no more, since its answers are wrong."""

    word, said = "excluded", "is asked no more"


@dataclass(frozen=True)
class Joined:
    """A process has become this machine, or one that was given up is back."""

    machine: int
    rank: int
    host: str = ""  # empty where nobody has said which

    def __str__(self) -> str:
        where = f" on {self.host}" if self.host else ""
        return f"rank {self.rank}{where} is machine {self.machine} now"

    @property
    def record(self) -> dict[str, Any]:
        """As an event in the records."""
        where = {"host": self.host} if self.host else {}
        return {"joined": self.machine, "rank": self.rank} | where


Change = Gone | Joined
