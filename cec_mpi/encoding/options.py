"""Options of encode: flags of the command and keywords in Python."""

from __future__ import annotations

import csv
import io
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from cec_mpi.errors import InputError
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.option import as_int, as_tuple, check_choices, option, own_options
from cec_mpi.runtime.options.shards import validate_speed_range
from cec_mpi.store.coded.grid import BLOCK_BYTES
from cec_mpi.store.files.formats import parse_delimiter
from cec_mpi.store.files.paths import as_path
from cec_mpi.store.limits import WORK_MEMORY_BYTES
from cec_mpi.text import shorten

FORMATS = (
    "an .npy file, a directory of .npy parts, file.h5::/dataset (also .nc of NetCDF-4, .mat of "
    "MATLAB 7.3), a Zarr array, .csv, .tsv, other text with --delimiter, raw binary with --shape, "
    "or a sparse .npz, .mtx or file.h5ad::/group"
)
"""Formats that encode reads, for messages."""

_DELIMITER_NAMES = {"\t": "tab", " ": "space"}
_RESUME_MAY_CHANGE = ("memory", "resume")
_COPIES_OPTIONS = ("copies", "speeds", "spread")
_EXPECTED_COLUMNS = "a list of names or numbers"
_EXPECTED_SHAPE = "two numbers of at least 1"
_CODE_OPTIONS = ("code", "systematic", "scaling", "resume", "memory", "missing")


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Options of text tables.

    Attributes
    ----------
    header : bool, optional
        Text tables: whether the first row has column names. By default True if none of its cells is
        a number; a first row with both names and numbers raises an error.
    delimiter : str, optional
        Text tables: one character, or ``"tab"``, ``"semicolon"``, ``"space"`` (any white space). By
        default a comma, or a tab in ``.tsv``.
    columns, drop : sequence of str or int, optional
        Text tables: columns of X, in this order (by default all), and columns to leave out, by name
        or by number from 1.
    target : mapping of str or int to path, optional
        Text tables: columns to write to ``.npy`` files instead of X, for example y of the tasks
        `ridge` and `logistic`. The files appear together with the store.
    """

    title: ClassVar[str] = "text tables, .csv and .tsv"

    header: bool | None = option(
        None,
        "--header yes|no",
        "whether the first row has column names (default: yes if none of its cells is a number)",
        values.yes_or_no,
    )
    delimiter: str | None = option(
        None,
        "--delimiter CHAR",
        "delimiter: one character, or tab, semicolon, space (any white space) (default: a comma, "
        "or a tab in .tsv)",
    )
    columns: Sequence[str | int] | None = option(
        None,
        "--columns LIST",
        "columns of X, by name or by number from 1, such as age,size,5-9 (default: all); may be "
        "repeated",
        values.columns,
        action="extend",
    )
    drop: Sequence[str | int] | None = option(
        None,
        "--drop LIST",
        "columns to leave out, such as name,date; may be repeated",
        values.columns,
        action="extend",
    )
    target: Any = option(
        (),
        "--target COLUMN:y.npy",
        "column to write to this file instead of X, for example y of ridge and logistic; may be "
        "repeated",
        values.target,
    )


@dataclass(frozen=True, kw_only=True)
class ContainerOptions:
    """Options of HDF5 and Zarr arrays whose attributes change the meaning of the stored values.

    Such attributes are ``scale_factor``, ``add_offset``, ``_FillValue``, ``missing_value``,
    ``valid_range`` and other spellings of them. By default they raise an error.

    Attributes
    ----------
    raw_values : bool
        HDF5 (with NetCDF-4), Zarr and xarray: whether to encode the stored values, and ignore
        attributes.
    decode_cf : bool
        HDF5 (with NetCDF-4), Zarr and xarray: whether to decode values with xarray, following
        the CF conventions. Missing values become NaN.
    """

    title: ClassVar[str] = (
        "HDF5 (with NetCDF-4) and Zarr arrays whose attributes change the meaning of the values"
    )

    raw_values: bool = option(
        False, "--raw-values", "encode the stored values, and ignore attributes"
    )
    decode_cf: bool = option(
        False,
        "--decode-cf",
        "apply scale_factor, add_offset, _FillValue, missing_value, valid_range and _Unsigned, "
        "following the CF conventions; needs xarray",
    )


@dataclass(frozen=True, kw_only=True)
class EncodeOptions(TableOptions, ContainerOptions):
    """Options of encode.

    Attributes
    ----------
    machines : int
        N.
    recovery : int, optional
        L: any L of the N coded shards suffice to decode X. Required for a dense X.
    copies : int, optional
        J, instead of a code: each row of a sparse X is stored on J machines. By default
        ``min(3, N)``.
    speeds : (N,) sequence of float, optional
        With copies: relative speeds of the machines; faster ones hold more rows.
    spread : int
        With copies: number of random orders of the machines; neighbours in an order hold the same
        rows.
    code : {"fourier", "orthonormal", "gaussian"}, optional
        Code family; by default ``orthonormal`` with `systematic` or more than 24 machines,
        otherwise ``fourier``.
    systematic : bool
        Whether the first L shards are rows of X.
    seed : int
        Seed of random codes, and of the orders of `spread`.
    dtype : {"float32", "float64"}, optional
        Dtype of shards. By default float32 if X has floats of at most 32 bits, otherwise float64.
    scaling : {"rows", "none"}, optional
        Whether each row is divided by a power of two before encoding, so that its largest entry is
        in [1/2, 1), and small rows are as accurate as large ones. Products and decoded entries are
        scaled back exactly. By default ``"rows"``, but ``"none"`` with `systematic`, because then
        the first shards are rows of X.
    missing : {"refuse", "drop-rows", "mean"}
        Treatment of missing values: NaN in floats, and cells of a text table that are empty or
        ``NA``, ``NaN``, ``null``, ``?`` and the like. They raise an error, or their rows are
        dropped from X and from targets, or the mean of the column replaces them. A row without a
        target value is dropped with ``"mean"``, too.
    memory : int
        Bytes that each process may use in addition to the interpreter and an array in memory.
    resume : bool
        Whether to continue an interrupted encode with the same arguments. Without an interrupted
        encode, a new one starts; if the store is complete, nothing is done. Text is read again from
        the beginning. An array may have changed, so an interrupted encode of an array starts from
        the beginning, and a complete store raises an error.
    shape : (int, int), optional
        Shape of a raw binary source.
    input_dtype : str, optional
        Dtype of a raw binary source. By default `dtype`.
    """

    title: ClassVar[str] = ""

    machines: int = option(
        0, "--machines N", "number of machines, N", values.positive, required=True
    )
    recovery: int | None = option(
        None,
        "--recovery L",
        "any L of the machines suffice to decode X; required for a dense X",
        values.positive,
    )
    copies: int | None = option(
        None,
        "--copies J",
        "store each row of a sparse X on J machines, instead of --recovery (default: 3, at most N)",
        values.positive,
    )
    speeds: Sequence[float] | None = option(
        None,
        "--speeds LIST",
        "with copies: relative speeds of the machines; faster ones hold more rows (default: equal)",
        values.speeds,
    )
    spread: int = option(
        4,
        "--spread K",
        "with copies: number of random orders of the machines; neighbours in an order hold the "
        "same rows. More orders balance the work better, but make it more likely that J machines "
        "that leave together hold all copies of a row (default: 4)",
        values.positive,
    )
    code: str | None = option(
        None,
        "--code",
        "code family (default: orthonormal with --systematic or more than 24 machines, otherwise "
        "fourier)",
        choices=["fourier", "orthonormal", "gaussian"],
    )
    systematic: bool = option(False, "--systematic", "store rows of X in the first L shards")
    seed: int = option(
        0,
        "--seed I",
        "seed of random codes, and of the orders of --spread (default: 0)",
        values.natural,
    )
    dtype: str | None = option(
        None,
        "--dtype",
        "dtype of the shards (default: float32 if X is float32 or float16, otherwise float64)",
        choices=["float32", "float64"],
    )
    scaling: str | None = option(
        None,
        "--scaling",
        "divide each row by a power of two before encoding, or not (default: none with "
        "--systematic, otherwise rows)",
        choices=["rows", "none"],
    )
    missing: str = option(
        "refuse",
        "--missing",
        "treatment of missing values (NaN, and empty cells, NA or ? of text tables): refuse them, "
        "drop their rows from X and from targets, or replace them with the mean of the column "
        "(default: refuse)",
        choices=["refuse", "drop-rows", "mean"],
    )
    memory: int = option(
        WORK_MEMORY_BYTES,
        "--memory SIZE",
        "memory that each process may use in addition to Python itself (default: 512M)",
        values.size,
    )
    resume: bool = option(False, "--resume", "continue an interrupted encode")
    shape: tuple[int, int] | None = option(
        None,
        "--shape Q,R",
        "X is raw binary of this shape, C-ordered, such as 1000,20",
        values.shape,
    )
    input_dtype: str | None = option(
        None, "--input-dtype DTYPE", "dtype of raw binary, such as <f4 (default: that of --dtype)"
    )
    block_bytes: int = BLOCK_BYTES  # without a flag: only tests need small blocks

    def validate(self) -> EncodeOptions:
        """Return validated options, with converted numbers, lists and targets.

        Raises
        ------
        InputError
            Names the option, what was found and what was expected.
        """
        from cec_mpi.core.plan.load import check_speeds

        for group in GROUPS:
            check_choices(group, self)
        if self.header is not None and not isinstance(self.header, bool):
            raise InputError(f"header {self.header!r}: expected True or False")
        shape: Any = None
        if self.shape is not None:
            shape = tuple(
                as_int("shape", size) for size in as_tuple("shape", self.shape, _EXPECTED_SHAPE)
            )
            if len(shape) != 2 or min(shape) < 1:
                raise InputError(f"shape {shorten(self.shape)}: expected {_EXPECTED_SHAPE}")
        options = replace(
            self,
            shape=shape,
            machines=as_int("machines", self.machines),
            recovery=None if self.recovery is None else as_int("recovery", self.recovery),
            copies=None if self.copies is None else as_int("copies", self.copies),
            spread=as_int("spread", self.spread),
            speeds=None
            if self.speeds is None
            else validate_speed_range(check_speeds(self.speeds).tolist()),
            seed=as_int("seed", self.seed),
            memory=as_int("memory", self.memory),
            delimiter=None if self.delimiter is None else parse_delimiter(self.delimiter),
            columns=None
            if self.columns is None
            else as_tuple("columns", self.columns, _EXPECTED_COLUMNS),
            drop=None if self.drop is None else as_tuple("drop", self.drop, _EXPECTED_COLUMNS),
            target=_parse_targets(self.target),
        )
        if options.raw_values and options.decode_cf:
            raise InputError("--raw-values and --decode-cf: expected only one of them")
        if options.recovery is not None:
            for name in _COPIES_OPTIONS:
                if getattr(options, name) != _DEFAULTS[name]:
                    raise InputError(
                        f"{name} and recovery: expected only one of them, because a store has "
                        "either copies of rows or a code"
                    )
        return options

    def reject_code_options(self) -> None:
        """Raise if an option is set that does not apply to copies of a sparse X.

        Raises
        ------
        InputError
            Names the option.
        """
        for name in (*_CODE_OPTIONS, *self.file_options):
            if getattr(self, name) != _DEFAULTS[name]:
                raise InputError(
                    f"{name} is only for a code (with recovery): without it, a sparse X is stored "
                    "as copies of its rows"
                )

    @property
    def scales_rows(self) -> bool:
        """Whether rows are divided by powers of two."""
        return self.scaling == "rows" or (self.scaling is None and not self.systematic)

    @property
    def table_options(self) -> list[str]:
        """Names of the options of text tables that are set."""
        names = (field.name for field in own_options(TableOptions))
        return [name for name in names if self._is_set(name)]

    @property
    def file_options(self) -> list[str]:
        """Names of the options of files that are set."""
        return [*filter(self._is_set, ("shape", "input_dtype")), *self.table_options]

    def _is_set(self, name: str) -> bool:
        return getattr(self, name) not in (None, ())

    def reject_container_options(self, name: str) -> None:
        """Raise if an option of HDF5 and Zarr is set, because X has another format.

        Raises
        ------
        InputError
            Names the option and the matrix.
        """
        for field in own_options(ContainerOptions):
            if getattr(self, field.name):
                raise InputError(
                    f"--{field.name.replace('_', '-')} is only for HDF5 (with NetCDF-4) and Zarr, "
                    f"not for {name}"
                )

    def to_arguments(self) -> dict[str, Any]:
        """Return the arguments that a resume must repeat, as JSON values."""
        names = [field.name for group in GROUPS for field in own_options(group)]
        return {
            **{name: getattr(self, name) for name in names if name not in _RESUME_MAY_CHANGE},
            "shape": None if self.shape is None else list(self.shape),
            "header": None if self.header is None else ("yes" if self.header else "no"),
            "delimiter": _DELIMITER_NAMES.get(self.delimiter or "", self.delimiter),
            "columns": list(map(str, self.columns or ())) or None,
            "drop": list(map(str, self.drop or ())) or None,
            "target": [f"{column}:{os.fspath(file)}" for column, file in self.target] or None,
        }

    def resume_command(self, source: Any, store: Path) -> str:
        """Return the command that resumes an interrupted encode."""
        arguments = {
            name: value
            for name, value in self.to_arguments().items()
            if value and value != _DEFAULTS[name]
        }
        if not isinstance(source, str | os.PathLike):
            keywords = (f"{name}={value!r}" for name, value in arguments.items())
            return f"cec_mpi.encode(X, {str(store)!r}, {', '.join(keywords)}, resume=True)"
        command = ["cec-mpi", "encode", os.fspath(source), str(store)]
        for name, value in arguments.items():
            flag = f"--{name.replace('_', '-')}"
            if value is True:
                command.append(flag)
            elif name == "target":
                command += [argument for target in value for argument in (flag, target)]
            else:
                command += [flag, _join_csv(value) if isinstance(value, list) else str(value)]
        return shlex.join([*command, "--resume"])


GROUPS = (EncodeOptions, TableOptions, ContainerOptions)
"""Groups in the order of the help."""

_DEFAULTS = {field.name: field.default for group in GROUPS for field in own_options(group)}


def _join_csv(values: list[object]) -> str:
    """Join values with commas, and quote values that contain commas."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(values)
    return text.getvalue()


def _parse_targets(target: Any) -> tuple[tuple[str | int, Path], ...]:
    """Return pairs of a column and a file, from pairs or a mapping."""
    items: Iterable[Any] = target.items() if isinstance(target, Mapping) else target or ()
    try:
        pairs = [(column, file) for column, file in items]
    except (TypeError, ValueError):
        raise InputError(
            f"target {shorten(target)}: expected columns with files, such as {{'age': 'age.npy'}}"
        ) from None
    targets = tuple((column, as_path(file)) for column, file in pairs)
    for column, file in targets:
        if file.suffix.lower() != ".npy":
            raise InputError(f"target {column}:{file}: expected the name of an .npy file")
    if len({column for column, _ in targets}) < len(targets):
        raise InputError("target: a column is listed twice, expected one file for each column")
    if len({file.absolute() for _, file in targets}) < len(targets):
        raise InputError("target: a file is listed twice, expected a file for each column")
    return targets
