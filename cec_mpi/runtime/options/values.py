"""Parse the values of command-line options."""

from __future__ import annotations

import argparse
import csv
import math
import re
from typing import TYPE_CHECKING, NamedTuple

from cec_mpi.errors import InputError
from cec_mpi.runtime.availability.numbers import read_machines
from cec_mpi.store.files.paths import as_path

if TYPE_CHECKING:
    from fractions import Fraction

    from cec_mpi.runtime.machine.emulation import SpeedChange


MIN_VALUE, MAX_VALUE = 1e-100, 1e100
"""Limits on speeds and prices, so that products and ratios of a few of them do not overflow."""


def path(text: str) -> str:
    """Parse a path."""
    try:
        as_path(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def positive(text: str) -> int:
    """Parse a whole number of at least 1."""
    return _parse_int(text, 1)


def natural(text: str) -> int:
    """Parse a whole number of at least 0."""
    return _parse_int(text, 0)


def _parse_int(text: str, minimum: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = minimum - 1
    if value < minimum:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least {minimum}")
    return value


def shape(text: str) -> tuple[int, int]:
    """Parse rows and columns, such as ``1000,20`` or ``1000x20``."""
    sizes = text.replace("x", ",").split(",")
    if len(sizes) != 2:
        raise argparse.ArgumentTypeError(f"{text!r}: expected rows and columns, such as 1000,20")
    return positive(sizes[0]), positive(sizes[1])


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_MIN_SECONDS, _MAX_SECONDS = 1e-15, 1e9  # 31 years, whose nanoseconds fit in 64 bits


def seconds(text: str) -> float:
    """Parse a time in seconds, such as ``90``, ``60s``, ``5m`` or ``1h``."""
    unit = text[-1:] if text[-1:] in _UNITS else ""
    try:
        value = float(text.removesuffix(unit)) * _UNITS.get(unit, 1.0)
        if not _MIN_SECONDS <= value <= _MAX_SECONDS:
            raise ValueError
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected a time from {_MIN_SECONDS:.0e} to {_MAX_SECONDS:.0e} seconds, "
            "such as 90 (seconds), 5m or 1h"
        ) from None
    return value


class Interval(NamedTuple):
    """Interval between two events, in steps or in seconds."""

    steps: float = math.inf
    seconds: float = math.inf

    def __str__(self) -> str:
        return f"{self.steps:g} steps" if self.seconds == math.inf else f"{self.seconds:g} s"


def interval(text: str) -> Interval:
    """Parse a number of steps, such as ``50``, or a time, such as ``60s``, ``5m`` or ``1h``."""
    try:
        is_time = text[-1:] in _UNITS
        return Interval(seconds=seconds(text)) if is_time else Interval(steps=positive(text))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected a number of steps, such as 50, or a time, such as 60s, 5m or 1h"
        ) from None


_SIZE = re.compile(r"([-+.\de]*\d|\d*\.) ?(?:([kmgt])(ib?|b)?|b)?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_MAX_BYTES = 10**18


def size(text: str) -> int:
    """Parse a number of bytes.

    KB, MB, GB and TB are powers of 1000. KiB, MiB, GiB and TiB, or K, M, G and T, are powers of
    1024.

    Examples
    --------
    >>> size("64GB"), size("64GiB"), size("64G"), size("1.5 kB")
    (64000000000, 68719476736, 68719476736, 1500)
    """
    match = _SIZE.fullmatch(text.strip())
    try:
        number, prefix, suffix = match.groups("") if match else ("", "", "")
        base = 1000 if suffix.upper() == "B" else 1024
        value = float(number) * base ** _POWERS[prefix.upper()]
        if not 1 <= value <= _MAX_BYTES:
            raise ValueError
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected a size from 1 byte to {_MAX_BYTES:.0e} bytes, such as 512M, 2GiB "
            "or 2GB"
        ) from None
    return int(value)


def size_with_unit(text: str) -> int:
    """Parse a number of bytes that must have a unit, because ``64`` rarely means 64 bytes."""
    value = size(text)
    if not text.strip()[-1].isalpha():
        raise argparse.ArgumentTypeError(f"{text!r}: expected a size with its unit, such as 64G")
    return value


def memory(text: str) -> float:
    """Parse a number of bytes, or a fraction of free memory.

    Examples
    --------
    >>> memory("64GB"), memory("0.5")
    (64000000000, 0.5)
    """
    try:
        if re.fullmatch(r"0?\.\d+|1(\.0*)?", text):
            return float(text)
        return size_with_unit(text)
    except (argparse.ArgumentTypeError, ValueError):
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected a size, such as 64G, or a fraction of free memory, such as 0.5"
        ) from None


def number(text: str) -> float:
    """Parse a number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number") from None


def amount(text: str) -> float:
    """Parse a number of at least 0, such as a price."""
    value = number(text)
    if not 0 <= value <= MAX_VALUE:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number from 0 to {MAX_VALUE:.0e}")
    return value


def fractions(text: str) -> tuple[Fraction, ...]:
    """Parse positive numbers exactly, such as ``2,2.5,1/3``."""
    try:
        return tuple(_parse_fraction(part.strip()) for part in text.split(","))
    except (ValueError, ZeroDivisionError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected comma-separated positive numbers, such as 2,2,3 (from "
            f"{MIN_VALUE:.0e} to {MAX_VALUE:.0e})"
        ) from None


def _parse_fraction(text: str) -> Fraction:
    from fractions import Fraction

    if "/" not in text and not 0 < float(text) < float("inf"):
        raise ValueError  # Fraction would expand 1e999999999 to an integer
    exact = Fraction(text)
    if not MIN_VALUE <= float(exact) <= MAX_VALUE:
        raise ValueError
    return exact


def speeds(text: str) -> tuple[float, ...]:
    """Parse comma-separated positive numbers as floats."""
    return tuple(float(speed) for speed in fractions(text))


def speeds_or_learn(text: str) -> tuple[float, ...] | dict[str, float] | str:
    """Parse speeds, such as ``2,2,3`` or ``node01=2,node02=1``, or the word ``learn``."""
    if "=" in text:
        return _parse_speeds_by_name(text)
    return text if text == "learn" else speeds(text)


def _parse_speeds_by_name(text: str) -> dict[str, float]:
    speeds_by_name: dict[str, float] = {}
    for part in text.split(","):
        name, _, speed = part.strip().partition("=")
        try:
            parsed = speeds(speed)
        except argparse.ArgumentTypeError:
            parsed = ()
        if not name or name in speeds_by_name or not parsed:
            raise argparse.ArgumentTypeError(
                f"{text!r}: {part.strip()!r}: expected distinct host names with positive speeds, "
                "such as node01=2,node02=1"
            )
        (speeds_by_name[name],) = parsed
    return speeds_by_name


def ports(text: str) -> tuple[int, int]:
    """Parse a range of ports, such as ``50000-50100``, or one port."""
    first, _, last = text.partition("-")
    try:
        bounds = int(first), int(last or first)
    except ValueError:
        bounds = 0, 0
    if not 0 < bounds[0] <= bounds[1] < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r}: expected ports, such as 50000-50100")
    return bounds


def machines(text: str) -> tuple[int, ...]:
    """Parse distinct machine numbers, such as ``1-3,5``; return them in ascending order."""
    try:
        numbers = tuple(sorted(read_machines(text)))
    except ValueError:
        numbers = ()
    if not numbers or numbers[0] < 1 or len(set(numbers)) != len(numbers):
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected distinct machine numbers from 1, such as 1-3,5"
        )
    return numbers


def speed_change(text: str) -> SpeedChange:
    """Parse a `SpeedChange`, ``STEP:MACHINE:FACTOR``."""
    from cec_mpi.runtime.machine.emulation import SpeedChange

    try:
        step, machine, factor = text.split(":")
        return SpeedChange(natural(step), positive(machine), float(factor))
    except (ValueError, argparse.ArgumentTypeError):
        raise argparse.ArgumentTypeError(f"{text!r}: expected STEP:MACHINE:FACTOR") from None


def yes_or_no(text: str) -> bool:
    """Parse ``yes`` or ``no``."""
    if text not in ("yes", "no"):
        raise argparse.ArgumentTypeError(f"{text!r}: expected yes or no")
    return text == "yes"


def columns(text: str) -> tuple[str, ...]:
    """Parse names or numbers of columns, such as ``age,size,5-9``; quotes may enclose a name."""
    names = tuple(word.strip() for row in csv.reader([text], skipinitialspace=True) for word in row)
    if not names or not all(names):
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected comma-separated names or numbers of columns, such as age,5-9"
        )
    return names


def target(text: str) -> tuple[str, str]:
    """Parse a column and its output file, such as ``price:y.npy``."""
    column, _, file = text.rpartition(":")
    if not column.strip() or not file:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected a column and a file, such as price:y.npy"
        )
    return column.strip(), file
