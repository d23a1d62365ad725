"""Rank 0, served by processes that come by themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from cec_mpi.errors import InputError
from cec_mpi.master.resilient import ResilientMaster
from cec_mpi.options.losses import Running
from cec_mpi.options.session import SessionOptions
from cec_mpi.processes.launch.cards import where_to_listen
from cec_mpi.processes.launch.places import place_here
from cec_mpi.session.session import Session
from cec_mpi.session.turns import Turns
from cec_mpi.wire.messages.hub import MessagesHub
from cec_mpi.wire.sockets.callers import Reception
from cec_mpi.wire.sockets.connection import Connection, GoneMasterError
from cec_mpi.wire.sockets.connection_file import (
    ConnectionFile,
    check_place,
    read_connection_file,
)
from cec_mpi.wire.sockets.listener import Listener


def reception(options: SessionOptions, alone: bool = True) -> Reception:
    """Where processes come that join; listens from now on.

    Parameters
    ----------
    options : SessionOptions
    alone : bool
        All ranks are in the same network of the same computer.

    Raises
    ------
    InputError
        It cannot be, as the options are.
    """
    options.check_accept()
    assert options.accept is not None
    file = Path(options.accept)
    check_place(file)
    earlier = _of_an_earlier_run(file)
    at = where_to_listen(options.interface, alone, stays_alone=False)
    spare = int(options.check == "parity")
    return Reception(Listener(at, options.ports), file, options.wait, spare, earlier)


def served_by_those_that_join(logs: Path | None, options: SessionOptions) -> Iterator[Session]:
    """Be served by processes that join, by messages over sockets, without MPI; see `gathered`."""
    hub = MessagesHub(0, continues=True, callers=reception(options))
    error: BaseException | None = None
    turns = Turns()
    try:
        with ExitStack() as kept:
            given = [place_here()], "", kept, logs, turns, Running.JOINING
            yield Session(hub, ResilientMaster, *given)
    except BaseException as caught:
        error = caught
        raise
    finally:
        if not turns.elsewhere:  # a process that was forked from this one ends nothing
            hub.stop(error)


def _of_an_earlier_run(file: Path) -> ConnectionFile | None:
    """What a run has left there; one that goes on keeps its file, or no machine would find it."""
    if not file.exists():
        return None
    found = read_connection_file(file)
    try:
        Connection(found).close()
    except GoneMasterError:
        return found
    raise InputError(f"accept {file}: another run listens there, expected a name of its own")
