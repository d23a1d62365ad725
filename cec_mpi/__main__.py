"""``python -m cec_mpi``, and ``cec-mpi``.

Until all modules are imported, and after the command, Ctrl-C ends the process by its default
action: a KeyboardInterrupt during an import would become another error or a traceback.
"""

import os
import sys
from contextlib import suppress

_TOO_LITTLE_MEMORY = 2  # as `ShortageError`
_LOADING_SECONDS = 5  # of the processor; usually one


def _has_address_space() -> bool:
    """Whether NumPy and SciPy can be loaded; print why if a limit of the process is too small.

    With too little memory OpenBLAS ends the process with exit code 1, or tries forever, so a child
    process loads them first.
    """
    import resource

    limits = {"ulimit -v": resource.RLIMIT_AS, "ulimit -d": resource.RLIMIT_DATA}
    given = {name: resource.getrlimit(limit)[0] for name, limit in limits.items()}
    given = {name: size for name, size in given.items() if size != resource.RLIM_INFINITY}
    if not given:
        return True
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (_LOADING_SECONDS, _LOADING_SECONDS))
        try:
            import scipy.linalg  # noqa: F401
        except BaseException:
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        return True
    from cec_mpi.runtime.processes.ending import print_error

    found = " and ".join(f"{name} {size >> 10}" for name, size in given.items())
    print_error(
        f"too little memory to load NumPy and SciPy: found {found} (kB), expected a larger limit"
    )
    return False


def main() -> int:
    """Run the command line; returns the exit code."""
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as by nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if not _has_address_space():
        return _TOO_LITTLE_MEMORY
    from cec_mpi import cli
    from cec_mpi.runtime.processes.ending import leave_threads

    code = cli.main()
    leave_threads(code)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code


if __name__ == "__main__":
    with suppress(FileNotFoundError):  # the working directory has been removed
        if sys.path[0] == os.getcwd():  # noqa: PTH109 (pathlib would load more of what is there)
            del sys.path[0]
    sys.exit(main())
