"""What the decoders of a code make of errors, worked out once for each set of L machines."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from cec_mpi.core.accuracy.rounding import unit_roundoff
from cec_mpi.core.code.decoder import Decoder
from cec_mpi.core.deviation.amplification import Amplification, AnswerErrors
from cec_mpi.core.deviation.decoding import decoding_errors

Floats = NDArray[np.float64]

_KEPT = 1 << 14  # sets of L machines
_AT_ONCE = 1 << 20  # numbers in the matrices of several sets


class Amplifier:
    """Amplifications of one code, each worked out once.

    Parameters
    ----------
    generator : (N, L) ndarray of float
    errors : AnswerErrors

    Examples
    --------
    >>> from cec_mpi.core.deviation.amplification import answer_errors
    >>> generator = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    >>> amplifier = Amplifier(generator, answer_errors(generator, np.float64, np.float64, 10))
    >>> found = amplifier.of(Decoder(generator, (1, 2)), (1, 2))
    >>> round(found.growth, 6)
    2.0
    >>> bool(found.stored < found.worst)
    True
    """

    def __init__(self, generator: Floats, errors: AnswerErrors) -> None:
        self.errors = errors
        self._generator = generator
        self._lengths: Floats = np.linalg.norm(generator, axis=1)
        self._known: dict[tuple[int, ...], Amplification] = {}

    def of(self, decoder: Decoder, machines: tuple[int, ...]) -> Amplification:
        """What a decoder makes of the errors of its machines.

        Parameters
        ----------
        decoder : Decoder
            Of these machines.
        machines : (L,) tuple of int

        Returns
        -------
        Amplification

        Notes
        -----
        With ``D = inv(G_P)`` and e the errors of the answers, decoding makes D e of them: at
        worst ``max_l sum_n |D[l, n]| e_n``, and with independent e_n of these deviations
        ``max_l sqrt(sum_n D[l, n]**2 e_n**2)``.
        """
        found = self._known.get(machines)
        if found is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            figures = self._worked_out([decoder], np.array([machines])).tolist()
            found = self._known[machines] = Amplification(*figures)
        return found

    def of_blocks(
        self, decoders: Sequence[Decoder], machines: NDArray[np.integer]
    ) -> Amplification:
        """The largest of several sets of machines, which are worked out together.

        Parameters
        ----------
        decoders : (K,) sequence of Decoder
        machines : (K, L) ndarray of int
        """
        at_once = max(1, _AT_ONCE // machines.shape[1] ** 2)
        found = [
            self._worked_out(decoders[first : first + at_once], machines[first : first + at_once])
            for first in range(0, len(decoders), at_once)
        ]
        return Amplification(*np.max(found, axis=0).tolist())

    def _worked_out(self, decoders: Sequence[Decoder], machines: NDArray[np.integer]) -> Floats:
        """The largest of each figure."""
        rows, errors = machines - 1, self.errors
        for each, decoder in zip(rows, decoders, strict=True):
            if decoder.factors is not None:
                each[:] = each[list(decoder.order)]
        sizes, decoding, given, coded = decoding_errors(decoders, self._generator[rows])
        squares = sizes**2
        decoded = unit_roundoff(np.float64) * machines.shape[1] ** 0.5
        figures = Amplification(
            worst=_products(sizes, errors.worst[rows]),
            growth=sizes.sum(axis=2).max(),
            decoding=decoding.max(),
            given=given.max(),
            coded=coded.max(),
            stored=_longest(squares, errors.stored[rows]),
            summed=_longest(squares, errors.summed[rows]),
            decoded=decoded * _longest(squares, self._lengths[rows]),
        )
        return np.array(figures)


def _products(sizes: Floats, errors: Floats) -> float:
    """The largest number of several products."""
    return float((sizes @ errors[:, :, np.newaxis]).max())


def _longest(squares: Floats, deviations: Floats) -> float:
    with np.errstate(invalid="ignore"):
        found = np.sqrt(_products(squares, deviations**2))
    return found if found == found else np.inf  # infinite times 0
