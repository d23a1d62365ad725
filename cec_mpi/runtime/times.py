"""How long processes wait for each other, in seconds, in one table.

Users set ``--start-timeout``, ``--deadline`` and ``--retry``, which are not here. Those of an
elastic step are in `core.elastic.losses`. How a wait for a message spins and sleeps is in
`processes.waiting`.
"""

from __future__ import annotations

# To start. A rank or machine that is not there in time ends the start, and is named.
START_SECONDS = 60.0  # for all processes to come, and
START_SECONDS_OF_A_RANK = 1.0  # for each: on shared cores they start one after the other
MPI_INIT_SECONDS = 0.2  # that each rank sleeps after MPI_Init: twice what was enough when tried
SRUN_SECONDS = 5.0  # for a question to srun, which tries again where no controller answers
CONNECT_SECONDS = 2.0  # for a machine to reach one address of the master
HANDSHAKE_SECONDS = 3.0  # for a machine and the master to accept each other's keys
RECONNECT_INTERVAL = 0.5  # between two attempts to reach the master, and the first pause of
MAX_RECONNECT_SECONDS = 4.0  # a machine whose connections end again and again; the master
MAX_BACKOFF_SECONDS = 60.0  # excludes its process for the same time, at most for this, until
BACKOFF_RESET_SECONDS = 60.0  # no connection has ended in this time
SETTLE_SECONDS = 10.0  # for more machines to come once there are enough
OPEN_SECONDS = 3600.0  # to open a shard, which may be copied first; a death shows at once
SLOW_OPEN_SECONDS = 20.0  # without progress, after which another host may open the machine
PROGRESS_SECONDS = 1.0  # between two messages of a host that copies its shard

# Notices of preemption, which come 30 s (Google Cloud, Azure) or two minutes (AWS) before it.
METADATA_SECONDS = 2.0  # for a metadata service to answer
SERVICE_SECONDS = 10.0  # for the first of them to answer with `--notice auto`
NOTICE_POLL_SECONDS = 1.0  # between two requests
NOTICE_WAIT_SECONDS = 30.0  # that a request waits for a change, where the service allows it
FIRST_EVENTS_SECONDS = 150.0  # of Azure's first list of events, which may take two minutes

# Detection of losses. The end of a process closes its connection and is detected at once.
HEARTBEAT_TIMEOUT = 10.0  # without a sign of life: the host is off, or the network is cut
STOPPED_SECONDS = 60.0  # for a stopped master to go on, while its host accepts connections
DEFAULT_DEADLINE_FACTOR = 10.0  # times what is expected, if `--deadline` says nothing, and
MIN_DEADLINE_SECONDS = 2.0  # at least this: the loss of a machine may show in no other way
ADOPT_SECONDS = 2.0  # without enough machines, for hosts to carry others if `--adopt` says no time
DISCONNECT_GRACE = 1.0  # for a disconnect to be matched with a machine
WARNING_SECONDS = 2.0  # for a warning of all processes to reach this one, too

# Shutdown. After these limits a process is killed, or leaves alone.
RANK_EXIT_SECONDS = 5.0  # for ranks of the launcher to leave when the run ends
LEAVING_SECONDS = 1.0  # for other machines to leave, and then for those of this computer to end
LEAVE_ACK_SECONDS = 2.0  # for the master to let a machine go: it may be between two steps
LINGER_SECONDS = 2.0  # for the last words of a process to be sent
NOTE_SECONDS = 3.0  # that a note for ranks which come too late stays
TURN_SECONDS = 0.8  # for the rank before this one to print its exception, and to end the job
MAX_TURNS = 5  # ranks that print one after the other; all others print at the last turn
PARENT_SECONDS = 1.0  # between two looks whether the launcher has been killed
PRINTING_SECONDS = 3.0  # for one rank, without MPI, to print why all leave, or for others to leave
RAISING_SECONDS = 0.1  # head start of rank 0: with `python -m mpi4py` the first error aborts
EXIT_SECONDS = 3.0  # for all ranks to leave, if one does with a code and has met no others
RANK_0_EXIT_DELAY = 0.1  # that rank 0 stays when all others have left
OUTPUT_DRAIN_SECONDS = 0.3  # for a launcher to read what was printed: MPICH's drops the rest
ENDING_SECONDS = 3.0  # for a launcher to end all ranks

# Between two looks. Each costs its time, and delays what it would see.
POLL_SECONDS = 0.05  # of a rank that looks for its master, and of a master for machines
RECORDS_SECONDS = 0.1  # of `top` and others at the last steps of a run, whose lines are flushed
PAGE_SECONDS = 5.0  # of `report --watch` at a run that goes on
SHUTDOWN_POLL_SECONDS = 0.1  # in which a machine checks whether it must leave
DISCONNECT_POLL_SECONDS = 0.01  # of the master for connections that have ended
DISCONNECT_SWEEP_SECONDS = 1.0  # and for those whose end was missed
SHORTAGE_SECONDS = 0.5  # for which machines may be missing before a message is printed
INTERRUPT_SECONDS = 1.0  # after which a second Ctrl-C cuts off a step that has not ended
TICK_SECONDS = 0.1  # of a wait for availability: mpirun kills 0.25 s after SIGTERM
ANSWER_SECONDS = 0.05  # of a wait for answers, whether the run is stopped
ANSWER_SLEEP = 1e-3  # of a wait for answers of machines in the process of the master
ORDER_SLEEP = 5e-3  # at most, of a machine in lockstep that waits for the next step
