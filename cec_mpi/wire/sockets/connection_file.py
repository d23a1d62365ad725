"""The file that says where a run listens for machines, and has the keys to join it."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_letters, digits
from typing import Any

from cec_mpi.errors import InputError
from cec_mpi.files.durable import publish
from cec_mpi.files.regular import read_regular, why_unreadable
from cec_mpi.text import shown

_MARK, _VERSION = "cec_mpi connection file", 1
_MOST = 1 << 16  # bytes
_KEY = 40  # characters of a key in Z85,
_Z85 = f"{digits}{ascii_letters}.-:+=^!/*?&<>()[]{{}}@%$#"  # which are these, in this order:
_GROUP = 5  # of them are 32 bits
_OWNER_ALONE = 0o600


@dataclass(frozen=True)
class ConnectionFile:
    """Where a run listens for machines, and the keys to join it: not to be shown.

    Attributes
    ----------
    places : tuple of (str, int)
        Names or addresses, the likeliest first, each with a port.
    network : str
        Where 127.0.0.1 is the master's own (`network_here`).
    server_key : bytes
        The master's public key, in Z85.
    public_key, secret_key : bytes
        Of all machines, in Z85.
    """

    places: tuple[tuple[str, int], ...]
    network: str
    server_key: bytes = field(repr=False)
    public_key: bytes = field(repr=False)
    secret_key: bytes = field(repr=False)

    def write(self, path: Path) -> None:
        """Put it in the place of an earlier one, readable by its owner alone.

        Raises
        ------
        InputError
            It cannot be written.
        """
        keys = ("server_key", "public_key", "secret_key")
        content = {
            "format": _MARK,
            "version": _VERSION,
            "at": self.places,
            "network": self.network,
            **{key: getattr(self, key).decode() for key in keys},
        }
        try:
            publish(path, f"{json.dumps(content, indent=2)}\n".encode(), _OWNER_ALONE)
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror}") from None

    def remove(self, path: Path) -> None:
        """Remove it, unless another run has put its own there."""
        with suppress(OSError, InputError):
            if read_connection_file(path) == self:
                path.unlink()


def check_place(path: Path) -> None:
    """Refuse a name that is a file of another kind, or in a directory that is not there.

    Raises
    ------
    InputError
        Says which.
    """
    if not path.absolute().parent.is_dir():
        raise InputError(f"accept {path}: {path.absolute().parent} is not a directory")
    if os.path.lexists(path):
        try:
            read_connection_file(path)
        except InputError as error:
            raise InputError(
                f"accept {path}: expected a new name, or an earlier connection file ({error})"
            ) from None


def read_connection_file(path: Path) -> ConnectionFile:
    """What a run has written.

    Raises
    ------
    InputError
        It is not there, or something else.
    """
    try:
        content = json.loads(read_regular(path, _MOST))
    except OSError as error:
        raise InputError(f"{path}: {why_unreadable(error)}") from None
    except (RecursionError, ValueError):
        content = None
    if not isinstance(content, dict) or content.get("format") != _MARK:
        raise InputError(f"{path} is no connection file, as cec-mpi run --accept writes one")
    if content.get("version") != _VERSION:
        version = shown(content.get("version"))
        raise InputError(f"{path} has version {version}: expected {_VERSION}, of the same cec_mpi")
    try:
        keys = [_key(content[name]) for name in ("server_key", "public_key", "secret_key")]
        places = tuple((str(host), port) for host, port in content["at"])
        if not places or not all(type(p) is int and 0 < p < 1 << 16 for _, p in places):
            raise ValueError
        return ConnectionFile(places, str(content["network"]), *keys)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise InputError(f"{path} is damaged: a connection file without its keys") from None


def _key(text: Any) -> bytes:
    key: bytes = text.encode("ascii")
    if len(key) != _KEY:
        raise ValueError
    for begin in range(0, _KEY, _GROUP):
        bits = 0
        for character in text[begin : begin + _GROUP]:
            bits = bits * len(_Z85) + _Z85.index(character)
        if bits >> 32:
            raise ValueError
    return key
