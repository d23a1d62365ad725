"""Work on a store that ranks share: encode, verify, repair, decode, add-machine.

Rank 0 runs the command; the others wait for works, without using a core. Each rank does an equal
part of the pieces, and reports each to rank 0. If one fails, rank 0 tells all to stop, waits until
they have stopped, and raises the first error.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any

from mpi4py import MPI

from cec_mpi.errors import CecError
from cec_mpi.runtime.processes.ending import as_cec_error, ending_the_job
from cec_mpi.runtime.processes.places import place_of_ranks
from cec_mpi.runtime.processes.start import meet
from cec_mpi.runtime.processes.waiting import Patience, wait_for
from cec_mpi.store.work import Watch, Work, do_pieces

_MASTER = 0
_WORK, _TOLD, _END = 1, 2, 3  # tags: a work or None; pieces done; the end of a work
_FOUND, _DONE, _FAILED = "found", "done", "failed"


def run_shared(
    comm: MPI.Intracomm, body: Callable[[SharedRunner], int], watch: Watch | None = None
) -> int:
    """Collective: run `body` on rank 0 with a runner that uses all ranks.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        All processes must see the same files.
    body : callable
        Gets a `Runner`; returns an exit code.
    watch : callable, optional
        Called with the progress, on rank 0.

    Returns
    -------
    int
        The return value of `body` on rank 0, and 0 on the others.
    """
    places = place_of_ranks(comm)
    comm = comm.Dup()
    try:
        meet(comm)
        threads = [place.threads for place in places]
        with ending_the_job(comm):
            if comm.rank:
                _help(comm, threads[comm.rank], places[_MASTER].host)
                return 0
            try:
                return body(SharedRunner(comm, max(threads), threads[0], watch))
            finally:
                for rank in range(1, comm.size):
                    wait_for([comm.isend(None, rank, _WORK)])
    finally:
        comm.Free()


class SharedRunner:
    """Rank 0's runner.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    threads : int
        Largest number of threads of a rank.
    own_threads : int
        Number of threads of this rank.
    watch : callable, optional
        Called with the progress.
    """

    def __init__(
        self, comm: MPI.Intracomm, threads: int, own_threads: int, watch: Watch | None
    ) -> None:
        self.threads = threads
        self.processes = comm.size
        self._comm = comm
        self._own_threads = own_threads
        self.watch = watch
        self._found: list[Any] = []
        self._working: set[int] = set()
        self._error: CecError | None = None
        self._bytes = self._total = 0

    def run(self, work: Work) -> list[Any]:
        """Do all pieces on all ranks."""
        self._found, self._error = [], None
        self._bytes, self._total = 0, sum(map(work.size, work.pieces))
        self._working = set(range(1, self._comm.size))
        wait_for([self._comm.isend(work, rank, _WORK) for rank in self._working])
        try:
            pieces = _share(work.pieces, _MASTER, self._comm.size)
            for piece, result in do_pieces(work, pieces, min(self._own_threads, work.threads)):
                self._take(result, work.size(piece))
                while self._error is None and (message := self._comm.improbe(tag=_TOLD)):
                    self._hear(message)
                if self._error is not None:
                    break
            else:
                work.flush()
            while self._working and self._error is None:
                self._hear(_arrived(self._comm, _TOLD))
        finally:
            self._end_all()
        if self._error is not None:
            raise self._error
        return self._found

    def _end_all(self) -> None:
        """Tell all ranks that the work is over, and wait until each has confirmed it."""
        ends = [self._comm.isend(None, rank, _END) for rank in range(1, self._comm.size)]
        while self._working:
            self._hear(_arrived(self._comm, _TOLD))
        wait_for(ends)

    def _hear(self, message: MPI.Message) -> None:
        status = MPI.Status()
        kind, content, size = message.recv(status=status)
        if kind == _FOUND:
            self._take(content, size)
            return
        self._working.discard(status.Get_source())
        if kind == _FAILED and self._error is None:
            self._error = content

    def _take(self, result: Any, size: int) -> None:
        self._found.append(result)
        self._bytes += size
        if self.watch is not None:
            self.watch(self._bytes, self._total)


def _help(comm: MPI.Intracomm, threads: int, master_host: str) -> None:
    """Take part in works until there are no more."""
    while (work := _arrived(comm, _WORK).recv()) is not None:
        sent: list[MPI.Request] = []

        def tell(kind: str, content: Any = None, size: int = 0, sent: Any = sent) -> None:
            sent.append(comm.isend((kind, content, size), _MASTER, _TOLD))

        ended = False
        try:
            pieces = _share(work.pieces, comm.rank, comm.size)
            for piece, result in do_pieces(work, pieces, min(threads, work.threads)):
                tell(_FOUND, result, work.size(piece))
                message = comm.improbe(_MASTER, _END)
                if message is not None:
                    message.recv()
                    ended = True
                    break
            else:
                work.flush()
            tell(_DONE)
        except Exception as caught:
            error = as_cec_error(caught)
            if socket.gethostname() != master_host:  # whose files may differ
                error.args = (f"{error} (on {socket.gethostname()})",)
            tell(_FAILED, error)
        if not ended:
            _arrived(comm, _END).recv()
        wait_for(sent)


def _share(pieces: Sequence[Any], rank: int, size: int) -> Sequence[Any]:
    """Return the part of a rank; pieces that are adjacent on the disk stay together."""
    first, last = (len(pieces) * k // size for k in (rank, rank + 1))
    return pieces[first:last]


def _arrived(comm: MPI.Intracomm, tag: int) -> MPI.Message:
    """Wait for a message, and return it before it is received."""
    patience = Patience()
    while (message := comm.improbe(tag=tag)) is None:
        patience.pause()
    return message
