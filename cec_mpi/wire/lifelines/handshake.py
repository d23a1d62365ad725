"""Two processes prove to each other that they know a secret, and neither sends it.

=============  ==================================================================
caller         hello: version, what it claims to be, a nonce
listener       a nonce
caller         proof: an HMAC of both messages before, made by a caller
listener       proof: the same made by a listener, which says welcome or refused
=============  ==================================================================

Each message has a fixed length. Nonces are new each time, so that a recorded handshake is
worth nothing; who made a proof is part of it, so that one cannot be sent back to where it came
from; and so is the claim. The caller proves first: who does not know the secret learns nothing
but a nonce. What this does not see is somebody in between who hands on every byte.

Nothing here waits: a handshake is a generator of what is to be sent and how much is to be
received then, and `Conversation` drives one over a socket.
"""

from __future__ import annotations

import hmac
import secrets
import select
import socket
import struct
import time
from collections.abc import Callable, Generator

HANDSHAKE_SECONDS = 3.0  # that a caller has in all

SECRET_BYTES = 32

_NONCE = _PROOF = 32  # bytes
_HELLO = struct.Struct(f"!4sBq{_NONCE}s")  # mark, version, claim, nonce
_MARK, _VERSION = b"cecm", 1
_CALLER, _WELCOME, _REFUSED = b"caller", b"welcome", b"refused"

Steps = Generator[tuple[bytes, int], bytes, int]


class HandshakeError(ConnectionError):
    """The other end does not know the secret, or speaks another language."""


class RefusedError(HandshakeError):
    """The other end knows the secret, and the claim is not granted."""


class SilenceError(HandshakeError):
    """The other end says too little, too late, or leaves."""


def call(secret: bytes, claim: int) -> Steps:
    """A caller's part.

    Parameters
    ----------
    secret : bytes
        At least 16 that cannot be guessed; `SECRET_BYTES` random ones are good.
    claim : int
        What the caller says it is, from -2^63 to 2^63 - 1.

    Yields
    ------
    bytes, int
        What is to be sent, and how many bytes are to be received then.

    Returns
    -------
    int
        The claim, which is granted.

    Raises
    ------
    RefusedError
        It is not.
    HandshakeError
        Somebody else listens.
    """
    hello = _HELLO.pack(_MARK, _VERSION, claim, secrets.token_bytes(_NONCE))
    said = hello + (yield hello, _NONCE)
    answer = yield _proof(secret, _CALLER, said), _PROOF
    if hmac.compare_digest(answer, _proof(secret, _REFUSED, said)):
        raise RefusedError(f"the claim to be {claim} is refused")
    if not hmac.compare_digest(answer, _proof(secret, _WELCOME, said)):
        raise HandshakeError("somebody else answers")
    return claim


def listen(secret: bytes, grants: Callable[[int], bool]) -> Steps:
    """A listener's part.

    Parameters
    ----------
    secret : bytes
    grants : callable
        Called with the claim of a caller that knows the secret: whether it is granted.

    Yields
    ------
    bytes, int
        What is to be sent, and how many bytes are to be received then.

    Returns
    -------
    int
        The claim, which was granted.

    Raises
    ------
    RefusedError
        It was not.
    HandshakeError
        A stranger calls.
    """
    hello = yield b"", _HELLO.size
    mark, version, claim, _ = _HELLO.unpack(hello)
    if mark != _MARK:
        raise HandshakeError("it speaks another language")
    if version != _VERSION:
        raise HandshakeError(f"it speaks version {version} of the handshake, not {_VERSION}")
    nonce = secrets.token_bytes(_NONCE)
    said = hello + nonce
    proof = yield nonce, _PROOF
    if not hmac.compare_digest(proof, _proof(secret, _CALLER, said)):
        raise HandshakeError("it does not know the secret")
    granted = grants(claim)
    yield _proof(secret, _WELCOME if granted else _REFUSED, said), 0
    if not granted:
        raise RefusedError(f"the claim to be {claim} is refused")
    return int(claim)


def _proof(secret: bytes, role: bytes, said: bytes) -> bytes:
    return hmac.digest(secret, role + said, "sha256")


class Conversation:
    """One end of a handshake over a socket, without ever waiting.

    Nothing beyond the handshake is read from the socket.

    Parameters
    ----------
    connection : socket.socket
        It does not block any more from now on.
    steps : generator
        Of `call` or `listen`.

    Attributes
    ----------
    claim : int
        When it is over.
    has_heard : bool
        The other end has sent a whole message.
    """

    def __init__(self, connection: socket.socket, steps: Steps) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.claim = 0
        self.has_heard = False
        self._steps = steps
        self._unsent, self._missing = next(steps)
        self._received = b""

    @property
    def waits_for(self) -> int:
        """For `select.poll`: what has to be possible before `go_on` can do anything."""
        return select.POLLOUT if self._unsent else select.POLLIN

    def go_on(self) -> bool:
        """Send and receive what can be now.

        Returns
        -------
        bool
            The handshake is over, and both ends know each other.

        Raises
        ------
        HandshakeError
            As `call` and `listen`, or the other end has left.
        OSError
            Of the connection.
        """
        try:
            while True:
                while self._unsent:
                    self._unsent = self._unsent[self.connection.send(self._unsent) :]
                while self._missing:
                    self._receive()
                received, self._received = self._received, b""
                self.has_heard = True
                self._unsent, self._missing = self._steps.send(received)
        except BlockingIOError:
            return False
        except StopIteration as end:
            self.claim = end.value
            return True

    def _receive(self) -> None:
        received = self.connection.recv(self._missing)
        if not received:
            raise SilenceError("the other end has left")
        self._received += received
        self._missing -= len(received)


def shake_hands(connection: socket.socket, steps: Steps, seconds: float) -> None:
    """Drive a handshake to its end, in so many seconds.

    Parameters
    ----------
    connection : socket.socket
        It does not block any more from now on.
    steps : generator
        Of `call` or `listen`.
    seconds : float
        For all of it, however slowly the other end sends.

    Raises
    ------
    SilenceError
        It takes longer, or the other end leaves.
    HandshakeError, OSError
        As `Conversation.go_on`.
    """
    due = time.monotonic() + seconds
    conversation = Conversation(connection, steps)
    while not conversation.go_on():
        left = due - time.monotonic()
        if left <= 0:
            raise SilenceError(f"no handshake within {seconds:g} s")
        poll = select.poll()
        poll.register(connection, conversation.waits_for)
        poll.poll(1e3 * left)
