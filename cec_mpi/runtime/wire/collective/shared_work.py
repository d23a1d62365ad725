"""Share work on a store among ranks: encode, verify, repair, decode, add-machine.

Rank 0 runs the command. The other ranks wait for `Work` without busy-waiting. Each rank processes
an equal share of the pieces of a `Work`, and reports every piece to rank 0. If a rank fails, rank 0
stops all ranks and raises the first error.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any, get_type_hints

import numpy as np
from mpi4py import MPI

from cec_mpi.runtime.processes.ending import abort_on_error, as_cec_error
from cec_mpi.runtime.processes.packing import Failure, pack, pack_fields, unpack, unpack_fields
from cec_mpi.runtime.processes.resources import gather_processes
from cec_mpi.runtime.processes.start import finish_start
from cec_mpi.runtime.processes.waiting import PollTimer, wait_for
from cec_mpi.store.work import ProgressCallback, Work, process_pieces

_MASTER = 0
# Tags of messages from rank 0. WORK: index of the type, then the `Work`; empty after the last one.
_WORK, _END = 1, 2
_RESULT, _DONE, _FAILED = 3, 4, 5  # tags of messages to rank 0; RESULT for each piece


def run_shared(
    comm: MPI.Intracomm,
    body: Callable[[SharedRunner], int],
    work_types: Sequence[type[Work]],
    on_progress: ProgressCallback | None = None,
) -> int:
    """Run `body` on rank 0 with a runner that uses all ranks (collective).

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        All processes must see the same files.
    body : callable
        Called with a `SharedRunner`; returns an exit code.
    work_types : sequence of type
        Types of `Work` that it may run.
    on_progress : callable, optional
        Called with the progress on rank 0.

    Returns
    -------
    int
        The return value of `body` on rank 0, and 0 on the others.
    """
    processes = gather_processes(comm)
    comm = comm.Dup()
    try:
        finish_start(comm)
        threads = [process.threads for process in processes]
        with abort_on_error(comm):
            if comm.rank:
                _run_worker(comm, work_types, threads[comm.rank], processes[_MASTER].host_name)
                return 0
            try:
                return body(SharedRunner(comm, work_types, max(threads), threads[0], on_progress))
            finally:
                wait_for([_send(comm, rank, _WORK) for rank in range(1, comm.size)])
    finally:
        comm.Free()


class SharedRunner:
    """Runner on rank 0 that shares work among all ranks.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    work_types : sequence of type
        Types of `Work` that other ranks support.
    threads : int
        Largest number of threads of a rank.
    own_threads : int
        Number of threads of this rank.
    on_progress : callable, optional
        Called with the progress.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        work_types: Sequence[type[Work]],
        threads: int,
        own_threads: int,
        on_progress: ProgressCallback | None,
    ) -> None:
        self.threads = threads
        self.processes = comm.size
        self._comm = comm
        self._work_types = work_types
        self._own_threads = own_threads
        self.on_progress = on_progress
        self._results: list[Any] = []
        self._busy_ranks: set[int] = set()
        self._error: BaseException | None = None
        self._done_bytes = self._total_bytes = 0

    def run(self, work: Work) -> list[Any]:
        """Process all pieces on all ranks; return their results in the order of arrival."""
        self._results, self._error = [], None
        self._done_bytes, self._total_bytes = 0, sum(map(work.size, work.pieces))
        message = bytes([self._work_types.index(type(work))]) + pack_fields(work)
        self._busy_ranks = set(range(1, self._comm.size))
        wait_for([_send(self._comm, rank, _WORK, message) for rank in self._busy_ranks])
        result_type = get_type_hints(work.process)["return"]
        try:
            pieces = _pieces_of_rank(work.pieces, _MASTER, self._comm.size)
            for piece, result in process_pieces(work, pieces, min(self._own_threads, work.threads)):
                self._add_result(result, work.size(piece))
                while self._error is None and (received := _receive_if_arrived(self._comm)):
                    self._handle_message(*received, result_type)
                if self._error is not None:
                    break
            else:
                work.flush()
            while self._busy_ranks and self._error is None:
                self._handle_message(*_receive(self._comm), result_type)
        finally:
            end_requests = [_send(self._comm, rank, _END) for rank in range(1, self._comm.size)]
            while self._busy_ranks:  # until each confirms the end
                self._handle_message(*_receive(self._comm), result_type)
            wait_for(end_requests)
        if self._error is not None:
            raise self._error
        return self._results

    def _handle_message(self, rank: int, tag: int, content: bytes, result_type: Any) -> None:
        if tag == _RESULT:
            self._add_result(*unpack(content, tuple[result_type, int]))
            return
        self._busy_ranks.discard(rank)
        if tag == _FAILED and self._error is None:
            self._error = unpack(content, Failure).to_exception()

    def _add_result(self, result: Any, size: int) -> None:
        self._results.append(result)
        self._done_bytes += size
        if self.on_progress is not None:
            self.on_progress(self._done_bytes, self._total_bytes)


def _run_worker(
    comm: MPI.Intracomm, work_types: Sequence[type[Work]], threads: int, master_host_name: str
) -> None:
    """Process the pieces of this rank until rank 0 sends no more work."""
    while content := _receive(comm, _WORK)[2]:
        send_requests: list[MPI.Request] = []
        is_ended_by_rank_0 = False
        try:
            work = unpack_fields(content[1:], work_types[content[0]])
            pieces = _pieces_of_rank(work.pieces, comm.rank, comm.size)
            for piece, result in process_pieces(work, pieces, min(threads, work.threads)):
                send_requests.append(
                    _send(comm, _MASTER, _RESULT, pack((result, work.size(piece))))
                )
                if _receive_if_arrived(comm, _END) is not None:
                    is_ended_by_rank_0 = True
                    break
            else:
                work.flush()
            send_requests.append(_send(comm, _MASTER, _DONE))
        except Exception as caught:
            error = as_cec_error(caught)
            if socket.gethostname() != master_host_name:  # files may differ between computers
                error.args = (f"{error} (on {socket.gethostname()})",)
            send_requests.append(_send(comm, _MASTER, _FAILED, pack(Failure.from_exception(error))))
        if not is_ended_by_rank_0:
            _receive(comm, _END)
        wait_for(send_requests)


def _pieces_of_rank(pieces: Sequence[Any], rank: int, size: int) -> Sequence[Any]:
    """Return the pieces of a rank, which are adjacent on the disk."""
    start, stop = (len(pieces) * k // size for k in (rank, rank + 1))
    return pieces[start:stop]


def _send(comm: MPI.Intracomm, rank: int, tag: int, content: bytes = b"") -> MPI.Request:
    return comm.Isend(np.frombuffer(content, np.uint8), rank, tag)


def _receive_if_arrived(
    comm: MPI.Intracomm, tag: int = MPI.ANY_TAG
) -> tuple[int, int, bytes] | None:
    """Receive a message if one has arrived; return its sender, tag and content, or None."""
    status = MPI.Status()
    message = comm.Improbe(tag=tag, status=status)
    if message is None:
        return None
    content = np.empty(status.Get_count(MPI.BYTE), np.uint8)
    message.Recv(content)
    return status.source, status.tag, content.tobytes()


def _receive(comm: MPI.Intracomm, tag: int = MPI.ANY_TAG) -> tuple[int, int, bytes]:
    """Wait for a message without busy-waiting; return its sender, tag and content."""
    timer = PollTimer()
    while (message := _receive_if_arrived(comm, tag)) is None:
        timer.pause()
    return message
