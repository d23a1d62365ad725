"""Missing values: refused and counted, dropped with their rows, or replaced by means."""

import dask.array
import h5py
import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from cec_mpi import encode
from cec_mpi.errors import InputError
from cec_mpi.store import decode, open_store

RNG = np.random.default_rng(0)
X = RNG.standard_normal((300, 6)) * 10.0 ** np.arange(6)
X[RNG.random(X.shape) < 0.05] = np.nan
COMPLETE = X[~np.isnan(X).any(axis=1)]
FILLED = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
INCOMPLETE = len(X) - len(COMPLETE)  # number of rows with missing values


def npy(directory):
    np.save(directory / "X.npy", X)
    return directory / "X.npy"


def hdf5(directory):
    with h5py.File(directory / "X.h5", "w") as file:
        file["X"] = X
    return directory / "X.h5"


def sparse_npz(directory):
    scipy.sparse.save_npz(directory / "X.npz", scipy.sparse.csc_array(X))
    return directory / "X.npz"


SOURCES = {
    "npy": npy,
    "hdf5": hdf5,
    "array": lambda _: X,
    "Fortran": lambda _: np.asfortranarray(X),
    "DataFrame": lambda _: pd.DataFrame(X, columns=list("abcdef")).convert_dtypes(),
    "sparse npz": sparse_npz,
    "Dask, by rectangles": lambda _: dask.array.from_array(X, chunks=(70, 4)),
}


def round_trip(directory, source, missing):
    """Return the manifest of a store and the decoded matrix."""
    manifest = encode(source, directory / missing, 4, 2, missing=missing)
    decode(directory / missing, directory / f"{missing}.npy")
    assert not list(directory.glob(".*"))
    return manifest, np.load(directory / f"{missing}.npy")


@pytest.mark.filterwarnings("ignore:.*is sparse")
@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_missing_values_are_treated_alike_in_every_source(tmp_path, make):
    source = make(tmp_path)
    with pytest.raises(
        InputError, match=rf"{INCOMPLETE} rows and 6 columns have .*missing='drop-rows'"
    ):
        encode(source, tmp_path / "store", 4, 2)
    assert not (tmp_path / "store").exists()
    for missing, expected, dropped in (("drop-rows", COMPLETE, INCOMPLETE), ("mean", FILLED, 0)):
        manifest, out = round_trip(tmp_path, source, missing)
        assert np.allclose(out, expected, rtol=1e-13, atol=0)
        assert (manifest.missing.treatment, manifest.missing.rows) == (missing, INCOMPLETE)
        assert (manifest.missing.columns, manifest.missing.dropped) == (6, dropped)
        assert open_store(tmp_path / missing).manifest.missing == manifest.missing


def test_rows_are_dropped_from_all_pieces(tmp_path):
    rows = np.arange(3_000_000.0).reshape(-1, 2)
    rows[[5, 700_000, 1_499_999], 1] = np.nan
    _, out = round_trip(tmp_path, rows, "drop-rows")
    assert np.allclose(out, np.delete(rows, [5, 700_000, 1_499_999], axis=0), rtol=1e-12)


def test_a_mean_is_finite_even_if_the_sum_overflows(tmp_path):
    _, out = round_trip(tmp_path, np.array([[1e308, 1.0], [1.5e308, 1.0], [np.nan, 1.0]]), "mean")
    assert out[2, 0] == pytest.approx(1.25e308)


@pytest.mark.parametrize("dtype", [int, float])
def test_a_treatment_without_missing_values_is_recorded(tmp_path, dtype):
    manifest, _ = round_trip(tmp_path, np.arange(6).reshape(3, 2).astype(dtype), "mean")
    assert (manifest.missing.rows, manifest.missing.columns, manifest.rows) == (0, 0, 3)


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
def test_impossible_treatments_are_refused(tmp_path, rows, missing, message):
    with pytest.raises(InputError, match=message):
        encode(np.array(rows), tmp_path / "store", 3, 2, missing=missing)
    assert not list(tmp_path.iterdir())


def test_the_command_prints_the_treatment(tmp_path, call):
    arguments = ["encode", npy(tmp_path), "store", "--machines", 4, "--recovery", 2]
    assert "--missing drop-rows" in call(arguments, tmp_path)[2]
    code, printed, _ = call([*arguments, "--missing", "drop-rows"], tmp_path)
    assert code == 0
    assert f"missing values: in {INCOMPLETE} rows and 6 columns: {INCOMPLETE} rows" in printed
    assert "left out (--missing drop-rows)" in call(["info", "store"], tmp_path)[1]
    for missing, expected in (("mean", 2), ("drop-rows", 0)):
        assert call([*arguments, "--missing", missing, "--resume"], tmp_path)[0] == expected
