"""Decoders for whichever machines have answered, and the choice where more than L have."""

from __future__ import annotations

from functools import lru_cache

from cec_mpi.core.code.choosing import choose_machines
from cec_mpi.core.code.mds import MDSCode

_DECODER_NUMBERS = 1 << 24  # in decoders that are remembered (128 MiB)
_CHOICES = 4096


class Decoders:
    """The decoders of a code, factored when first needed; those used longest ago are forgotten.

    Parameters
    ----------
    code : MDSCode

    Examples
    --------
    >>> import numpy as np
    >>> decoders = Decoders(MDSCode(np.array([[1.0, 0.0], [1.0, 0.01], [0.0, 1.0]])))
    >>> decoders.choose((1, 2, 3)), round(decoders.of((1, 3)).condition)
    ((1, 3), 1)
    """

    def __init__(self, code: MDSCode) -> None:
        self._code = code
        most = max(16, _DECODER_NUMBERS // code.recovery**2)
        self.of = lru_cache(most)(code.decoder)  # by the numbers of L machines, ascending
        self.choose = lru_cache(_CHOICES)(self._choose)  # by those of L or more

    def _choose(self, machines: tuple[int, ...]) -> tuple[int, ...]:
        return choose_machines(self._code.generator, machines)
