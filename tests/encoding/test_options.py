"""Options of encode, as flags of the command and keywords of the function."""

import numpy as np
import pandas
import pytest
import scipy.sparse as sp

import cec_mpi
from cec_mpi.errors import InputError

DENSE = np.arange(8.0).reshape(4, 2)
SPARSE = sp.csr_array(DENSE)


def npy(directory):
    np.save(directory / "X.npy", DENSE)
    return directory / "X.npy"


def csv(directory):
    np.savetxt(directory / "X.csv", DENSE, delimiter=",")
    return directory / "X.csv"


def npz(directory):
    sp.save_npz(directory / "X.npz", SPARSE)
    return directory / "X.npz"


SOURCES = {
    "array": lambda _: DENSE,
    "frame": lambda _: pandas.DataFrame(DENSE),
    "sparse": lambda _: SPARSE,
    "npy": npy,
    "csv": csv,
    "npz": npz,
}
ONLY_ONE = "expected only one of them"
ONLY_CODES = "is only for a code"
ONLY_FILES = "is only for files, not for the ndarray"
ONLY_TABLES = r"only for text tables \(\.csv, \.tsv\), not for .*X\.npy"
ONLY_HDF5 = "=True is only for HDF5"


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("csv", {"recovery": True}, "^recovery True: expected a whole number"),
        ("csv", {"seed": None}, "^seed None: expected a whole number"),
        ("csv", {"header": "maybe"}, "^header 'maybe': expected True or False"),
        ("csv", {"delimiter": 3}, "^delimiter 3: expected one ASCII character"),
        ("csv", {"columns": 3}, "^columns 3: expected a list of names or numbers"),
        ("csv", {"target": "a"}, "^target 'a': expected columns with files"),
        ("csv", {"shape": (4,)}, r"^shape \(4,\): expected two numbers of at least 1"),
        ("csv", {"raw_values": True, "decode_cf": True}, "^raw_values=True and decode_cf=True: "),
        ("csv", {"recover": 2}, "^encode got an unexpected keyword argument 'recover'"),
        ("array", {"shape": (4, 2)}, ONLY_FILES),
        ("array", {"header": True}, ONLY_FILES),
        ("npy", {"columns": [1]}, ONLY_TABLES),
        ("npy", {"input_dtype": "<f8"}, "input_dtype= <f8 is only for raw binary"),
        ("array", {"raw_values": True}, ONLY_HDF5),
        ("frame", {"raw_values": True}, ONLY_HDF5),
        ("sparse", {"copies": 2, "decode_cf": True}, ONLY_HDF5),
        ("npz", {"copies": 2, "raw_values": True}, ONLY_HDF5),
        ("npy", {"recovery": None}, r"a recovery threshold \(recovery=L\)"),
        ("frame", {"recovery": None}, r"DataFrame is not a sparse matrix; .*recovery=L"),
        ("sparse", {"recovery": 2, "copies": 2}, f"copies and recovery: {ONLY_ONE}"),
        ("sparse", {"copies": 2, "resume": True}, f"resume {ONLY_CODES}"),
        ("sparse", {"copies": 2, "shape": (3, 3)}, f"shape {ONLY_CODES}"),
        ("sparse", {"copies": 4}, "copies 4: expected from 1 to 3"),
        ("sparse", {"copies": 2, "speeds": [1, 2]}, "2 speeds for 3 machines"),
        ("sparse", {"copies": 2, "speeds": ["a", 1, 1]}, "the speed at position 1 is 'a'"),
        ("sparse", {"copies": 2, "spread": 0}, "in 0 orders"),
    ],
)
def test_wrong_options_are_named_and_leave_no_files(source, options, message, tmp_path):
    X = SOURCES[source](tmp_path)
    before = sorted(tmp_path.iterdir())
    defaults = {"machines": 3} if "copies" in options else {"machines": 3, "recovery": 2}
    with pytest.raises(InputError, match=message):
        cec_mpi.encode(X, tmp_path / "store", **defaults | options)
    assert sorted(tmp_path.iterdir()) == before


def test_messages_of_the_command_name_its_flags(call, tmp_path):
    npy(tmp_path)
    _, _, err = call(["encode", "X.npy", "store", "--machines", 4], tmp_path)
    assert "a recovery threshold (--recovery L)" in err


def test_numbers_may_be_numpy_scalars(tmp_path):
    manifest = cec_mpi.encode(DENSE, tmp_path / "S", np.int64(3), np.uint8(2), seed=np.int32(1))
    assert (manifest.code.machines, manifest.code.recovery) == (3, 2)
    DENSE.tofile(tmp_path / "X.bin")
    options = {"shape": np.array(DENSE.shape), "input_dtype": "float64"}
    assert cec_mpi.encode(tmp_path / "X.bin", tmp_path / "raw", 3, 2, **options).rows == 4
