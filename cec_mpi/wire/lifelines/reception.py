"""Where callers are heard: a thread that shakes hands with many of them side by side.

Strangers cost the others nothing but a little time: each caller has a few seconds in all, and
when there are too many at once, those go first that have said nothing for longest.
"""

from __future__ import annotations

import errno
import logging
import resource
import select
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from cec_mpi.wire.lifelines.handshake import (
    HANDSHAKE_SECONDS,
    Conversation,
    HandshakeError,
    RefusedError,
    Steps,
    listen,
)

log = logging.getLogger(__name__)

_MOST_CALLERS = 256  # at once, and no more than a quarter of the files that may be open
_LEAST_SECONDS = 0.25  # that each has, however many there are
_PAUSE_SECONDS = 0.1  # after an error that time may mend
_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


def is_shortage(error: OSError) -> bool:
    """Whether there are too few file descriptors, or too little memory: now, not for ever."""
    return error.errno in _SHORTAGES


class Reception:
    """Listens, and hands over the connections of callers that know the secret.

    Parameters
    ----------
    hosts : sequence of str
        Addresses to listen at; an empty one is all that this computer has.
    secret : bytes
        As of `listen`.
    grants : callable
        As of `listen`; called in the thread of the reception, as `welcome` is.
    welcome : callable
        Called with a claim and the connection of who made it.
    ports : (int, int), optional
        The first and the last port that may be taken; by default any.

    Attributes
    ----------
    ports : list of int
        Where it listens at each of `hosts`.

    Raises
    ------
    OSError
        It cannot listen there.
    RuntimeError
        No thread can be started.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        secret: bytes,
        grants: Callable[[int], bool],
        welcome: Callable[[int, socket.socket], None],
        ports: tuple[int, int] | None = None,
    ) -> None:
        self._secret = secret
        self._grants = grants
        self._welcome = welcome
        self._callers: dict[int, _Caller] = {}  # by file descriptor, the oldest first
        self._accepts_from = 0.0  # when
        self._strangers = 0
        self._told_of_shortage = self._told_of_error = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="cec_mpi reception", daemon=True)
        self._listeners: list[socket.socket] = []
        try:
            for host in hosts:
                self._listeners.append(_listener(host, ports))
            self.ports = [int(listener.getsockname()[1]) for listener in self._listeners]
            self._thread.start()
        except (OSError, RuntimeError):
            self._close_listeners()
            raise

    def close(self) -> None:
        """Hear nobody any more; what was handed over stays open."""
        if self._closing.is_set():
            return
        self._closing.set()
        for listener in self._listeners:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # which wakes the thread
        self._thread.join()

    def _work(self) -> None:
        while not self._closing.is_set():
            try:
                self._turn()
            except Exception:  # whatever it is, callers that come later are to be heard
                if self._closing.is_set():
                    break
                if not self._told_of_error:
                    log.exception("callers are heard again after an error")
                self._told_of_error = True
                self._closing.wait(_PAUSE_SECONDS)
        for caller in self._callers.values():
            caller.connection.close()
        self._close_listeners()

    def _turn(self) -> None:
        """Wait until there is something to do, and do it."""
        poll = select.poll()
        now = time.monotonic()
        paused = now < self._accepts_from
        wakes = [self._accepts_from] if paused else []
        for listener in self._listeners:
            poll.register(listener, 0 if paused else select.POLLIN)  # an end shows with 0 too
        for descriptor, caller in self._callers.items():
            poll.register(descriptor, caller.waits_for)
            wakes.append(caller.due)
        wait = None if not wakes else max(0.0, 1e3 * (min(wakes) - now)) + 1
        ready = {descriptor for descriptor, _ in poll.poll(wait)}
        if self._closing.is_set():
            return
        for descriptor in ready & self._callers.keys():
            self._hear(self._callers[descriptor])
        now = time.monotonic()
        for caller in [each for each in self._callers.values() if each.due <= now]:
            self._drop(caller, "it says too little")
        if not paused:
            for listener in self._listeners:
                if listener.fileno() in ready:
                    self._accept(listener)

    def _accept(self, listener: socket.socket) -> None:
        """Let in who has come, as long as there is room."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = _MOST_CALLERS if limit < 0 else max(1, min(_MOST_CALLERS, limit // 4))
        while not self._closing.is_set():
            if len(self._callers) >= most and not self._make_room():
                return
            try:
                connection, address = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if not is_shortage(error):
                    raise
                if not self._told_of_shortage:
                    log.warning("callers wait: %s", error.strerror)
                self._told_of_shortage = True
                if not self._make_room():
                    return
                continue
            try:
                caller = _Caller(connection, listen(self._secret, self._grants), address[0])
            except BaseException:
                connection.close()
                raise
            self._callers[connection.fileno()] = caller
            self._hear(caller)

    def _make_room(self) -> bool:
        """Drop a caller that has had its time, or accept nobody until there is one."""
        latest = time.monotonic() - _LEAST_SECONDS
        had_their_time = [each for each in self._callers.values() if each.begun <= latest]
        if had_their_time:
            # The oldest of those that have said nothing, if there are such.
            self._drop(min(had_their_time, key=lambda each: each.has_heard), "there are too many")
            return True
        self._accepts_from = time.monotonic() + _PAUSE_SECONDS
        return False

    def _hear(self, caller: _Caller) -> None:
        try:
            if not caller.go_on():
                return
        except RefusedError as error:
            log.warning("a caller from %s knows the secret, but %s", caller.host, error)
            self._drop(caller)
        except HandshakeError as error:
            self._drop(caller, error)
        except OSError as error:
            self._drop(caller, error.strerror)
        else:
            del self._callers[caller.connection.fileno()]
            self._welcome(caller.claim, caller.connection)

    def _drop(self, caller: _Caller, reason: object = None) -> None:
        del self._callers[caller.connection.fileno()]
        caller.connection.close()
        if reason is not None:
            self._strangers += 1
            if self._strangers == 10 ** (len(str(self._strangers)) - 1):
                # A line for each would let them fill the disk.
                text = "%d callers were not heard, the last one from %s: %s"
                log.info(text, self._strangers, caller.host, reason)

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()


class _Caller(Conversation):
    """Somebody who has connected and is not known yet."""

    def __init__(self, connection: socket.socket, steps: Steps, host: str) -> None:
        super().__init__(connection, steps)
        self.host = host
        self.begun = time.monotonic()
        self.due = self.begun + HANDSHAKE_SECONDS


def _listener(host: str, ports: tuple[int, int] | None) -> socket.socket:
    """Listens at the first of these ports that is free."""
    first, last = ports or (0, 0)
    for port in range(first, last + 1):
        try:
            listener = _server(host, port)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or port == last:
                raise
        else:
            break
    listener.setblocking(False)
    return listener


def _server(host: str, port: int) -> socket.socket:
    dual = not host and socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if dual or ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=1024, dualstack_ipv6=dual)
