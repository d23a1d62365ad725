"""What a benchmark finds: ratios with their spread, as a table, as JSON, beside earlier ones."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from cec_mpi.errors import InputError
from cec_mpi.files.regular import read_regular, why_unreadable
from cec_mpi.text import listed

RATIO = "ratio"
_FORMAT = 1  # of the JSON
_FREE = {"turns", "seed", "directory", "limit"}  # settings that change no figure, but for its noise


@dataclass(frozen=True)
class Figure:
    """One thing that was measured, several times.

    Attributes
    ----------
    name : str
        Of what was measured, the same for the same settings.
    value, low, high : float
        Median and quartiles.
    unit : str
        ``"ratio"``, or of what is no ratio: ``"s"``, ``"bytes"``, ``"bytes/s"``.
    over : str
        The limit or peer that a ratio is to, measured in the same run on the same data. What
        comes after a colon may differ from run to run.
    better : {"less", "more"}
    """

    name: str
    value: float
    low: float
    high: float
    unit: str = RATIO
    over: str = ""
    better: str = "less"

    @classmethod
    def of(cls, name: str, values: Sequence[float], **about: str) -> Figure:
        """Median and quartiles of values.

        Examples
        --------
        >>> Figure.of("X w", [1.0, 3.0, 2.0], over="bare").value
        2.0
        """
        low, value, high = np.quantile(values, (0.25, 0.5, 0.75)).tolist()
        return cls(name, value, low, high, **about)

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from the others of a result."""
        return self.name, self.over.partition(":")[0], self.unit

    def is_worse_than(self, old: Figure) -> bool:
        """Whether it is, by more than the spread of both."""
        if self.better == "less":
            return self.low > old.high
        return self.high < old.low


@dataclass(frozen=True)
class Result:
    """Figures of one run, and what they are figures of.

    Attributes
    ----------
    what : str
        The benchmark.
    figures : tuple of Figure
        With different keys.
    settings : dict
    machine : dict of str to str
        Facts of the computer, as `facts` has them.
    date : str
        UTC, in the form of ISO 8601.
    """

    what: str
    figures: tuple[Figure, ...]
    settings: dict[str, Any]
    machine: dict[str, str]
    date: str

    @classmethod
    def now(cls, what: str, figures: Sequence[Figure], settings: Mapping[str, Any]) -> Result:
        """A result of this moment on this computer."""
        date = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(what, tuple(figures), as_json(settings), facts(), date)

    def table(self) -> str:
        """As people read it."""
        head = ("", "median", "quartiles", "unit", "over", "better")
        rows = [head, *map(_row, self.figures)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
        lines = [
            "  ".join(
                cell.rjust(width) if column in (1, 2) else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        ]
        about = ", ".join(f"{name} {value}" for name, value in self.machine.items())
        given = ", ".join(
            f"{name} {_word(value)}" for name, value in self.settings.items() if value != ""
        )
        return "\n".join([*lines, "", given, f"{about}; {self.date}"])

    def to_json(self, **more: Any) -> str:
        """One JSON object, with more fields if there are any."""
        return json.dumps({"format": _FORMAT, **asdict(self), **more})

    @classmethod
    def from_json(cls, text: str | bytes) -> Result:
        """A result of `to_json`; further fields do not matter.

        Raises
        ------
        ValueError
            It is none.
        """
        content = json.loads(text)
        try:
            if content["format"] != _FORMAT:
                raise ValueError(f"format {content['format']}")
            figures = tuple(_figure(each) for each in content["figures"])
            if len({each.key for each in figures}) < len(figures) or not figures:
                raise ValueError("no figures, or some twice")
            words = str(content["what"]), str(content["date"])
            return cls(
                words[0], figures, dict(content["settings"]), dict(content["machine"]), words[1]
            )
        except (KeyError, TypeError) as error:
            raise ValueError(str(error)) from None


def _word(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _figure(content: Any) -> Figure:
    given = {each.name: content[each.name] for each in fields(Figure)}
    numbers = [float(given[name]) for name in ("low", "value", "high")]
    if numbers != sorted(numbers) or not np.isfinite(numbers).all():
        raise ValueError(f"quartiles and median {numbers}")
    words = [given[name] for name in ("name", "unit", "over", "better")]
    if not all(isinstance(word, str) for word in words) or words[-1] not in ("less", "more"):
        raise ValueError(f"words {words}")
    return Figure(**given | dict(zip(("low", "value", "high"), numbers, strict=True)))


def _row(figure: Figure) -> tuple[str, ...]:
    digits = "{:.3f}" if figure.unit == RATIO else "{:.4g}"
    value, low, high = (digits.format(each) for each in (figure.value, figure.low, figure.high))
    unit = "" if figure.unit == RATIO else figure.unit
    return figure.name, value, f"{low} to {high}", unit, figure.over, figure.better


def read_result(path: str, what: str, settings: Mapping[str, Any]) -> Result:
    """An earlier result of the same benchmark with the same settings.

    Raises
    ------
    InputError
        There is no such file, or it has another one.
    """
    try:
        old = Result.from_json(read_regular(Path(path)))
    except OSError as error:
        raise InputError(f"--compare {path}: {why_unreadable(error)}") from None
    except (ValueError, RecursionError):
        expected = f"what cec-mpi bench {what} --json prints"
        raise InputError(f"--compare {path} holds no result: expected {expected}") from None
    if old.what != what:
        raise InputError(f"--compare {path}: found figures of {old.what}, expected {what}")
    new = as_json(settings)
    different = [
        f"{name} {old.settings.get(name)}"
        for name in {**new, **old.settings}
        if name not in _FREE and old.settings.get(name) != new.get(name)
    ]
    if different:
        raise InputError(f"--compare {path}: found {listed(different)}, expected the same settings")
    return old


def compare(old: Result, new: Result) -> list[tuple[Figure, Figure]]:
    """Ratios that got worse by more than the spread of both: the old and the new one of each.

    What is no ratio depends on what else the computer does, and is not compared.
    """
    before = {each.key: each for each in old.figures if each.unit == RATIO}
    return [
        (before[each.key], each)
        for each in new.figures
        if each.key in before and each.is_worse_than(before[each.key])
    ]


def only_in_one(old: Result, new: Result) -> set[tuple[str, str, str]]:
    """Keys of ratios that only one of both has, as where another version measured one."""
    keys = [{each.key for each in result.figures if each.unit == RATIO} for result in (old, new)]
    return keys[0] ^ keys[1]


def as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they come back from JSON."""
    return dict(json.loads(json.dumps(settings, default=str)))


def facts() -> dict[str, str]:
    """What this computer is: processor, cores of this process, and libraries."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    name = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    blas = np.show_config(mode="dicts").get("Build Dependencies", {}).get("blas", {})
    return {
        "processor": name[1].strip() if name else platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "Python": platform.python_version(),
        "NumPy": np.__version__,
        "BLAS": f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip(),
    }
