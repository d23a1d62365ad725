"""The mathematics of coded elastic computing: pure functions and state machines.

No module here uses files, MPI, the clock or logging.
"""
