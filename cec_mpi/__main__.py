"""Entry point of ``cec-mpi`` and ``python -m cec_mpi``.

During imports and after the command, SIGINT has its default action, which ends the process: a
KeyboardInterrupt during an import would become another error or a traceback.
"""

import os
import sys
from contextlib import suppress

_SHORTAGE_CODE = 2  # exit code of `ShortageError`
_MAX_IMPORT_SECONDS = 5  # CPU time; usually about 1


def _can_import_scipy() -> bool:
    """Return whether memory limits allow importing SciPy; print an error if they do not.

    With too little memory OpenBLAS ends the process with exit code 1, or hangs. Therefore a child
    process imports SciPy first.
    """
    import resource

    limits = {"ulimit -v": resource.RLIMIT_AS, "ulimit -d": resource.RLIMIT_DATA}
    sizes = {name: resource.getrlimit(limit)[0] for name, limit in limits.items()}
    sizes = {name: size for name, size in sizes.items() if size != resource.RLIM_INFINITY}
    if not sizes:
        return True
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_CPU, (_MAX_IMPORT_SECONDS, _MAX_IMPORT_SECONDS))
        try:
            import scipy.linalg  # noqa: F401
        except BaseException:
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        return True
    from cec_mpi.runtime.processes.ending import print_error

    found = " and ".join(f"{name} {size >> 10}" for name, size in sizes.items())
    print_error(
        f"too little memory to load NumPy and SciPy: found {found} (kB), expected a larger limit"
    )
    return False


def main() -> int:
    """Run the command; return its exit code."""
    import signal

    # SIGINT stays ignored if a parent such as nohup ignores it.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if not _can_import_scipy():
        return _SHORTAGE_CODE
    from cec_mpi import cli
    from cec_mpi.runtime.processes.ending import exit_despite_threads

    code = cli.main()
    exit_despite_threads(code)  # returns unless threads of a task still run
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code


if __name__ == "__main__":
    with suppress(FileNotFoundError):  # the working directory has been removed
        if sys.path[0] == os.getcwd():  # noqa: PTH109 (pathlib would import modules from there)
            del sys.path[0]
    sys.exit(main())
