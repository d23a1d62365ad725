"""What the values of command-line options mean: text in, value or a reason out."""

from __future__ import annotations

import argparse
from fractions import Fraction

from cec_mpi.runtime.emulation import SpeedChange

__all__ = ["path", "positive", "whole", "number", "fractions", "speeds", "machines", "change"]


def path(text: str) -> str:
    """A name that is not empty."""
    if not text:
        raise argparse.ArgumentTypeError("'': expected the name of a directory")
    return text


def positive(text: str) -> int:
    """A whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least 1")
    return value


def whole(text: str) -> int:
    """A whole number of at least 0."""
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number of at least 0")
    return value


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
            f"{text!r}: expected positive numbers with commas between them, as 2,2,3"
        ) from None
    return speeds


def _fraction(text: str) -> Fraction:
    if "/" not in text and not 0 < float(text) < float("inf"):
        raise ValueError  # before 1e999999999 becomes a whole number
    exact = Fraction(text)
    if not 0 < float(exact) < float("inf"):
        raise ValueError
    return exact


def speeds(text: str) -> tuple[float, ...]:
    """Positive numbers, as floats."""
    return tuple(float(speed) for speed in fractions(text))


def machines(text: str) -> tuple[int, ...]:
    """Different machine numbers, ascending."""
    try:
        numbers = tuple(sorted(int(part) for part in text.split(",")))
    except ValueError:
        numbers = ()
    if not numbers or numbers[0] < 1 or len(set(numbers)) != len(numbers):
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected different machine numbers from 1 with commas between them"
        )
    return numbers


def change(text: str) -> SpeedChange:
    """A `SpeedChange` as ``STEP:MACHINE:FACTOR``."""
    try:
        step, machine, factor = text.split(":")
        return SpeedChange(whole(step), positive(machine), float(factor))
    except (ValueError, argparse.ArgumentTypeError):
        raise argparse.ArgumentTypeError(f"{text!r}: expected STEP:MACHINE:FACTOR") from None
