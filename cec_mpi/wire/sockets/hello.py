"""What a machine that comes by itself says first."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from cec_mpi._version import __version__
from cec_mpi.processes.start import fingerprint
from cec_mpi.text import printable

_MOST_NAME = 255  # characters of the name of a host


class Hello(NamedTuple):
    """What a machine says of itself.

    Attributes
    ----------
    package : tuple of str
        Version, mark of its files, and where they are.
    host : str
    pid : int
    earlier : int
        The machine that it was before; 0 for none.
    shards : int or None
        That it can have at most.
    memory : int or None
        Bytes of shards that it can have at most.
    """

    package: tuple[str, str, str]
    host: str
    pid: int
    earlier: int = 0
    shards: int | None = None
    memory: int | None = None

    def packed(self) -> bytes:
        """As JSON."""
        return json.dumps(self._asdict()).encode()

    @classmethod
    def read(cls, frame: Any) -> Hello:
        """As a machine has said it.

        Raises
        ------
        ValueError
            It is none.
        """
        try:
            found = cls(**json.loads(bytes(frame)))
            version, mark, where = map(str, found.package)
            limits = [None if each is None else int(each) for each in (found.shards, found.memory)]
            return found._replace(
                package=(version, mark, where),
                shards=limits[0],
                memory=limits[1],
                host=printable(str(found.host)[:_MOST_NAME]),
                pid=int(found.pid),
                earlier=int(found.earlier),
            )
        except (OverflowError, RecursionError, TypeError):
            raise ValueError("no hello") from None


def here() -> tuple[str, str, str]:
    """The package of this process."""
    return __version__, *fingerprint()
