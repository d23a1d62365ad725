"""How processes end, all ways of it on this page.

A rank that leaves early makes launchers kill the others before they have printed, one that waits
for a lost process waits for ever, and MPI_Finalize does. So either all ranks leave together,
rank 0 last, who alone prints and gives the launcher a code; or one ends the whole job.

==================================  ==================  ======  ===================================
what happens                        who prints          code    which function
==================================  ==================  ======  ===================================
all ranks raise the same error      rank 0, once        its     `raising.raised_together`
some may raise alike, and cannot    the first of them   1       `raising.raised_apart`; the job is
tell each other                                                 ended
one rank raises what the others     that rank           1, 3    `failing.ending_the_job`: 1 from
know nothing of                                                 rank 0, else 3
a mapped shard is cut while a rank  that rank           3       `files.mapping`; in a job that goes
computes with it                                                on, SIGKILL by `failing.dying_alone`
one does, in a job that goes on     that rank           -       `failing.dying_alone`: SIGKILL,
without a lost process                                          which the others notice
a process is lost, or may be, and   rank 0              its     `leaving.leave_without_mpi`: others
MPI_Finalize would wait for it                                  that are stuck are ended with rank 0
rank 0 is gone                      nobody              3       `leaving.leave_now`, where machines
                                                                are asked by messages
the launcher is killed              nobody              -       none: the MPI library ends each rank
ranks do not meet in time, or MPI   the first that      3       `limit.watch_start`, and `give_up`:
has an error before they have       has the word                each rank ends itself
not all come to open an operator    the first that      3       `leaving.leave_with_the_job`, when a
                                    has the word                program leaves with that error
a launcher starts no process in     rank 0              3       `leaving.end_job`
the place of a lost one
a process forked from one with MPI  as in any program   its     `leaving.leave_forks_without_mpi`
SIGTERM or SIGUSR1 comes to rank 0  rank 0              6       `signals.NotedSignals`, at the next
                                                                step; to a machine: it is preempted
a second SIGTERM on rank 0, Ctrl-C  nobody              signal  as in any program
==================================  ==================  ======  ===================================

Commands end in `together.run_together`, other programs at exit, where `leaving` takes the place of
MPI_Finalize if that would wait. What libraries and launchers need beside is in `workarounds`.

May import: `files`, `processes.launch`, `processes.waiting`, `processes.workarounds`, `terminal`.
"""
