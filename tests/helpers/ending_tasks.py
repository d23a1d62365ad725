"""Tasks of a user that exit, raise, or leave processes and threads behind."""

from __future__ import annotations

TASKS = """
import multiprocessing, os, sys, threading, time
import numpy as np

def result(X):
    return {"sum": float((X @ np.ones(12)).sum())}

def exits(X):
    result(X)
    sys.exit(3)

def leaves(X):
    result(X)
    os._exit(3)

def raises(X):
    result(X)
    raise KeyError("of the task")

def fork(leave):
    child = os.fork()
    if not child:
        leave()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def fail():
    raise KeyError("of the child")

def forks(X):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]
    assert fork(lambda: sys.exit(3)) == 3
    assert fork(fail) == 1
    return result(X)

def thread_that_outlives_it(X):
    threading.Thread(target=time.sleep, args=(3600,)).start()
    return result(X)
"""
# The exit code of the run of each task, and a part of what it prints to standard error.
OUTCOMES = {
    "exits": (2, "task my_tasks:exits called sys.exit(3)"),
    "leaves": (3, ""),
    "raises": (1, "KeyError: 'of the task'"),
    "forks": (0, "of the child"),
    "thread_that_outlives_it": (0, ""),
}
