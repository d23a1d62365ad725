"""Unusual names of columns, files and stores."""

import h5py
import numpy as np
import pandas
import pytest

from cec_mpi import encode
from cec_mpi.errors import InputError
from cec_mpi.store import decode, open_store, repair

X = np.arange(10.0).reshape(5, 2)
NAMES = ["@generator", '"generator": []', "sha256", "{host}", "a::b", "-x", "~", "#"]
NAMES += ['"', "\\", "\ufeffage", "\u2028", "\x1b[2J", "a\nb", "a\rb", "x" * 200]


@pytest.mark.parametrize("name", NAMES)
def test_a_store_keeps_any_column_name(tmp_path, name):
    encode(pandas.DataFrame(X, columns=["a", name]), tmp_path / "store", 3, 2)
    repair(tmp_path / "store")
    assert open_store(tmp_path / "store").manifest.column_names == ("a", name)
    decode(tmp_path / "store", tmp_path / "X.csv")
    encode(tmp_path / "X.csv", tmp_path / "again", 3, 2, header=True)
    assert open_store(tmp_path / "again").manifest.column_names == ("a", name.strip())


def test_column_names_that_a_table_cannot_have_are_refused(tmp_path):
    frames = (pandas.DataFrame(X, columns=["a", name]) for name in ("\ud800", "NUL\0"))
    for frame, store in zip(frames, ("surrogate", "NUL"), strict=True):
        encode(frame, tmp_path / store, 3, 2)
    with pytest.raises(InputError, match="which UTF-8 cannot represent"):
        decode(tmp_path / "surrogate", tmp_path / "X.csv")
    decode(tmp_path / "NUL", tmp_path / "X.csv")
    with pytest.raises(InputError, match="contains a NUL byte"):
        encode(tmp_path / "X.csv", tmp_path / "again", 3, 2, header=True)


@pytest.mark.parametrize("name", [*NAMES, "\udcff"])
def test_files_and_stores_may_have_any_name(tmp_path, name):
    source, store, out = (f"{tmp_path}/X{name}{end}" for end in (".npy", ".store", " again.npy"))
    np.save(source, X)
    encode(source, store, 3, 2)
    repair(store)
    decode(store, out)
    assert np.allclose(np.load(out), X)


def test_names_that_no_file_can_have_are_refused(tmp_path):
    for name in ("NUL\0", "\ud800", "x" * 10_000):
        with pytest.raises(InputError, match=r"does not exist|no such file"):
            encode(f"{tmp_path}/{name}.npy", tmp_path / "store", 3, 2)
        with pytest.raises(InputError, match=r"cannot be (made|created)|is not a directory"):
            encode(X, f"{tmp_path}/{name}", 3, 2)


def test_names_of_directories_and_datasets_may_have_colons(tmp_path):
    directory = tmp_path / "a::b"
    directory.mkdir()
    with h5py.File(directory / "X.h5", "w") as file:
        file["x::y"] = X
        file["z"] = X + 1
    encode(f"{directory}/X.h5::/x::y", tmp_path / "store", 3, 2)
    decode(tmp_path / "store", f"{directory}/Y.h5::/y::z")
    with h5py.File(directory / "Y.h5") as file:
        assert np.allclose(file["y::z"], X)


@pytest.mark.usefixtures("no_launcher")
def test_names_of_stores_cannot_control_the_terminal(tmp_path, call):
    np.save(tmp_path / "X.npy", X)
    store = tmp_path / "a\x1b]0;owned\x07\nshard-0001.npy: good"
    encode_words = ("encode", tmp_path / "X.npy", store, "--machines", 3, "--recovery", 2)
    for words in (encode_words, ("info", store), ("verify", store)):
        code, out, err = call(words)
        assert code == 0, err
        assert "\x1b" not in out + err
        assert out.splitlines().count("shard-0001.npy: good") == (words[0] == "verify")
