"""Machines gathered around a master until it leaves, on the exchange that options ask for."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from cec_mpi.errors import InputError
from cec_mpi.options.losses import Running
from cec_mpi.options.session import SessionOptions
from cec_mpi.processes.ending.failing import dying_alone, ending_the_job, starting_together
from cec_mpi.processes.ending.leaving import (
    leave_now,
    leave_without_mpi,
    leaves_without_mpi,
    note_exit_status,
)
from cec_mpi.processes.ending.raising import raised_together
from cec_mpi.processes.launch.cards import where_to_listen
from cec_mpi.processes.launch.library import (
    library_name,
    starts_processes,
    survives_losses,
    world_size,
)
from cec_mpi.processes.launch.places import place_here, place_of_ranks
from cec_mpi.processes.meeting import meet
from cec_mpi.processes.start import begin_start
from cec_mpi.processes.together import all_coming, check_start

if TYPE_CHECKING:
    from mpi4py import MPI

    from cec_mpi.session.session import Session

_RAISING_SECONDS = 0.1  # that rank 0 is ahead: under `python -m mpi4py` who raises ends all

_not_freed: list[MPI.Intracomm] = []  # Free would wait for a process that is lost just then
_serving: list[MPI.Group] = []  # groups of processes that are gathered around this one


@contextmanager
def gathered(
    comm: MPI.Intracomm | None, logs: Path | None = None, options: SessionOptions | None = None
) -> Iterator[Session | None]:
    """Collective: machines that serve a master on rank 0, until it leaves.

    However rank 0 leaves, all ranks leave: with the same exception, if it is by one.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm or None
        The master and one rank per machine; None for all machines in this process, or such that
        join.
    logs : Path, optional
        Directory for a log of each machine.
    options : SessionOptions, optional
        How machines are waited for, and whether a session goes on without one that is lost; on
        rank 0.

    Yields
    ------
    Session or None
        None on the machines, when rank 0 has left.

    Raises
    ------
    InputError
        The processes of `comm` serve already, were not started to work together, or machines
        in this process cannot be lost.
    MachineError
        Not all processes of `comm` have come in time.
    """
    options = options or SessionOptions()
    running = options.running(alone=comm is None)
    if comm is None and running is Running.JOINING:
        from cec_mpi.session.joining.master import served_by_those_that_join

        yield from served_by_those_that_join(logs, options)
        return
    if comm is None:
        from cec_mpi.master.lockstep import LockstepMaster
        from cec_mpi.session.local import LocalHub
        from cec_mpi.session.session import Session

        with ExitStack() as kept:
            # What it opened ends with it.
            yield Session(LocalHub(), LockstepMaster, [place_here()], "", kept)
        return
    if leaves_without_mpi():
        raise raised_together(
            comm, InputError("a process was lost before: this program cannot open another operator")
        )
    begin_start(options.start_timeout)
    with (
        starting_together(),
        _once(comm),
        all_coming(comm, options.start_timeout),
        _duplicate(comm) as own,
    ):
        check_start(own)
        running, continues, spawns = comm.bcast(
            (running, options.goes_on, options.starts_others), root=0
        )
        if continues and 1 < comm.size < world_size():
            option = _how_it_continues(running)
            raise raised_together(
                comm,
                InputError(
                    f"{option} with {comm.size} of {world_size()} processes: those that have no "
                    "part would wait for lost ones when MPI ends"
                ),
            )
        if spawns and not starts_processes():
            raise raised_together(
                comm,
                InputError(
                    f"replace spawn: {library_name()} starts no process during a run here (Open "
                    "MPI's mpirun --with-ft ulfm does): use spares (--spares)"
                ),
            )
        if continues:
            _not_freed.append(own)
        if running is Running.LOCKSTEP:
            yield from _take_part(own, logs)
        else:
            yield from _take_part_by_messages(own, logs, running, continues, spawns, options)


def _take_part(comm: MPI.Intracomm, logs: Path | None) -> Iterator[Session | None]:
    """Serve, or be served, by collectives."""
    if comm.rank:  # which reads nothing that only the master needs
        from cec_mpi.session.serving import serve
        from cec_mpi.wire.collective.machine_end import CollectiveMachineEnd
    else:
        from cec_mpi.master.lockstep import LockstepMaster
        from cec_mpi.session.callers import turns_with_mpi
        from cec_mpi.session.session import Session
        from cec_mpi.wire.collective.hub import CollectiveHub

    places = place_of_ranks(comm)
    meet(comm)
    if comm.rank:
        with ending_the_job(comm, known=()):
            error = serve(comm.rank, CollectiveMachineEnd(comm))
        _raise_together_after_rank_0(comm, error)
        yield None
        return
    hub = CollectiveHub(comm)
    try:
        with ExitStack() as kept:
            turns = turns_with_mpi()
            given = places, library_name(), kept, logs, turns, Running.LOCKSTEP
            yield Session(hub, LockstepMaster, *given)
    except BaseException as error:
        hub.stop(error)
        raised_together(comm, error)
        raise
    hub.stop(None)


def _take_part_by_messages(
    comm: MPI.Intracomm,
    logs: Path | None,
    running: Running,
    continues: bool,
    spawns: bool,
    options: SessionOptions,
) -> Iterator[Session | None]:
    """Serve, or be served, by messages: processes that are lost hold up nobody."""
    if comm.rank:
        from cec_mpi.session.serving import serve
        from cec_mpi.wire.messages.machine_end import meet_master
    else:
        from cec_mpi.master.resilient import ResilientMaster
        from cec_mpi.session import spawned
        from cec_mpi.session.callers import turns_with_mpi
        from cec_mpi.session.session import Session
        from cec_mpi.wire.messages.hub import MessagesHub
        from cec_mpi.wire.messages.ranks import Ranks

    places = place_of_ranks(comm)
    if comm.rank:
        with dying_alone(comm) if continues else ending_the_job(comm, known=()):
            end = meet_master(comm, leave_now)
            meet(comm)
            error = serve(comm.rank, end)
        if end.others_are_lost:
            leave_without_mpi()
        _raise_together_after_rank_0(comm, error)
        yield None
        return
    at = callers = problem = error = None
    alone = len({place.network for place in places}) == 1
    try:
        if continues and comm.size > 1:
            options.check_ports()
            at = where_to_listen(options.interface, alone, not spawns)
        if running is Running.JOINING:
            from cec_mpi.session.joining.master import reception

            callers = reception(options, alone)
    except InputError as caught:
        problem = caught
    program = spawned.__name__ if spawns else None
    hub = MessagesHub(
        comm.size - 1, continues, partial(Ranks, comm, at, options.ports, program), callers
    )
    meet(comm)
    try:
        if problem is not None:
            raise problem
        if continues and comm.size > 1 and not survives_losses():
            warnings.warn(
                f"{_how_it_continues(running)}: this launcher ends the job when a process is lost "
                "(Open MPI's mpirun --with-ft ulfm does not); --resume then goes on from the "
                "checkpoint",
                stacklevel=2,
            )
        with ExitStack() as kept:
            turns = turns_with_mpi()
            given = places, library_name(), kept, logs, turns, running
            yield Session(hub, ResilientMaster, *given)
    except BaseException as caught:
        error = raised_together(comm, caught)
        if isinstance(caught, SystemExit):
            note_exit_status(caught.code)
        raise
    finally:
        hub.stop(error)
        if hub.lost_any:
            leave_without_mpi(others_are_stuck=hub.out_of_reach)


def _raise_together_after_rank_0(comm: MPI.Intracomm, error: BaseException | None) -> None:
    if error is not None:
        time.sleep(_RAISING_SECONDS)
        raise raised_together(comm, error)


def _how_it_continues(running: Running) -> str:
    """The option that asks for a session to go on without processes that are lost."""
    return "accept" if running is Running.JOINING else "on_loss='continue'"


def serves(comm: MPI.Intracomm) -> bool:
    """Whether processes of this communicator serve an operator, or ask one."""
    group = comm.Get_group()
    try:
        return any(_have_two_in_common(group, other) for other in _serving)
    finally:
        group.Free()


def _have_two_in_common(group: MPI.Group, other: MPI.Group) -> bool:
    common = type(group).Intersection(group, other)
    try:
        return bool(common.size > 1)
    finally:
        common.Free()


@contextmanager
def _once(comm: MPI.Intracomm) -> Iterator[None]:
    """Refuse processes that serve already: they would wait for ever."""
    group = comm.Get_group()
    try:
        if serves(comm):
            raise raised_together(
                comm,
                InputError(
                    "the machines of this communicator serve another operator: open a further "
                    "store with X.open(store)"
                ),
            )
        _serving.append(group)
        try:
            yield
        finally:
            _serving.remove(group)
    finally:
        group.Free()


@contextmanager
def _duplicate(comm: MPI.Intracomm) -> Iterator[MPI.Intracomm]:
    own = comm.Dup()
    try:
        yield own
    finally:
        if own not in _not_freed and not leaves_without_mpi():
            own.Free()
