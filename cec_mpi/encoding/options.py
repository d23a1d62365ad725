"""Options of an encode, each written once: a flag of the command, and a keyword in Python."""

from __future__ import annotations

import csv
import io
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from cec_mpi.core.code.families import FAMILIES
from cec_mpi.errors import InputError
from cec_mpi.files.formats import checked_delimiter
from cec_mpi.options import values
from cec_mpi.options.option import check_choices, option, own_options, whole_number
from cec_mpi.store.work import MEMORY

_DELIMITER_NAMES = {"\t": "tab", " ": "space"}
_OF_THE_PROCESS = ("memory", "resume")  # which a resume may change


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How a text table is read.

    Attributes
    ----------
    header : bool, optional
        Of a text table: whether its first row has the names of its columns. By default it
        has when none of its cells is a number; a row of both is refused.
    delimiter : str, optional
        Of a text table: one character, or ``"tab"``, ``"semicolon"``, ``"space"`` (any white
        space). By default a comma, in ``.tsv`` a tab.
    columns, drop : sequence of str or int, optional
        Of a text table: the columns that are X, in this order (by default all), and those that
        are not. By their names, or as in a spreadsheet by their numbers from 1.
    target : mapping of str or int to path, optional
        Of a text table: columns that are not X, and the ``.npy`` files that they go to, as y
        of the tasks `ridge` and `logistic`. The files appear with the store.
    """

    title: ClassVar[str] = "text tables, .csv and .tsv"

    header: bool | None = option(
        None,
        "--header yes|no",
        "whether the first row has the names of the columns (default: if none of "
        "its cells is a number)",
        values.yes_or_no,
    )
    delimiter: str | None = option(
        None,
        "--delimiter CHAR",
        "one character, or tab, semicolon, space (any white space); by default a "
        "comma, in .tsv a tab",
    )
    columns: Sequence[str | int] | None = option(
        None,
        "--columns LIST",
        "what is X, by names or by numbers from 1, as age,size,5-9 (default: all columns)",
        values.columns,
    )
    drop: Sequence[str | int] | None = option(
        None, "--drop LIST", "columns that are left out", values.columns
    )
    target: Any = option(
        (),
        "--target COLUMN:y.npy",
        "a column that is no part of X; it goes to this file, as y of ridge and logistic",
        values.target,
    )


@dataclass(frozen=True, kw_only=True)
class EncodeOptions(TableOptions):
    """How X becomes a store; with those of text tables.

    Attributes
    ----------
    machines, recovery : int
        N shards, any L of which give X back.
    code : str
        A code family or ``"auto"``; see `cec_mpi.core.code.mds.make_code`.
    systematic : bool
        The first L shards are plain rows of X.
    seed : int
        For the random code families.
    dtype : {"float32", "float64"}, optional
        Of the shards; by default float32 for floats of 32 bits and less, else float64.
    scaling : {"rows", "none"}, optional
        Whether each row is divided by the power of two that brings its largest entry to [1/2, 1)
        before it is encoded, so that small rows lose nothing to large ones. It is multiplied
        again, exactly, in products and in what is decoded. By default ``"rows"``, and with
        `systematic` ``"none"``, since the first shards are rows of X then as they are.
    memory : int
        Bytes that each process may take above the bare interpreter, and above an array that is
        in memory.
    resume : bool
        Go on where an interrupted encode with the same arguments stopped, if there is one;
        when it came to its end, nothing is left to do. What is read once, as text, is read again.
        With an array nothing says whether it is the same as then: an interrupted encode is done
        anew, and a complete store refused.
    shape : (int, int), optional
        The source is raw binary of this shape.
    input_dtype : str, optional
        Of raw binary, by default `dtype`.
    """

    title: ClassVar[str] = ""

    machines: int = option(0, "--machines N", "shards to make", values.positive, required=True)
    recovery: int = option(
        0, "--recovery L", "any L of them give X back", values.positive, required=True
    )
    code: str = option(
        "auto",
        "--code",
        "code family (default: auto, the best conditioned)",
        choices=["auto", *FAMILIES],
    )
    systematic: bool = option(False, "--systematic", "the first L shards are rows of X")
    seed: int = option(0, "--seed I", "of the random families", values.whole)
    dtype: str | None = option(None, "--dtype", "of the shards", choices=["float32", "float64"])
    scaling: str | None = option(
        None,
        "--scaling",
        "divide rows by powers of two before they are encoded, or not (default: rows, with "
        "--systematic none)",
        choices=["rows", "none"],
    )
    memory: int = option(
        MEMORY,
        "--memory SIZE",
        "the most that each process takes above a bare Python (default: 512M)",
        values.size,
    )
    resume: bool = option(False, "--resume", "go on where an encode was interrupted")
    shape: tuple[int, int] | None = option(
        None, "--shape Q,R", "X is raw binary, C-ordered", values.shape
    )
    input_dtype: str | None = option(
        None, "--input-dtype DTYPE", "of raw binary, as <f4 (default: that of --dtype)"
    )

    def checked(self) -> EncodeOptions:
        """The same with numbers, lists and targets as they are needed.

        Raises
        ------
        InputError
            Names the option, what was found and what was expected.
        """
        check_choices(EncodeOptions, self)
        for name in ("columns", "drop"):
            if isinstance(getattr(self, name), str):
                raise InputError(
                    f"{name} {getattr(self, name)!r}: expected a list of names or numbers"
                )
        return replace(
            self,
            machines=whole_number("machines", self.machines),
            recovery=whole_number("recovery", self.recovery),
            seed=whole_number("seed", self.seed),
            memory=whole_number("memory", self.memory),
            delimiter=None if self.delimiter is None else checked_delimiter(self.delimiter),
            columns=None if self.columns is None else tuple(self.columns),
            drop=None if self.drop is None else tuple(self.drop),
            target=_checked_targets(self.target),
        )

    @property
    def scales(self) -> bool:
        """Whether rows are divided by powers of two."""
        return self.scaling == "rows" or (self.scaling is None and not self.systematic)

    @property
    def of_tables(self) -> list[str]:
        """Those that are given of the options of text tables."""
        names = (each.name for each in own_options(TableOptions))
        return [name for name in names if self._is_given(name)]

    @property
    def of_files(self) -> list[str]:
        """Those that are given of the options of files."""
        return [*filter(self._is_given, ("shape", "input_dtype")), *self.of_tables]

    def _is_given(self, name: str) -> bool:
        return getattr(self, name) not in (None, ())

    def written(self) -> dict[str, Any]:
        """What a resume has to have again, as JSON can hold it."""
        names = [each.name for group in GROUPS for each in own_options(group)]
        return {
            **{name: getattr(self, name) for name in names if name not in _OF_THE_PROCESS},
            "shape": None if self.shape is None else list(self.shape),
            "header": None if self.header is None else ("yes" if self.header else "no"),
            "delimiter": _DELIMITER_NAMES.get(self.delimiter or "", self.delimiter),
            "columns": list(map(str, self.columns or ())) or None,
            "drop": list(map(str, self.drop or ())) or None,
            "target": [f"{column}:{os.fspath(file)}" for column, file in self.target] or None,
        }

    def resuming(self, source: Any, store: Path) -> str:
        """What to type to go on with an encode that was interrupted."""
        given = {name: value for name, value in self.written().items() if value and value != "auto"}
        if not isinstance(source, str | os.PathLike):
            words = [f"{name}={value!r}" for name, value in (given | {"resume": True}).items()]
            return f"cec_mpi.encode(X, {str(store)!r}, {', '.join(words)})"
        words = ["cec-mpi", "encode", os.fspath(source), str(store)]
        for name, value in given.items():
            flag = f"--{name.replace('_', '-')}"
            if value is True:
                words.append(flag)
            elif name == "target":
                words += [word for each in value for word in (flag, each)]
            else:
                words += [flag, _listed(value) if isinstance(value, list) else str(value)]
        return shlex.join([*words, "--resume"])


GROUPS = (EncodeOptions, TableOptions)
"""In the order in which people read them."""


def _listed(values: list[object]) -> str:
    """Values with commas between them, in quotes where they have commas of their own."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(values)
    return text.getvalue()


def _checked_targets(given: Any) -> tuple[tuple[str | int, Path], ...]:
    """Columns and their files; a command has pairs, a program a mapping."""
    pairs: Iterable[Any] = given.items() if isinstance(given, Mapping) else given or ()
    found = tuple((column, Path(file)) for column, file in pairs)
    for column, file in found:
        if file.suffix.lower() != ".npy":
            raise InputError(f"target {column}:{file}: expected the name of an .npy file")
    if len({column for column, _ in found}) < len(found):
        raise InputError("target names one column twice: expected a file for each column")
    if len({file.absolute() for _, file in found}) < len(found):
        raise InputError("several targets go to one file: expected a file for each")
    return found
