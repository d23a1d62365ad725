"""Typed messages between processes: JSON that msgspec validates, never pickle.

Whoever can send a message to a process must not be able to run code in it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np

from cec_mpi.processes.waiting import wait_for

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")


def pack(content: Any) -> bytes:
    """Return a message with an object for `unpack`: a dataclass, or builtins.

    Examples
    --------
    >>> pack({"seconds": [1.5, float("inf")]})
    b'{"seconds": [1.5, Infinity]}'
    """
    return json.dumps(msgspec.to_builtins(content, enc_hook=os.fspath)).encode()


def unpack(message: Any, kind: type[T]) -> T:
    """Return the object of a message.

    Raises
    ------
    ValueError
        It is not of this type.

    Examples
    --------
    >>> unpack(b"[1, 2]", tuple[int, ...])
    (1, 2)
    """
    try:
        return msgspec.convert(json.loads(bytes(message)), kind, dec_hook=_make)
    except (OverflowError, RecursionError) as error:
        raise ValueError(f"a message that cannot be read: {error}") from None


def _make(kind: type, content: Any) -> Any:
    if kind is not Path or not isinstance(content, str):
        raise ValueError(f"expected {kind.__name__}")
    return Path(content)


def gather(comm: MPI.Intracomm, content: T, kind: type[T]) -> list[T]:
    """Collective: return the objects of all ranks on rank 0, and an empty list on the others."""
    mine = np.frombuffer(pack(content), np.uint8)
    sizes = np.zeros(comm.size, np.int64)
    wait_for([comm.Igather(np.array([mine.size]), sizes if comm.rank == 0 else None)])
    packed = np.empty(sizes.sum(), np.uint8)
    wait_for([comm.Igatherv(mine, [packed, sizes] if comm.rank == 0 else None)])
    return _split(packed, sizes, kind) if comm.rank == 0 else []


def allgather(comm: MPI.Intracomm, content: T, kind: type[T]) -> list[T]:
    """Collective: return the objects of all ranks."""
    mine = np.frombuffer(pack(content), np.uint8)
    sizes = np.zeros(comm.size, np.int64)
    wait_for([comm.Iallgather(np.array([mine.size]), sizes)])
    packed = np.empty(sizes.sum(), np.uint8)
    wait_for([comm.Iallgatherv(mine, [packed, sizes])])
    return _split(packed, sizes, kind)


def broadcast(comm: MPI.Intracomm, content: T | None, kind: type[T]) -> T:
    """Collective: return the object of rank 0 on all ranks."""
    packed = np.frombuffer(pack(content) if comm.rank == 0 else b"", np.uint8)
    size = np.array([packed.size])
    wait_for([comm.Ibcast(size)])
    if comm.rank:
        packed = np.empty(size[0], np.uint8)
    wait_for([comm.Ibcast(packed)])
    return unpack(packed, kind)


def _split(packed: Any, sizes: Any, kind: type[T]) -> list[T]:
    parts = np.split(packed, np.cumsum(sizes)[:-1])
    return [unpack(part, kind) for part in parts]
