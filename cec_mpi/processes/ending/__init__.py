"""How processes end, all ways of it on this page.

In lockstep a rank that leaves early makes launchers kill the others before they have printed, one
that waits for a lost process waits for ever, and so does MPI_Finalize. So either all ranks leave
together, rank 0 last, which alone prints and gives the launcher a code; or one ends the whole job.

==================================  ==================  ======  ===================================
what happens in lockstep            who prints          code    which function
==================================  ==================  ======  ===================================
all ranks raise the same error      rank 0, once        its     `raising.raised_together`
some may raise alike, and cannot    the first of them   1       `raising.raised_apart`; the job is
tell each other                                                 ended
one rank raises what the others     that rank           1 to 3  `failing.ending_the_job`: 1 from
know nothing of                                                 rank 0, else 3; 2 for a shortage
a mapped shard is cut while a rank  that rank           3       `files.mapping`; the launcher ends
computes with it                                                the others
a process is killed                 the launcher        its     none: the launcher ends the others
a process is killed, and MPI        the first that      3       `limit.leave_after_a_loss`
reports it (--with-ft ulfm)         has the word
the launcher is killed              nobody              -       none: the MPI library ends each rank
ranks do not meet in time, or MPI   the first that      3       `limit.watch_start`, and `give_up`:
has an error before they have       has the word                each rank ends itself
not all come to open an operator    the first that      3       `leaving.leave_with_the_job`, when a
                                    has the word                program leaves with that error
a process forked from one with MPI  as in any program   its     `leaving.leave_forks_without_mpi`
==================================  ==================  ======  ===================================

In an elastic run no process waits for another one to leave. Launchers and batch systems take a code
that is not 0 for a failure of the run: only the master, and machines that have lost it, leave with
one.

==================================  ==================  ======  ===================================
what happens in an elastic run      who prints          code    which function
==================================  ==================  ======  ===================================
the run ends                        the master          its     `session.elastic`: machines leave
                                                                with 0. `siblings.end_ranks` ends
                                                                those that do not in 5 s, on other
                                                                nodes `siblings.end_job_at_exit`
a machine ends, or its connection   the log             -       none: others compute its rows
a machine is warned or excluded     nobody              0       `session.machine.serve_as_rank`; of
                                                                ``cec-mpi join`` 6 and 7
a mapped shard is cut while a       that machine        3       `files.mapping`
machine computes with it
the master is gone                  one rank            3       `session.machine.serve_as_rank`
the master ends before it listens,  the master          0       `session.machine.leave_note`: ranks
or before a rank has come                                       look for a note
a machine's program uses X in spite that rank, once     1       `raising.shown_by_rank_0`
of None
==================================  ==================  ======  ===================================

SIGTERM or SIGUSR1 on rank 0 ends a run with exit code 6 at the next step, and warns a machine that
it must leave (`signals.NotedSignals`). A second SIGTERM on rank 0, and Ctrl-C, are as in any
program.

Commands of lockstep end in `together.run_together`, other programs at exit, where `leaving` takes
the place of MPI_Finalize if that would wait. What libraries and launchers need beside is in
`workarounds`.
"""
