"""Tasks of a user that exit, raise, fork, or leave a thread behind."""

from __future__ import annotations

TASKS = """
import multiprocessing, os, sys, threading, time
import numpy as np

def result(X):
    return {"sum": float((X @ np.ones(12)).sum())}

def calls_sys_exit(X):
    result(X)
    sys.exit(3)

def calls_os_exit(X):
    result(X)
    os._exit(3)

def raises(X):
    result(X)
    raise KeyError("of the task")

def fork(run_child):
    child = os.fork()
    if not child:
        run_child()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def fail():
    raise KeyError("of the child")

def forks(X):
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(abs, [-1, -2]) == [1, 2]
    assert fork(lambda: sys.exit(3)) == 3
    assert fork(fail) == 1
    return result(X)

def leaves_a_thread(X):
    threading.Thread(target=time.sleep, args=(3600,)).start()
    return result(X)
"""
# The exit code of a run of each task, and a part of its standard error.
OUTCOMES = {
    "calls_sys_exit": (2, "task my_tasks:calls_sys_exit called sys.exit(3)"),
    "calls_os_exit": (3, ""),
    "raises": (1, "KeyError: 'of the task'"),
    "forks": (0, "of the child"),
    "leaves_a_thread": (0, ""),
}
