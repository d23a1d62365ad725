"""What a machine that joins says first."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from cec_mpi._version import __version__
from cec_mpi.processes.places import Place
from cec_mpi.processes.start import fingerprint
from cec_mpi.text import printable

_MOST_NAME = 255  # characters of a name
_MOST_NUMBER = 1 << 62


@dataclass(frozen=True)
class Hello:
    """What a machine says of itself.

    Attributes
    ----------
    package : tuple of str
        Version, digest of its files, and where they are.
    pid : int
    place : Place
        Where it runs, as it sees it alone.
    rank : int
        That the master's launcher gave it; 0 if another one started it.
    machine : int
        That it asks to be, or was before; 0 for any.
    shards : int or None
        That it can hold at most.
    memory : int or None
        Bytes of shards that it can hold at most.
    """

    package: tuple[str, str, str]
    pid: int
    place: Place
    rank: int = 0
    machine: int = 0
    shards: int | None = None
    memory: int | None = None

    def packed(self) -> bytes:
        """As JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def read(cls, frame: Any) -> Hello:
        """Read what a machine said.

        Raises
        ------
        ValueError
            It is no such message.
        """
        try:
            found = json.loads(bytes(frame))
            version, digest, where = map(str, found.pop("package"))
            told = found.pop("place")
            names = [printable(str(told.pop(name))[:_MOST_NAME]) for name in ("host", "network")]
            numbers = {name: _number(value) for name, value in told.items()}
            limits = [found.pop(name) for name in ("shards", "memory")]
            shards, memory = (None if each is None else _number(each) for each in limits)
            others = {name: _number(value) for name, value in found.items()}
            place = Place(names[0], network=names[1], **numbers)
            return cls(
                (version, digest, where), place=place, shards=shards, memory=memory, **others
            )
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError):
            raise ValueError("no hello") from None


def _number(value: Any) -> int:
    number = int(value)
    if not 0 <= number < _MOST_NUMBER:
        raise ValueError("no number that a machine can have")
    return number


def package_here() -> tuple[str, str, str]:
    """The package of this process."""
    return __version__, *fingerprint()
