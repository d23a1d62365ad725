"""Options of encode, as flags of the command and keywords of the function."""

import numpy as np
import pytest
import scipy.sparse as sp

import cec_mpi
from cec_mpi.errors import InputError


def test_a_function_names_keywords_and_a_command_flags(call, tmp_path):
    np.save(tmp_path / "X.npy", np.eye(4))
    with pytest.raises(InputError, match=r"a recovery threshold \(recovery=L\)"):
        cec_mpi.encode(tmp_path / "X.npy", tmp_path / "store", 4)
    _, _, err = call(["encode", "X.npy", "store", "--machines", 4], tmp_path)
    assert "a recovery threshold (--recovery L)" in err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"recovery": True}, "recovery True: expected a whole number"),
        ({"machines": "3"}, "machines '3': expected a whole number"),
        ({"memory": "64M"}, "memory '64M': expected a whole number"),
        ({"seed": None}, "seed None: expected a whole number"),
        ({"systematic": 3}, "systematic 3: expected True or False"),
        ({"raw_values": "yes"}, "raw_values 'yes': expected True or False"),
        ({"header": "maybe"}, "header 'maybe': expected True or False"),
        ({"delimiter": 3}, "delimiter 3: expected one character"),
        ({"columns": 3}, "columns 3: expected a list of names or numbers"),
        ({"drop": "a"}, "drop 'a': expected a list of names or numbers"),
        ({"target": "a"}, "target 'a': expected columns with files"),
        ({"shape": (4,)}, r"shape \(4,\): expected two numbers of at least 1"),
        ({"shape": "4,2", "dtype": "float64"}, "shape '4,2': expected two numbers of at least 1"),
        ({"raw_values": True, "decode_cf": True}, "raw_values=True and decode_cf=True: expected"),
        ({"recover": 2}, "encode got an unexpected keyword argument 'recover'"),
    ],
)
def test_keywords_of_wrong_types_are_named(given, message, tmp_path):
    (tmp_path / "X.csv").write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(InputError, match=f"^{message}"):
        cec_mpi.encode(
            tmp_path / "X.csv", tmp_path / "store", **{"machines": 3, "recovery": 2} | given
        )
    assert [path.name for path in tmp_path.iterdir()] == ["X.csv"]


def test_numbers_of_numpy_are_taken(tmp_path):
    made = cec_mpi.encode(np.eye(6, 2), tmp_path / "S", np.int64(3), np.uint8(2), seed=np.int32(1))
    assert (made.code.machines, made.code.recovery) == (3, 2)


def test_a_dataframe_without_recovery_is_dense(tmp_path):
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InputError, match=r"DataFrame is not a sparse matrix; .*recovery=L"):
        cec_mpi.encode(pandas.DataFrame({"a": [1.0, 2.0]}), tmp_path / "store", 3)


# --- options of some formats --------------------------------------------------------------

X = np.arange(8.0).reshape(4, 2)
WRITERS = {
    "array": lambda path: X,
    "npy": lambda path: np.save(path / "X.npy", X) or path / "X.npy",
    "csv": lambda path: np.savetxt(path / "X.csv", X, delimiter=",") or path / "X.csv",
    "sparse": lambda path: sp.csr_array(X),
    "npz": lambda path: sp.save_npz(path / "X.npz", sp.csr_array(X)) or path / "X.npz",
}
FILES, TABLES = "is only for files, not for the ndarray", r"only for text tables \(\.csv, \.tsv\)"


@pytest.mark.parametrize(
    ("formats", "options", "message"),
    [
        ("array", {"shape": (4, 2)}, FILES),
        ("array", {"input_dtype": "<f8"}, FILES),
        ("array", {"drop": ["a"]}, FILES),
        ("array", {"target": {"a": "y.npy"}}, FILES),
        ("array", {"columns": [1]}, FILES),
        ("array", {"header": True}, FILES),
        ("npy", {"columns": [1]}, rf"{TABLES}, not for .*X\.npy"),
        ("npy", {"header": True}, rf"{TABLES}, not for .*X\.npy"),
        ("npy", {"target": {1: "y.npy"}}, rf"{TABLES}, not for .*X\.npy"),
        ("array npy csv sparse npz", {"raw_values": True}, "raw_values=True is only for HDF5"),
        ("array npy csv sparse npz", {"decode_cf": True}, "decode_cf=True is only for HDF5"),
    ],
)
def test_formats_without_an_option_refuse_it(formats, options, message, tmp_path):
    for name in formats.split():
        source = WRITERS[name](tmp_path)
        before = sorted(tmp_path.iterdir())
        way = {"copies": 2} if name in ("sparse", "npz") else {"recovery": 2}
        with pytest.raises(InputError, match=message):
            cec_mpi.encode(source, tmp_path / "store", 3, **way, **options)
        assert sorted(tmp_path.iterdir()) == before
