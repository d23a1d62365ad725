"""``python -m cec_mpi``, and ``cec-mpi``.

Ctrl-C ends a process that still reads its modules as any other program: an exception amid an
import would come out as something else, or as a traceback. So it does when all is done.
"""

import os
import sys
from contextlib import suppress


def main() -> int:
    """Run one command, as its words say; returns its exit code."""
    import signal

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as by nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from cec_mpi import cli

    code = cli.main()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code


if __name__ == "__main__":
    with suppress(FileNotFoundError):  # the working directory has been removed
        if sys.path[0] == os.getcwd():  # noqa: PTH109 (pathlib would load more of what is there)
            del sys.path[0]
    sys.exit(main())
