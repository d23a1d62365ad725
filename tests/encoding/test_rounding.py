"""Numbers that the dtype of a store cannot represent: one warning with their count and error."""

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

BIG = 2**53 + 1


@pytest.mark.parametrize("stored", ["float32", "float64"])
@given(dtype=st.sampled_from(["int8", ">i4", "uint32", "int64", ">i8", "uint64"]), data=st.data())
def test_errors_of_integers_are_exact(stored, dtype, data):
    bounds = np.iinfo(dtype)
    numbers = st.integers(int(bounds.min), int(bounds.max))
    values = np.array(data.draw(st.lists(numbers, max_size=5)), dtype)
    converted = values.astype(stored)
    pairs = zip(values.tolist(), converted.tolist(), strict=True)
    errors = [abs(int(value) - int(number)) for value, number in pairs]
    expected = Rounding(sum(map(bool, errors)), float(max(errors, default=0)))
    assert measure_rounding(values, converted) == expected


def test_errors_of_long_doubles_are_exact():
    third = np.longdouble(1) / 3
    values = np.array([third, np.longdouble(0.5), np.longdouble("inf")])
    rounding = measure_rounding(values, values.astype(np.float64))
    error = abs(Fraction(*third.as_integer_ratio()) - Fraction(float(third)))
    assert rounding == Rounding(int(error > 0), float(error))


def npy(directory, X):
    np.save(directory / "X.npy", X)
    return directory / "X.npy"


def parts(directory, X):
    """One part of floats, and one of integers."""
    np.save(directory / "1.npy", X[:20].astype(np.float64))
    np.save(directory / "2.npy", X[20:])
    return directory


def mtx(directory, X):
    head = "%%MatrixMarket matrix coordinate integer general"
    (directory / "X.mtx").write_text(f"{head}\n40 3 2\n1 1 5\n40 3 {X[-1, -1]}\n")
    return directory / "X.mtx"


def frame(X, dtype="int64"):
    """A frame with a column of floats, which makes all numbers of an array floats."""
    return pd.DataFrame(X).astype(dtype).astype({0: "float64"})


MAKERS = {
    "npy": npy,
    "parts": parts,
    "array": lambda _, X: X,
    "sparse array": lambda _, X: sp.csc_array(X),
    "frame": lambda _, X: frame(X),
    "frame with missing values": lambda _, X: frame(X, "Int64"),
    "mtx": mtx,
}
CASES = [(name, {"recovery": 2}) for name in MAKERS]


@pytest.mark.filterwarnings("ignore:.* is sparse")
@pytest.mark.parametrize(("name", "options"), [*CASES, ("sparse array", {}), ("mtx", {})])
def test_rounded_numbers_cause_one_warning_with_count_and_error(name, options, tmp_path):
    X = np.zeros((40, 3), np.int64)
    X[0, 0], X[39, 2] = 5, BIG
    source = MAKERS[name](tmp_path, X)
    with pytest.warns(UserWarning, match="1 number was rounded, by at most 1, .* float64") as seen:
        encode(source, tmp_path / "S", 3, **options)
    assert len([warning for warning in seen if "was rounded" in str(warning.message)]) == 1


def test_numbers_of_all_blocks_are_counted(tmp_path):
    with pytest.warns(UserWarning, match="450000 numbers were rounded"):
        encode(np.full((500, 900), BIG), tmp_path / "S", 3, 2, block_bytes=1 << 12)


def test_representable_integers_and_chosen_precision_cause_no_warning(tmp_path):
    with warnings.catch_warnings(action="error"):
        encode(np.array([[2**53, -(2**53)], [2**62, 3]]), tmp_path / "S", 3, 2)
        encode(np.array([[0.1, 0.2], [3, 4]]), tmp_path / "F", 3, 2, dtype="float32")


@pytest.mark.filterwarnings("ignore:.*rounded")
@pytest.mark.parametrize(
    ("number", "content"),
    [(7, "X as it was stored"), (BIG, "X, rounded to float64 when it was encoded")],
)
def test_decode_states_whether_copies_are_rounded(number, content, tmp_path, call):
    encode(mtx(tmp_path, np.full((1, 1), number)), tmp_path / "S", 3)
    code, printed, _ = call(["decode", "S", "back.npz"], tmp_path)
    assert (code, printed.strip()) == (0, f"back.npz: {content}")


@pytest.mark.parametrize("number", [7, BIG])
def test_a_store_of_a_frame_is_rounded_only_if_a_number_was(number, tmp_path):
    frame = pd.DataFrame({"id": [number, 5], "value": [1.5, 2.5]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert encode(frame, tmp_path / "S", 3, 2).rounded == (number == BIG)
