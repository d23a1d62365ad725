"""What the values of command-line options mean: text in, value or a reason out."""

from __future__ import annotations

import argparse
import csv
import math
from typing import TYPE_CHECKING, NamedTuple

from cec_mpi.availability.numbers import read_machines
from cec_mpi.machine.emulation import SpeedChange

if TYPE_CHECKING:
    from fractions import Fraction


def path(text: str) -> str:
    """A name that is not empty."""
    if not text:
        raise argparse.ArgumentTypeError("'': expected the name of a file or directory")
    return text


def positive(text: str) -> int:
    """A whole number of at least 1."""
    return _at_least(1, text)


def whole(text: str) -> int:
    """A whole number of at least 0."""
    return _at_least(0, text)


def _at_least(least: int, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least {least}")
    return value


def shape(text: str) -> tuple[int, int]:
    """Rows and columns, as ``1000,20`` or ``1000x20``."""
    words = text.replace("x", ",").split(",")
    if len(words) != 2:
        raise argparse.ArgumentTypeError(f"{text!r}: expected rows and columns, as 1000,20")
    return positive(words[0]), positive(words[1])


_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


class Interval(NamedTuple):
    """What passes between two events: so many steps, or so many seconds."""

    steps: float = math.inf
    seconds: float = math.inf

    def __str__(self) -> str:
        return f"{self.steps:g} steps" if self.seconds == math.inf else f"{self.seconds:g} s"


def interval(text: str) -> Interval:
    """Steps, as ``50``, or a time, as ``60s``, ``5m`` or ``1h``."""
    unit = _SECONDS.get(text[-1:])
    try:
        if unit is None:
            return Interval(steps=positive(text))
        seconds = unit * float(text[:-1])
        if not 0 < seconds < math.inf:
            raise ValueError
    except (ValueError, argparse.ArgumentTypeError):
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected a number of steps, as 50, or a time, as 60s, 5m or 1h"
        ) from None
    return Interval(seconds=seconds)


_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def size(text: str) -> int:
    """Bytes, as ``268435456``, ``256M`` or ``1.5G``."""
    word = text.upper().removesuffix("B").removesuffix("I")
    unit = word[-1:] if word[-1:] in _UNITS else ""
    try:
        value = float(word.removesuffix(unit)) * _UNITS[unit]
        if not 0 < value < float("inf"):
            raise ValueError
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a size, as 512M or 2G") from None
    return int(value)


def number(text: str) -> float:
    """Any number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number") from None


def fractions(text: str) -> tuple[Fraction, ...]:
    """Positive numbers, exactly, as ``2,2.5,1/3``."""
    try:
        speeds = tuple(_fraction(part.strip()) for part in text.split(","))
    except (ValueError, ZeroDivisionError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected positive numbers (1e-300 to 1e300) with commas between them, as "
            "2,2,3"
        ) from None
    return speeds


_MOST = 10**300  # beyond it 1 / speed is no float


def _fraction(text: str) -> Fraction:
    from fractions import Fraction

    if "/" not in text and not 0 < float(text) < float("inf"):
        raise ValueError  # before 1e999999999 becomes a whole number
    exact = Fraction(text)
    if not Fraction(1, _MOST) <= exact <= _MOST:
        raise ValueError
    return exact


def speeds(text: str) -> tuple[float, ...]:
    """Positive numbers, as floats."""
    return tuple(float(speed) for speed in fractions(text))


def speeds_or_learn(text: str) -> tuple[float, ...] | dict[str, float] | str:
    """Positive numbers, such by names of hosts as ``node01=2,node02=1``, or the word ``learn``."""
    if "=" in text:
        return _speeds_of_hosts(text)
    return text if text == "learn" else speeds(text)


def _speeds_of_hosts(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in text.split(","):
        host, _, speed = part.strip().partition("=")
        try:
            given = speeds(speed)
        except argparse.ArgumentTypeError:
            given = ()
        if not host or host in found or not given:
            raise argparse.ArgumentTypeError(
                f"{text!r}: {part.strip()!r}: expected different hosts with positive speeds, as "
                "node01=2,node02=1"
            )
        (found[host],) = given
    return found


def shards_per_machine(text: str) -> int | tuple[int, ...] | str:
    """A number of shards, one for each machine as ``4,2,2``, or the word ``auto``."""
    if text == "auto":
        return text
    try:
        found = tuple(positive(part.strip()) for part in text.split(","))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected a whole number of at least 1, one for each machine, as 4,2,2, or "
            "auto"
        ) from None
    return found if len(found) > 1 else found[0]


def seconds(text: str) -> float:
    """A positive, finite time."""
    value = number(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected a positive number of seconds")
    return value


def ports(text: str) -> tuple[int, int]:
    """The first and the last of some ports, as ``50000-50100``, or one alone."""
    first, _, last = text.partition("-")
    try:
        found = int(first), int(last or first)
    except ValueError:
        found = 0, 0
    if not 0 < found[0] <= found[1] < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r}: expected ports, as 50000-50100")
    return found


def machines(text: str) -> tuple[int, ...]:
    """Different machine numbers, ascending, as ``1-3,5``."""
    try:
        numbers = tuple(sorted(read_machines(text)))
    except ValueError:
        numbers = ()
    if not numbers or numbers[0] < 1 or len(set(numbers)) != len(numbers):
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected different machine numbers from 1, as 1-3,5"
        )
    return numbers


def counts(text: str) -> tuple[int, ...]:
    """Whole numbers of at least 1, as ``1,1,4``."""
    try:
        return tuple(positive(part) for part in text.split(","))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected whole numbers of at least 1 with commas between them, as 1,1,4"
        ) from None


def change(text: str) -> SpeedChange:
    """A `SpeedChange` as ``STEP:MACHINE:FACTOR``."""
    try:
        step, machine, factor = text.split(":")
        return SpeedChange(whole(step), positive(machine), float(factor))
    except (ValueError, argparse.ArgumentTypeError):
        raise argparse.ArgumentTypeError(f"{text!r}: expected STEP:MACHINE:FACTOR") from None


def yes_or_no(text: str) -> bool:
    """``yes`` or ``no``."""
    if text not in ("yes", "no"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected yes or no")
    return text == "yes"


def columns(text: str) -> tuple[str, ...]:
    """Names or numbers of columns, as ``age,size,5-9``; a name with a comma is in quotes."""
    found = tuple(word.strip() for row in csv.reader([text], skipinitialspace=True) for word in row)
    if not found or not all(found):
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected names or numbers of columns with commas between them, as age,5-9"
        )
    return found


def target(text: str) -> tuple[str, str]:
    """A column and the file that it goes to, as ``price:y.npy``."""
    column, _, file = text.rpartition(":")
    if not column.strip() or not file:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a column and a file, as price:y.npy")
    return column.strip(), file
