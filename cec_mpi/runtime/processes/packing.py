"""Typed messages between processes: JSON that msgspec validates.

Unlike pickled messages, they cannot run code in the receiver.
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
"""Functions that convert content to objects, by type; other packages add their types."""


def pack(content: Any) -> bytes:
    """Encode an object as a message for `unpack`: a dataclass, an array, or builtins.

    Objects of a type in `DECODERS` are also supported. If an object has a method `content`, its
    result is encoded.

    Examples
    --------
    >>> pack({"seconds": [1.5, float("inf")]})
    b'{"seconds": [1.5, Infinity]}'
    """
    return json.dumps(msgspec.to_builtins(_content_of(content), enc_hook=_encode_hook)).encode()


def unpack(message: Any, type_: type[T]) -> T:
    """Decode a message from `pack`.

    Raises
    ------
    ValueError
        The content is not of this type.

    Examples
    --------
    >>> unpack(b"[1, 2]", tuple[int, ...])
    (1, 2)
    """
    try:
        content: T = _decode(type_, json.loads(bytes(message)))
    except (OverflowError, RecursionError) as error:
        raise ValueError(f"the message cannot be read: {error}") from None
    return content


def pack_fields(content: Any) -> bytes:
    """Encode a dataclass, whose fields `pack` supports, as a message for `unpack_fields`."""
    names = [field.name for field in fields(content)]
    return pack({name: _content_of(getattr(content, name)) for name in names})


def unpack_fields(message: Any, type_: type[T]) -> T:
    """Decode a message from `pack_fields`.

    Raises
    ------
    ValueError
        The content is not of this type.
    """
    content, types = unpack(message, dict[str, Any]), _field_types(type_)  # type: ignore[arg-type]
    if content.keys() != types.keys():
        raise ValueError(f"expected the fields of {type_.__name__}")
    return type_(**{name: _decode(types[name], value) for name, value in content.items()})


@cache
def _field_types(type_: Any) -> dict[str, Any]:
    hints = get_type_hints(type_)
    return {field.name: hints[field.name] for field in fields(type_)}


def _content_of(value: Any) -> Any:
    return value.content() if hasattr(value, "content") else value


def _decode(type_: Any, content: Any) -> Any:
    if type_ in DECODERS:
        return DECODERS[type_](content)
    return msgspec.convert(content, type_, dec_hook=_decode_hook)


def _encode_hook(content: Any) -> Any:
    if isinstance(content, np.ndarray):
        data = base64.b64encode(content.tobytes()).decode()
        return content.dtype.str, content.shape, data
    return content.item() if isinstance(content, np.generic) else os.fspath(content)


def _decode_hook(type_: Any, content: Any) -> Any:
    if type_ is Path and isinstance(content, str):
        return Path(content)
    if get_origin(type_) is np.ndarray:
        dtype, shape, data = msgspec.convert(content, tuple[str, tuple[int, ...], str])
        return np.frombuffer(bytearray(base64.b64decode(data)), dtype).reshape(shape)
    raise ValueError(f"expected {type_}")


def gather(comm: MPI.Comm, content: T, type_: type[T]) -> list[T]:
    """Return the objects of all ranks on rank 0, and an empty list on other ranks (collective)."""
    message = np.frombuffer(pack(content), np.uint8)
    sizes = np.zeros(comm.size, np.int64)
    wait_for([comm.Igather(np.array([message.size]), sizes if comm.rank == 0 else None)])
    messages = np.empty(sizes.sum(), np.uint8)
    wait_for([comm.Igatherv(message, [messages, sizes] if comm.rank == 0 else None)])
    return _unpack_all(messages, sizes, type_) if comm.rank == 0 else []


def allgather(comm: MPI.Comm, content: T, type_: type[T]) -> list[T]:
    """Return the objects of all ranks (collective)."""
    message = np.frombuffer(pack(content), np.uint8)
    sizes = np.zeros(comm.size, np.int64)
    wait_for([comm.Iallgather(np.array([message.size]), sizes)])
    messages = np.empty(sizes.sum(), np.uint8)
    wait_for([comm.Iallgatherv(message, [messages, sizes])])
    return _unpack_all(messages, sizes, type_)


def broadcast(comm: MPI.Comm, content: T | None, type_: type[T]) -> T:
    """Return the object of rank 0 on all ranks (collective)."""
    message = np.frombuffer(pack(content) if comm.rank == 0 else b"", np.uint8)
    size = np.array([message.size])
    wait_for([comm.Ibcast(size)])
    if comm.rank:
        message = np.empty(size[0], np.uint8)
    wait_for([comm.Ibcast(message)])
    return unpack(message, type_)


def _unpack_all(messages: Any, sizes: Any, type_: type[T]) -> list[T]:
    return [unpack(message, type_) for message in np.split(messages, np.cumsum(sizes)[:-1])]


@dataclass(frozen=True)
class Failure:
    """Description of an exception, for other processes.

    Attributes
    ----------
    classes : tuple of (str, str)
        Module and name of its class and of the base classes.
    text : str
    exit_code : int
        Exit code of a `CecError` or `SystemExit`, otherwise 1.
    """

    classes: tuple[tuple[str, str], ...]
    text: str
    exit_code: int

    @classmethod
    def from_exception(cls, error: BaseException) -> Failure:
        """Describe an exception.

        Examples
        --------
        >>> from cec_mpi.errors import InputError
        >>> Failure.from_exception(InputError("no such store")).to_exception()
        InputError('no such store')
        """
        classes = tuple((base.__module__, base.__qualname__) for base in type(error).__mro__)
        if isinstance(error, SystemExit) and isinstance(error.code or 0, int):
            return cls(classes, "", int(error.code or 0))
        (text,) = error.args if len(error.args) == 1 else (None,)
        if not isinstance(text, str):
            text = error_suffix(error).removeprefix(": ")
        return cls(classes, text, error.exit_code if isinstance(error, CecError) else 1)

    def to_exception(self) -> BaseException:
        """Return the exception.

        It has the original class if the module of that class is already imported here. Otherwise it
        has the nearest imported base class that is a `CecError`, or `CecError` itself.
        """
        loaded_classes = [_loaded_class(module, name) for module, name in self.classes]
        if loaded_classes[0] is SystemExit:
            return SystemExit(self.text or self.exit_code)
        type_, text = loaded_classes[0], self.text
        if type_ is None:
            type_ = next((c for c in loaded_classes if c and issubclass(c, CecError)), None)
        if type_ is None:
            type_, text = CecError, f"{self.classes[0][1]}: {self.text}"
        error = type_.__new__(type_, text)
        error.args = (text,) if text else ()
        if isinstance(error, CecError):
            error.exit_code = self.exit_code
        return error


def _loaded_class(module: str, name: str) -> type[BaseException] | None:
    """Return an exception class of an imported module; None if there is none."""
    value = getattr(sys.modules.get(module), name, None)
    return value if isinstance(value, type) and issubclass(value, BaseException) else None
