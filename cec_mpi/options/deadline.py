"""When a machine that has not answered is given up for a step."""

from __future__ import annotations

from dataclasses import dataclass

from cec_mpi.errors import InputError

_LEAST = 0.1  # seconds: processes that share cores are late by some tens of milliseconds
_MOST_FACTOR = 1e6


@dataclass(frozen=True)
class Deadline:
    """Seconds, or a factor of the time that was to be expected.

    Attributes
    ----------
    seconds : float or None
    factor : float
        Where there are no seconds.
    least : float
        Seconds that such a factor gives at least.
    """

    seconds: float | None = None
    factor: float = 1.0
    least: float = _LEAST

    def allowed(self, expected: float | None) -> float | None:
        """Seconds for an answer that was expected after so many; None while not known.

        Examples
        --------
        >>> Deadline(factor=1.5).allowed(2.0), Deadline(seconds=5.0).allowed(None)
        (3.0, 5.0)
        """
        if self.seconds is not None:
            return self.seconds
        return None if expected is None else max(self.least, self.factor * expected)


def as_deadline(given: float | str | Deadline) -> Deadline:
    """From seconds, or text: ``"5"`` seconds, or ``"x1.5"`` times what is expected.

    Raises
    ------
    InputError
        It is nothing of these.

    Examples
    --------
    >>> as_deadline("x1.5").factor, as_deadline("0.2").seconds
    (1.5, 0.2)
    """
    if isinstance(given, Deadline):
        return given
    text = str(given)
    is_factor = text.startswith("x")
    try:
        number = float(text.removeprefix("x"))
    except ValueError:
        number = float("nan")
    if not (1 <= number <= _MOST_FACTOR if is_factor else 0 < number < float("inf")):
        raise InputError(
            f"deadline {given}: expected seconds, as 5, or a factor of at least 1, as x1.5"
        )
    return Deadline(factor=number) if is_factor else Deadline(seconds=number)
