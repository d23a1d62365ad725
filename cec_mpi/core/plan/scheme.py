"""Which kinds of assignment there are: their names, without what makes them."""

from __future__ import annotations

from typing import Literal, get_args

from cec_mpi.errors import InputError

Scheme = Literal["heterogeneous", "cyclic"]
SCHEMES: tuple[Scheme, ...] = get_args(Scheme)


def check_scheme(scheme: str) -> None:
    """Refuse a scheme that there is not."""
    if scheme not in SCHEMES:
        raise InputError(f"scheme {scheme!r}: expected one of {', '.join(SCHEMES)}")
