"""Who is alive, without asking MPI: connections that end when a process does.

May import: `processes`.
"""
