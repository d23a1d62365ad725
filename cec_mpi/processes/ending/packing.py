"""An exception in bytes, so that all ranks raise what one rank raised."""

from __future__ import annotations

import logging
import pickle
from typing import Any

from cec_mpi.errors import CecError

log = logging.getLogger(__name__)


def pack_error(error: BaseException | None) -> bytes:
    """An exception, or none, as bytes that `unpack_error` reads on any rank.

    Examples
    --------
    >>> unpack_error(pack_error(KeyError("w")))
    KeyError('w')
    """
    if error is None:
        return b""
    text = f"{type(error).__name__}: {error}"
    return pickle.dumps((text, _packed(error) or _packed(_Parts(error)) or b""))


def unpack_error(message: bytes) -> BaseException | None:
    """The exception; a `CecError` that tells it in words where its class cannot be had."""
    if not message:
        return None
    text, packed = pickle.loads(message)
    try:
        found = pickle.loads(packed)
        return found.error() if isinstance(found, _Parts) else found
    except Exception:  # such as the import of a module that only rank 0 finds
        log.info("an exception whose class cannot be had here: %s", text)
        return CecError(text)


class _Parts:
    """An exception whose class takes other arguments than `args`: set up without them."""

    def __init__(self, error: BaseException) -> None:
        self._kind = type(error)
        self._args = error.args
        self._state = dict(error.__dict__)

    def error(self) -> BaseException:
        error = self._kind.__new__(self._kind, *self._args)
        error.args = self._args
        error.__dict__.update(self._state)
        return error


def _packed(content: Any) -> bytes | None:
    """None for what does not survive the way."""
    try:
        message = pickle.dumps(content)
        pickle.loads(message)
    except Exception:
        return None
    return message
