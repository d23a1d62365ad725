"""Time limits and intervals of waits between processes, in seconds.

Users set ``--start-timeout``, ``--deadline`` and ``--retry``, which are not listed here. The limits
of an elastic step are in `core.elastic.states`, and those of polling loops in `processes.waiting`.
"""

from __future__ import annotations

# Start. If a rank or machine misses a limit, the start fails with a message that names it.
START_SECONDS = 60.0  # for all processes to start, plus the next line for each rank
START_SECONDS_PER_RANK = 1.0  # because ranks on shared cores start one by one
MPI_INIT_SLEEP = 0.2  # of each rank after MPI_Init: twice the shortest sleep that worked in trials
SRUN_TIMEOUT = 5.0  # of a query of srun, which retries while no controller answers
CONNECT_SECONDS = 2.0  # for a machine to connect to one address of the master
HANDSHAKE_SECONDS = 3.0  # for the key exchange of a machine and the master
RECONNECT_INTERVAL = 0.5  # between attempts to connect, and shortest backoff that is not 0
MAX_RECONNECT_SECONDS = 4.0  # limit of the backoff of a machine that is disconnected repeatedly
MAX_BACKOFF_SECONDS = 60.0  # limit of the backoff that the master imposes on such a process
BACKOFF_RESET_SECONDS = 60.0  # without a disconnect, after which the backoff is 0 again
SETTLE_SECONDS = 10.0  # to wait for further machines once a step is possible
OPEN_SECONDS = 3600.0  # to open a shard, which may be copied first
SLOW_OPEN_SECONDS = 20.0  # without progress, after which another host may take the machine
PROGRESS_INTERVAL = 1.0  # between progress messages of a host that copies its shard

# Preemption notices, which precede the preemption by 30 s (Google Cloud, Azure) or 120 s (AWS).
METADATA_SECONDS = 2.0  # for a metadata service to answer
SERVICE_SECONDS = 10.0  # for the first service to answer, with `--notice auto`
NOTICE_POLL_SECONDS = 1.0  # between requests
NOTICE_WAIT_SECONDS = 30.0  # for a service to wait for a notice before it answers, if supported
FIRST_EVENTS_SECONDS = 150.0  # for the first answer of Azure, which may take two minutes

# Detection of losses. The end of a process closes its connection and is detected at once.
HEARTBEAT_TIMEOUT = 10.0  # without a heartbeat: the host is down, or the network is disconnected
MASTER_STOPPED_SECONDS = 60.0  # for a suspended master to continue, if its host is reachable
DEFAULT_DEADLINE_FACTOR = 10.0  # times the expected time, without `--deadline`
MIN_DEADLINE_SECONDS = 2.0  # minimum of this default deadline
ADOPT_SECONDS = 2.0  # of a shortage, before hosts adopt missing machines (`--adopt`)
DISCONNECT_GRACE = 1.0  # for a disconnect to be matched with a machine
SHUTDOWN_NOTICE_SECONDS = 2.0  # for a shutdown notice to all processes to reach this one

# Shutdown. After these limits a process is killed, or stops waiting for the others.
RANK_EXIT_SECONDS = 5.0  # for ranks of the launcher to exit after the run
MACHINE_EXIT_SECONDS = 1.0  # for other machines to leave, then for local processes to exit
LEAVE_ACK_SECONDS = 2.0  # for the master to confirm that a machine leaves, between two steps
LINGER_SECONDS = 2.0  # for the last messages of a process to be sent
END_NOTE_SECONDS = 3.0  # for late ranks to find an end note
PRINT_TURN_SECONDS = 0.8  # for each lower rank to print its exception and end the job
MAX_PRINT_TURNS = 5  # ranks that print one by one; all others print in the last turn
PARENT_POLL_SECONDS = 1.0  # between checks whether the launcher was killed
PRINT_SECONDS = 3.0  # without MPI, for one rank to print the error, or for the others to exit
RANK_0_HEAD_START = 0.1  # to raise an error first, which `python -m mpi4py` prints before it aborts
EXIT_SECONDS = 3.0  # for MPI_Finalize on all ranks after one exits with a nonzero exit code
RANK_0_EXIT_DELAY = 0.1  # for all other ranks to exit before rank 0
OUTPUT_DRAIN_SECONDS = 0.3  # for a launcher to read output, because that of MPICH drops the rest
ABORT_SECONDS = 3.0  # for a launcher to end all ranks

# Polling. Each poll costs time, and a longer interval delays the reaction.
POLL_SECONDS = 0.05  # of a rank for its master, and of a master for machines
RECORDS_FLUSH_SECONDS = 0.1  # between flushes of records, for readers of a current run
METRICS_SECONDS = 1.0  # between replacements of a file with metrics
PAGE_SECONDS = 5.0  # between pages of `report --watch`
SHUTDOWN_POLL_SECONDS = 0.1  # between checks of a machine whether it must leave
DISCONNECT_POLL_SECONDS = 0.01  # of the master for disconnects
DISCONNECT_SWEEP_SECONDS = 1.0  # of the master for disconnects that polls missed
SHORTAGE_SECONDS = 0.5  # of a shortage of machines, before a message is printed
INTERRUPT_SECONDS = 1.0  # after which a second Ctrl-C aborts the step
AVAILABILITY_POLL_SECONDS = 0.1  # short, because mpirun kills ranks 0.25 s after SIGTERM
ANSWER_POLL_SECONDS = 0.05  # of a wait for answers, to check whether the run was stopped
ANSWER_SLEEP = 1e-3  # of a wait for answers of machines in the process of the master
MAX_ORDER_SLEEP = 5e-3  # between polls of a lockstep machine for an order, before it has a store
