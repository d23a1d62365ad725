"""Typed messages between processes: JSON that msgspec validates.

A process that can send a message must not be able to run code in the receiver.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_origin, get_type_hints

import msgspec
import numpy as np

from cec_mpi.errors import CecError
from cec_mpi.runtime.processes.ending import error_suffix
from cec_mpi.runtime.processes.waiting import wait_for
from cec_mpi.store.format.manifest import Manifest
from cec_mpi.store.kinds import convert_manifest

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")

DECODERS: dict[Any, Callable[[Any], Any]] = {Manifest: convert_manifest}
"""Functions that make objects of what was sent, by type; rooms above add theirs."""


def pack(content: Any) -> bytes:
    """Return a message with an object for `unpack`: a dataclass, an array, or builtins.

    It may also be of a type in `DECODERS`. If it has a method `content`, that returns what is sent.

    Examples
    --------
    >>> pack({"seconds": [1.5, float("inf")]})
    b'{"seconds": [1.5, Infinity]}'
    """
    return json.dumps(msgspec.to_builtins(_content_of(content), enc_hook=_encode_hook)).encode()


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
        made: T = _decode(kind, json.loads(bytes(message)))
    except (OverflowError, RecursionError) as error:
        raise ValueError(f"a message that cannot be read: {error}") from None
    return made


def pack_fields(content: Any) -> bytes:
    """Return a message with a dataclass for `unpack_fields`, whose fields `pack` can take."""
    names = [field.name for field in fields(content)]
    return pack({name: _content_of(getattr(content, name)) for name in names})


def unpack_fields(message: Any, kind: type[T]) -> T:
    """Return the dataclass of a message from `pack_fields`.

    Raises
    ------
    ValueError
        It is not of this type.
    """
    content, hints = unpack(message, dict[str, Any]), _hints(kind)  # type: ignore[arg-type]
    if content.keys() != hints.keys():
        raise ValueError(f"expected the fields of {kind.__name__}")
    return kind(**{name: _decode(hints[name], value) for name, value in content.items()})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _content_of(value: Any) -> Any:
    return value.content() if hasattr(value, "content") else value


def _decode(kind: Any, content: Any) -> Any:
    if kind in DECODERS:
        return DECODERS[kind](content)
    return msgspec.convert(content, kind, dec_hook=_decode_hook)


def _encode_hook(content: Any) -> Any:
    if isinstance(content, np.ndarray):
        octets = base64.b64encode(content.tobytes()).decode()
        return content.dtype.str, content.shape, octets
    return content.item() if isinstance(content, np.generic) else os.fspath(content)


def _decode_hook(kind: Any, content: Any) -> Any:
    if kind is Path and isinstance(content, str):
        return Path(content)
    if get_origin(kind) is np.ndarray:
        dtype, shape, octets = msgspec.convert(content, tuple[str, tuple[int, ...], str])
        return np.frombuffer(bytearray(base64.b64decode(octets)), dtype).reshape(shape)
    raise ValueError(f"expected {kind}")


def gather(comm: MPI.Comm, content: T, kind: type[T]) -> list[T]:
    """Collective: return the objects of all ranks on rank 0, and an empty list on the others."""
    mine = np.frombuffer(pack(content), np.uint8)
    sizes = np.zeros(comm.size, np.int64)
    wait_for([comm.Igather(np.array([mine.size]), sizes if comm.rank == 0 else None)])
    packed = np.empty(sizes.sum(), np.uint8)
    wait_for([comm.Igatherv(mine, [packed, sizes] if comm.rank == 0 else None)])
    return _split(packed, sizes, kind) if comm.rank == 0 else []


def allgather(comm: MPI.Comm, content: T, kind: type[T]) -> list[T]:
    """Collective: return the objects of all ranks."""
    mine = np.frombuffer(pack(content), np.uint8)
    sizes = np.zeros(comm.size, np.int64)
    wait_for([comm.Iallgather(np.array([mine.size]), sizes)])
    packed = np.empty(sizes.sum(), np.uint8)
    wait_for([comm.Iallgatherv(mine, [packed, sizes])])
    return _split(packed, sizes, kind)


def broadcast(comm: MPI.Comm, content: T | None, kind: type[T]) -> T:
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


@dataclass(frozen=True)
class Failure:
    """An exception of another process.

    Attributes
    ----------
    kinds : tuple of (str, str)
        Module and name of its class and of the bases of that.
    text : str
    exit_code : int
        Of a `CecError` or `SystemExit`, otherwise 1.
    """

    kinds: tuple[tuple[str, str], ...]
    text: str
    exit_code: int

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Describe an exception.

        Examples
        --------
        >>> from cec_mpi.errors import InputError
        >>> Failure.of(InputError("no such store")).error()
        InputError('no such store')
        """
        kinds = tuple((base.__module__, base.__qualname__) for base in type(error).__mro__)
        if isinstance(error, SystemExit) and isinstance(error.code or 0, int):
            return cls(kinds, "", int(error.code or 0))
        (text,) = error.args if len(error.args) == 1 else (None,)
        if not isinstance(text, str):
            text = error_suffix(error).removeprefix(": ")
        return cls(kinds, text, error.exit_code if isinstance(error, CecError) else 1)

    def error(self) -> BaseException:
        """Return the exception with this text.

        Its class is that of the other process if this process has it, and no module is imported.
        Otherwise it is a `CecError`.
        """
        found = [_loaded_class(module, name) for module, name in self.kinds]
        if found[0] is SystemExit:
            return SystemExit(self.text or self.exit_code)
        kind, text = found[0], self.text
        if kind is None:
            kind = next((base for base in found if base and issubclass(base, CecError)), None)
        if kind is None:
            kind, text = CecError, f"{self.kinds[0][1]}: {self.text}"
        error = kind.__new__(kind, text)
        error.args = (text,) if text else ()
        if isinstance(error, CecError):
            error.exit_code = self.exit_code
        return error


def _loaded_class(module: str, name: str) -> type[BaseException] | None:
    """Return a class of exceptions of a module that is loaded."""
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None
