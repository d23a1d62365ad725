"""Memory maps of files that may be truncated while they are read.

The kernel sends SIGBUS to a process that reads beyond the end of a mapped file. Python would call a
signal handler only after the read, which never completes. So the handler is installed with C's
`signal`; it prints a message that names the file, and ends the process. It may run Python code,
because NumPy releases the GIL during reads.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import socket
import sys
import weakref
from contextlib import suppress
from pathlib import Path

from cec_mpi.errors import MachineError
from cec_mpi.store.files.regular import retry_with_more_descriptors
from cec_mpi.text import format_message, plural

_ACTION_BYTES = 1024  # at least the size of a C `struct sigaction`
_libc = ctypes.CDLL(None)
# All zeros mean the default action, which ends the process.
_previous_action = ctypes.create_string_buffer(_ACTION_BYTES)
_maps: dict[int, tuple[int, int, Path]] = {}  # descriptor, size and path, by id of the map


def map_file(descriptor: int, size: int, path: Path) -> mmap.mmap:
    """Map an open file for reading.

    If the file is truncated and a missing page is read, the process prints a message and ends with
    exit code 3.
    """
    _install_handler()
    options = {"trackfd": False} if sys.version_info >= (3, 13) else {}  # saves a descriptor
    mapped = retry_with_more_descriptors(
        lambda: mmap.mmap(descriptor, size, access=mmap.ACCESS_READ, **options), path
    )
    _maps[id(mapped)] = descriptor, size, path
    weakref.finalize(mapped, _maps.pop, id(mapped))
    return mapped


def _handle_sigbus(number: int) -> None:
    for descriptor, size, path in list(_maps.values()):
        current_size = os.fstat(descriptor).st_size
        if current_size < size:
            text = format_message(
                f"{path} was truncated while {socket.gethostname()} was reading it: found "
                f"{plural(current_size, 'byte')}, expected {size}"
            )
            with suppress(OSError):
                os.write(2, f"cec-mpi: error: {text}\n".encode(errors="backslashreplace"))
            os._exit(MachineError.exit_code)
    # No mapped file was truncated: restore the previous action, which handles the repeated read.
    _libc.sigaction(number, _previous_action, None)


_HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)(_handle_sigbus)


def _install_handler() -> None:
    """Install the handler of SIGBUS, and keep the previous action, for example of Open MPI."""
    current = ctypes.create_string_buffer(_ACTION_BYTES)
    _libc.sigaction(signal.SIGBUS, None, current)
    _libc.signal.restype = ctypes.c_void_p
    if _libc.signal(signal.SIGBUS, _HANDLER) != ctypes.cast(_HANDLER, ctypes.c_void_p).value:
        _previous_action.raw = current.raw
