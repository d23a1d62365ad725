"""``python -m cec_mpi``, and ``cec-mpi``.

Ctrl-C ends a process that still reads its modules as any other program: an exception amid an
import would come out as something else, or as a traceback. So it does when all is done.
"""

import signal
import sys


def main() -> int:
    """Run one command, as its words say; returns its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as by nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from cec_mpi import cli

    code = cli.main()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code


if __name__ == "__main__":
    sys.exit(main())
