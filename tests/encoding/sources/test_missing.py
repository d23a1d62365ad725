"""Missing values: refused and counted, left out with their rows, or replaced by means."""

import dask.array
import h5py
import numpy as np
import pandas as pd
import pytest

from cec_mpi import encode
from cec_mpi.errors import InputError
from cec_mpi.store import decode, open_store

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 6)) * 10.0 ** np.arange(6)
X[RNG.random(X.shape) < 0.05] = np.nan
DROPPED = X[~np.isnan(X).any(axis=1)]
FILLED = np.where(np.isnan(X), np.nanmean(X, axis=0), X)


def npy(directory):
    np.save(directory / "X.npy", X)
    return directory / "X.npy"


def hdf5(directory):
    with h5py.File(directory / "X.h5", "w") as file:
        file["X"] = X
    return directory / "X.h5"


SOURCES = {
    "npy": npy,
    "hdf5": hdf5,
    "array": lambda _: X,
    "Fortran": lambda _: np.asfortranarray(X),
    "DataFrame": lambda _: pd.DataFrame(X, columns=list("abcdef")).convert_dtypes(),
    "Dask, by rectangles": lambda _: dask.array.from_array(X, chunks=(70, 4)),
}


def encoded(tmp_path, source, **options):
    made = encode(source, tmp_path / "store", 4, 2, **options)
    decode(tmp_path / "store", tmp_path / "out.npy")
    assert not list(tmp_path.glob(".*"))
    return made, np.load(tmp_path / "out.npy")


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize(("missing", "expected"), [("drop-rows", DROPPED), ("mean", FILLED)])
def test_every_source_is_treated_alike(tmp_path, make, missing, expected):
    made, out = encoded(tmp_path, make(tmp_path), missing=missing)
    assert np.allclose(out, expected, rtol=1e-13, atol=0)
    rows = int(np.isnan(X).any(axis=1).sum())
    assert (made.missing.treatment, made.missing.rows, made.missing.columns) == (missing, rows, 6)
    assert made.missing.dropped == (rows if missing == "drop-rows" else 0)
    assert open_store(tmp_path / "store").manifest.missing == made.missing


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_they_are_refused_with_their_number(tmp_path, make):
    rows = int(np.isnan(X).any(axis=1).sum())
    with pytest.raises(InputError, match=rf"{rows} rows and 6 columns have .*missing='drop-rows'"):
        encode(make(tmp_path), tmp_path / "store", 4, 2)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "f2", "g"])
def test_every_kind_of_float(tmp_path, dtype):
    rows = np.arange(15.0).reshape(5, 3).astype(dtype)
    rows[1, 2] = np.nan
    _, out = encoded(tmp_path, rows, missing="mean")
    rows[1, 2] = 8.75
    assert np.allclose(out, rows.astype(np.float64), rtol=1e-6)


def test_many_rows_in_several_pieces(tmp_path):
    long = np.arange(3_000_000.0).reshape(-1, 2)
    long[[5, 700_000, 1_499_999], 1] = np.nan
    _, out = encoded(tmp_path, long, missing="drop-rows")
    assert np.allclose(out, np.delete(long, [5, 700_000, 1_499_999], axis=0), rtol=1e-12)


def test_a_mean_of_numbers_whose_sum_is_too_large(tmp_path):
    huge = np.array([[1e308, 1.0], [1.5e308, 1.0], [np.nan, 1.0]])
    _, out = encoded(tmp_path, huge, missing="mean")
    assert out[2, 0] == pytest.approx(1.25e308)


def test_a_store_without_missing_values_records_that(tmp_path):
    whole = np.arange(6).reshape(3, 2)
    for number, source in enumerate((whole, whole.astype(float))):
        made = encode(source, tmp_path / f"{number}", 3, 2, missing="mean")
        assert (made.missing.rows, made.missing.columns, made.rows) == (0, 0, 3)


@pytest.mark.parametrize(
    ("rows", "missing", "message"),
    [
        ([[1, np.nan], [np.nan, 2]], "drop-rows", "all 2 rows, so no rows remain"),
        ([[1, np.nan], [2, np.nan]], "mean", r"no number in column 1 \(counted from 0\)"),
        ([[1, np.nan], [2, np.inf]], "mean", r"holds inf at row 1, column 1"),
        ([[1, np.nan], [2, np.inf]], "refuse", r"holds inf at row 1, column 1"),
        ([[1, np.nan], [2, 3]], "median", r"missing 'median': expected refuse or drop-rows"),
    ],
)
def test_what_has_no_treatment_is_refused(tmp_path, rows, missing, message):
    with pytest.raises(InputError, match=message):
        encode(np.array(rows), tmp_path / "store", 3, 2, missing=missing)
    assert not list(tmp_path.iterdir())


def test_the_command_says_what_was_done(tmp_path, call):
    words = ["encode", npy(tmp_path), "store", "--machines", 4, "--recovery", 2]
    assert "--missing drop-rows" in call(words, tmp_path)[2]
    code, printed, _ = call([*words, "--missing", "drop-rows"], tmp_path)
    left = f"missing values: in {300 - len(DROPPED)} rows and 6 columns: {300 - len(DROPPED)} rows"
    assert code == 0
    assert left in printed
    assert "left out (--missing drop-rows)" in call(["info", "store"], tmp_path)[1]
    assert call([*words, "--missing", "mean", "--resume"], tmp_path)[0] == 2
    assert call([*words, "--missing", "drop-rows", "--resume"], tmp_path)[0] == 0
