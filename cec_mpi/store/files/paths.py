"""Validation of paths."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

from cec_mpi.errors import InputError
from cec_mpi.text import shorten

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")


def as_path(path: str | os.PathLike[str]) -> Path:
    """Convert to a `Path`, and reject anything that is not a local path.

    Raises
    ------
    InputError
        The value is not a path, is empty, or is a URL.

    Examples
    --------
    >>> as_path("s3://bucket/X.npy")
    Traceback (most recent call last):
        ...
    cec_mpi.errors.InputError: s3://bucket/X.npy is a URL with the scheme s3: expected a file ...
    """
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise InputError(
            f"{shorten(path)} has type {type(path).__name__}: expected a str or os.PathLike"
        ) from None
    if not text:  # probably an unset shell variable; Path("") is the working directory
        raise InputError("'': expected the name of a file or directory")
    url = _URL.match(text)
    if url is not None and not os.path.lexists(text):
        raise InputError(
            f"{text} is a URL with the scheme {url[1]}: expected a file or directory that this "
            "computer can open"
        )
    return Path(text)


def expand_host(pattern: str | os.PathLike[str], host: str = "") -> Path:
    """Return the path with ``{host}`` replaced by a host name, by default this computer's."""
    return as_path(os.fsdecode(pattern).replace("{host}", host or socket.gethostname()))


def directory_problem(path: Path) -> str:
    """Return why a path is not a directory; empty if it is one."""
    if path.is_dir():
        return ""
    return "is not a directory" if path.exists() else "does not exist"
