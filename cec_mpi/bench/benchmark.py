"""What benchmarks have in common: settings that are flags, and figures that they measure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from cec_mpi.bench.figures import Figure, Result
from cec_mpi.options import values
from cec_mpi.options.option import option


@dataclass(frozen=True)
class Benchmark:
    """One process measures something; each setting is a field made with `option`.

    Attributes
    ----------
    what : str
        As the command line names it.
    title : str
        A line on what is measured, and what it is a ratio to.
    turns : int
        How often each is measured, in turn with the others.
    seed : int
        Of random numbers.
    """

    what: ClassVar[str]
    title: ClassVar[str]

    turns: int = option(
        7, "--turns K", "how often each is measured, in turn with the others", values.positive
    )
    seed: int = option(0, "--seed I", "of the random numbers", values.whole)

    def measure(self) -> list[Figure]:
        """Take all figures.

        Raises
        ------
        CecError
            The settings do not fit each other, or this computer.
        """
        raise NotImplementedError

    def result(self) -> Result:
        """Measure, and say what was measured with which settings where."""
        return Result.now(self.what, self.measure(), asdict(self))


def whole_numbers(default: tuple[int, ...], flag: str, text: str) -> Any:
    """A setting of several whole numbers from 1, as ``--columns 4 16``."""
    shown = f"{text} (default: {' '.join(map(str, default))})"
    return option(default, flag, shown, values.positive, nargs="+")


def words_of(benchmark: Benchmark) -> Iterator[str]:
    """The words on a command line that give these settings."""
    for each in fields(benchmark):
        flag = each.metadata["shown"]["flag"].split()[0]
        value: Any = getattr(benchmark, each.name)
        if isinstance(value, tuple):
            yield from (flag, *map(str, value))
        elif value is True:
            yield flag
        elif value not in (None, False, ""):
            yield f"{flag}={value}"


def checked(parse: Callable[[str], object]) -> Callable[[str], str]:
    """A check of the text of an option, which stays as it is.

    Parameters
    ----------
    parse : callable
        Raises `argparse.ArgumentTypeError` where the text is none of its kind.
    """

    def check(text: str) -> str:
        parse(text)
        return text

    return check
