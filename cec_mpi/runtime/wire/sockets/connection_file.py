"""The connection file: addresses and keys with which machines connect to the master."""

from __future__ import annotations

import hmac
import json
import os
import re
import socket
import stat
import struct
from collections.abc import Sequence
from contextlib import suppress
from itertools import filterfalse
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct, convert, to_builtins

from cec_mpi.errors import InputError
from cec_mpi.runtime.wire.sockets.interfaces import list_interfaces
from cec_mpi.runtime.wire.sockets.zeromq import import_zmq
from cec_mpi.store.files.durable import publish
from cec_mpi.store.files.regular import NotAFileError, open_regular, unreadable_reason
from cec_mpi.text import plural, shorten

SCRATCH_PREFIX = "cec_mpi-"  # prefix of temporary directories with a connection file or a socket
KEY_VARIABLE = "CEC_MPI_KEY"  # the environment variable with a secret
MIN_SECRET_LENGTH = 16  # characters

_FORMAT_NAME, _VERSION = "cec_mpi connection file", 2
_MAX_FILE_BYTES = 1 << 16
_MAX_PATH_BYTES = 107  # of a Unix socket
_KEY_BYTES = 32
_FILE_MODE, _FORBIDDEN_MODE = 0o600, stat.S_IWGRP | stat.S_IWOTH
WILDCARD_ADDRESSES = ("", "0.0.0.0", "::")  # mean all addresses of a computer
MAX_PORT = (1 << 16) - 1
Text = Annotated[str, Meta(max_length=1024)]
Address = Annotated[Text, Meta(min_length=1)]
Port = Annotated[int, Meta(ge=1, le=MAX_PORT)]
_ADDRESS_AND_PORT = re.compile(r"(?:\[([^\s\[\]]+)\]|([^\s\[\]:]*)):([0-9]{1,5})")


class Key(bytes):
    """A key in Z85."""


class Keys(NamedTuple):
    """The keys of a run, in Z85.

    Attributes
    ----------
    server_key, server_secret : bytes
        Public and secret key of the master.
    public_key, secret_key : bytes
        Public and secret key that all machines share.
    """

    server_key: Key
    server_secret: Key
    public_key: Key
    secret_key: Key


def generate_keys() -> Keys:
    """Return random keys."""
    zmq = import_zmq()
    return Keys(*map(Key, (*zmq.curve_keypair(), *zmq.curve_keypair())))


def derive_keys(secret: str, encrypted: bool) -> Keys:
    """Derive keys from a secret that the master and all machines share.

    Parameters
    ----------
    secret : str
    encrypted : bool
        Whether connections are encrypted. Other keys are derived for unencrypted runs, because they
        send a key as a password.

    Raises
    ------
    InputError
        The secret is too short.
    """
    if len(secret) < MIN_SECRET_LENGTH:
        raise InputError(
            f"{KEY_VARIABLE} has {plural(len(secret), 'character')}: expected at least "
            f"{MIN_SECRET_LENGTH}; python -c 'import secrets; print(secrets.token_urlsafe(32))' "
            "makes a key"
        )
    zmq = import_zmq()
    from zmq.utils import z85

    pairs: list[bytes] = []
    for role in ("master", "machine"):
        purpose = f"cec_mpi {role} {'encrypted' if encrypted else 'plain'}"
        key = z85.encode(hmac.digest(os.fsencode(secret), purpose.encode(), "sha256"))
        pairs += [zmq.curve_public(key), key]
    return Keys(*map(Key, pairs))


class ConnectionFile(
    Struct,
    frozen=True,
    forbid_unknown_fields=True,
    rename={"addresses": "at", "socket_path": "local", "job_id": "job"},
):
    """Addresses at which a run listens for machines, and the keys to join it: keep it secret.

    Attributes
    ----------
    addresses : tuple of (str, int)
        Host names or addresses of the master, the best first, each with a port.
    network : str
        Network namespace of the master (`network_id`), in which the loopback addresses of
        `addresses` are valid; empty if unknown.
    server_key : bytes
        Public key of the master, in Z85.
    public_key, secret_key : bytes
        Public and secret key that all machines share, in Z85.
    socket_path : str
        Path of the master's Unix socket; empty if it has none.
    encrypted : bool
        Whether TCP connections are encrypted. If not, `secret_key` is their password.
    job_id : str
        Identifier of the master's job in the launcher or batch system; empty if it has none.
    """

    addresses: Annotated[tuple[tuple[Address, Port], ...], Meta(min_length=1)]
    network: Text
    server_key: Key
    public_key: Key
    secret_key: Key
    socket_path: Text
    encrypted: bool
    job_id: Text

    def __post_init__(self) -> None:
        addresses = (address for address, _ in self.addresses)
        if not "".join((self.network, self.socket_path, self.job_id, *addresses)).isprintable():
            raise ValueError("a character that cannot be printed")
        if self.socket_path and (
            self.socket_path[0] != "/" or len(os.fsencode(self.socket_path)) > _MAX_PATH_BYTES
        ):
            raise ValueError("expected the path of a socket")

    def __repr__(self) -> str:  # without keys
        return f"ConnectionFile(addresses={self.addresses}, socket_path={self.socket_path!r})"

    def to_builtins(self) -> dict[str, Any]:
        """Return all fields, with the keys, as types that JSON supports."""
        content: dict[str, Any] = to_builtins(self, enc_hook=bytes.decode)
        return content

    @staticmethod
    def from_builtins(content: dict[str, Any]) -> ConnectionFile:
        """Return the file from the result of `to_builtins`; raise `ValueError` if it is invalid."""
        return convert(content, ConnectionFile, dec_hook=_decode_key)

    def write(self, path: Path) -> None:
        """Write or replace the file; only its owner can read it.

        Raises
        ------
        InputError
            The file cannot be written.
        """
        content = {"format": _FORMAT_NAME, "version": _VERSION, **self.to_builtins()}
        try:
            publish(path, f"{json.dumps(content, indent=2)}\n".encode(), _FILE_MODE)
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror}") from None

    def remove(self, path: Path) -> None:
        """Remove the file, unless another run has replaced it."""
        with suppress(OSError, InputError):
            if read_connection_file(path) == self:
                path.unlink()


def remove_stale_files(file: ConnectionFile, path: Path) -> None:
    """Remove the connection file and the socket of a killed master."""
    file.remove(path)
    with suppress(OSError):
        if path.parent.name.startswith(SCRATCH_PREFIX):
            path.parent.rmdir()
    remove_stale_socket(file.socket_path)


def remove_stale_socket(path: str) -> None:
    """Remove the Unix socket of a killed master, and its directory."""
    with suppress(OSError):
        Path(path).unlink()
        Path(path).parent.rmdir()


def connection_from_secret(address: str, port: int, secret: str, encrypted: bool) -> ConnectionFile:
    """Return the address and keys of a master that writes no connection file.

    Parameters
    ----------
    address : str
        Host name or address at which the master listens.
    port : int
    secret : str
        The secret of the master.
    encrypted : bool
        Whether the master encrypts connections.

    Raises
    ------
    InputError
        The secret is too short, or the address is empty or stands for all addresses.
    """
    if address in WILDCARD_ADDRESSES:
        raise InputError(f"{address}:{port}: expected the host name or address of the master")
    keys = derive_keys(secret, encrypted)
    return ConnectionFile(
        ((address, port),), "", keys.server_key, keys.public_key, keys.secret_key, "", encrypted, ""
    )


def check_connection_path(path: Path) -> None:
    """Raise if a connection file must not or cannot be written at this path.

    Raises
    ------
    InputError
        The path is that of another file, or its directory does not exist.
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
    """Read and validate a connection file.

    Raises
    ------
    InputError
        The file is missing, damaged or of another kind or version, or another user may have
        written it. This process would otherwise connect to a run of that user and serve it.
    """
    try:
        with os.fdopen(open_regular(path), "rb") as file:
            status = os.fstat(file.fileno())
            content = json.loads(file.read(_MAX_FILE_BYTES))
    except FileNotFoundError:
        raise InputError(
            f"{path} does not exist: expected the connection file of a run, DIR/connection.json "
            "or the FILE of --accept, or HOST:PORT"
        ) from None
    except NotAFileError as error:
        raise InputError(
            f"{path} is {error.kind}: expected the connection file of a run, DIR/connection.json"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: {unreadable_reason(error)}") from None
    except (RecursionError, ValueError):
        content = None
    if not isinstance(content, dict) or content.pop("format", None) != _FORMAT_NAME:
        raise InputError(f"{path} is not a connection file of cec_mpi")
    if status.st_uid != os.geteuid():
        raise InputError(f"{path} belongs to user {status.st_uid}: expected a file of your own")
    if status.st_mode & _FORBIDDEN_MODE:
        raise InputError(
            f"{path} can be written by other users (mode {stat.S_IMODE(status.st_mode):o}): "
            f"expected mode {_FILE_MODE:o}"
        )
    version = content.pop("version", None)
    if version != _VERSION:
        raise InputError(
            f"{path} has version {shorten(version)}: expected {_VERSION}; use the same cec_mpi "
            "everywhere"
        )
    try:
        return ConnectionFile.from_builtins(content)
    except ValueError:
        raise InputError(f"{path} is a damaged connection file") from None


def _decode_key(type_: type[Key], text: Any) -> Key:
    from zmq.utils import z85

    with suppress(KeyError, struct.error):
        if len(z85.decode(text)) == _KEY_BYTES:
            return type_(text, "ascii")
    raise ValueError("not a key in Z85")


def local_addresses() -> list[str]:
    """Return the host names and addresses of this computer, ending with 127.0.0.1."""
    addresses = [socket.gethostname(), socket.getfqdn()]
    with suppress(OSError):
        addresses += [str(info[4][0]) for info in socket.getaddrinfo(addresses[0], None)]
    with suppress(OSError):
        addresses += [interface.address for interface in list_interfaces()]
    return [*filterfalse(is_loopback, dict.fromkeys(addresses)), "127.0.0.1"]


def order_addresses(
    addresses: Sequence[tuple[str, int]], same_network: bool
) -> list[tuple[str, int]]:
    """Return the addresses at which to connect to the master, in the order of the attempts.

    Parameters
    ----------
    addresses : sequence of (str, int)
        See `ConnectionFile.addresses`.
    same_network : bool
        Whether this process is in the network namespace of the master.

    Examples
    --------
    >>> addresses = [("node1", 5555), ("127.0.0.1", 5555)]
    >>> order_addresses(addresses, True)
    [('127.0.0.1', 5555), ('node1', 5555)]
    >>> order_addresses(addresses, False)
    [('node1', 5555)]
    """
    loopback = [address for address in addresses if is_loopback(address[0])]
    remote = [address for address in addresses if address not in loopback]
    return loopback + remote if same_network or not remote else remote


def is_loopback(address: str) -> bool:
    """Whether a host name or address is a loopback address."""
    return address in ("::1", "localhost") or address.startswith("127.")


def parse_address(text: str) -> tuple[str, int]:
    """Parse HOST:PORT.

    Parameters
    ----------
    text : str
        An IPv6 address must be in brackets. An empty name or ``*`` stands for all addresses.

    Returns
    -------
    address : str
        Host name or address; empty for all addresses.
    port : int

    Raises
    ------
    InputError
        The text has another format.

    Examples
    --------
    >>> parse_address("node1:5555"), parse_address("[::1]:5555"), parse_address(":5555")
    (('node1', 5555), ('::1', 5555), ('', 5555))
    """
    match = _ADDRESS_AND_PORT.fullmatch(text)
    if not match or not 0 < int(match[3]) <= MAX_PORT:
        raise InputError(
            f"{shorten(text)}: expected HOST:PORT with a port from 1 to {MAX_PORT}, for "
            "example node1:5555 or [::1]:5555"
        )
    address = match[1] or match[2]
    return "" if address == "*" else address, int(match[3])
