"""Numbers that the dtype of a store cannot hold: a warning, once, with their count and error."""

import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi import encode
from cec_mpi.encoding.rounding import Rounding, measure_rounding
from cec_mpi.store import open_store

BIG = 2**53 + 1


@pytest.mark.parametrize("stored", ["float32", "float64"])
@pytest.mark.parametrize("dtype", ["int8", "int32", ">i4", "uint32", "int64", ">i8", "uint64"])
@given(data=st.data())
def test_errors_of_integers_are_exact(dtype, stored, data):
    kind = np.iinfo(dtype)
    numbers = data.draw(st.lists(st.integers(int(kind.min), int(kind.max)), max_size=5))
    values = np.array(numbers, dtype)
    kept = values.astype(stored)
    errors = [abs(int(a) - int(b)) for a, b in zip(values.tolist(), kept.tolist(), strict=True)]
    expected = Rounding(sum(map(bool, errors)), float(max(errors, default=0)))
    assert measure_rounding(values, kept) == expected


def test_errors_of_long_doubles():
    third = np.longdouble(1) / 3
    values = np.array([third, np.longdouble(0.5), np.longdouble("inf")])
    found = measure_rounding(values, values.astype(np.float64))
    exact = abs(Fraction(*third.as_integer_ratio()) - Fraction(float(third)))
    assert found.largest == float(exact)
    assert found.count == (exact > 0)


def mtx(path, number):
    path.write_text(
        f"%%MatrixMarket matrix coordinate integer general\n40 3 2\n1 1 5\n40 3 {number}\n"
    )
    return path


def npy(path, X):
    np.save(path, X)
    return path


def parts(path, X):
    """One part of integers makes those of another part floats, too."""
    path.mkdir()
    np.save(path / "1.npy", X[:20].astype(np.float64))
    np.save(path / "2.npy", X[20:])
    return path


def hdf5(path, X):
    import h5py

    with h5py.File(path, "w") as file:
        file["a"] = X
    return path


def frame(X, dtype="int64"):
    """A column of floats makes all numbers of an array floats."""
    return pd.DataFrame(X).astype(dtype).astype({0: "float64"})


MAKERS = {
    "npy": lambda d, X: npy(d / "X.npy", X),
    "npy, Fortran": lambda d, X: npy(d / "X.npy", np.asfortranarray(X)),
    "parts": lambda d, X: parts(d / "X", X),
    "hdf5": lambda d, X: hdf5(d / "X.h5", X),
    "array": lambda d, X: X,
    "sparse array": lambda d, X: sp.csc_array(X),
    "frame": lambda d, X: frame(X),
    "frame with missing values": lambda d, X: frame(X, "Int64"),
    "mtx": lambda d, X: mtx(d / "X.mtx", X[-1, -1]),
}


@pytest.mark.parametrize("way", [{"recovery": 2}, {}], ids=["code", "copies"])
@pytest.mark.parametrize("name", MAKERS)
def test_one_warning_with_count_and_error(name, way, tmp_path):
    if not way and name not in ("sparse array", "mtx"):
        return
    X = np.zeros((40, 3), np.int64)
    X[0, 0] = 5
    X[39, 2] = BIG
    source = MAKERS[name](tmp_path, X)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        encode(source, tmp_path / "S", 3, **way)
    messages = [str(each.message) for each in caught if "rounded" in str(each.message)]
    assert len(messages) == 1
    assert "1 number was rounded, by at most 1, because float64" in messages[0]


def test_columns_are_counted_where_blocks_are_short(tmp_path):
    X = np.full((500, 900), BIG)
    with pytest.warns(UserWarning, match="450000 numbers were rounded"):
        encode(X, tmp_path / "S", 3, 2, block_bytes=1 << 12)


def test_numbers_that_are_held_are_no_warning(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encode(np.array([[2**53, -(2**53)], [2**62, 3]]), tmp_path / "S", 3, 2)
        encode(np.array([[0.1, 0.2], [3, 4]]), tmp_path / "F", 3, 2, dtype="float32")


@pytest.mark.parametrize(
    ("number", "content"), [(7, "X as it was stored"), (BIG, "X, rounded to float64 by the encode")]
)
def test_decode_says_whether_copies_are_x(number, content, tmp_path, call):
    mtx(tmp_path / "X.mtx", number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert call(["encode", "X.mtx", "S", "--machines", 3], tmp_path)[0] == 0
    assert open_store(tmp_path / "S").manifest.rounded == (number == BIG)
    code, printed, _ = call(["decode", "S", "back.npz"], tmp_path)
    assert (code, printed.strip()) == (0, f"back.npz: {content}")


@pytest.mark.parametrize("number", [7, BIG])
def test_a_store_of_columns_of_several_dtypes_is_rounded_only_if_a_number_was(number, tmp_path):
    frame = pd.DataFrame({"id": [number, 5], "value": [1.5, 2.5]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert encode(frame, tmp_path / "S", 3, 2).rounded == (number == BIG)
