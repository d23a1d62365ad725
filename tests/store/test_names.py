"""Unusual names of columns, files and stores."""

import csv
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import h5py
import numpy as np
import pandas
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cec_mpi import encode
from cec_mpi.errors import InputError
from cec_mpi.store import decode, open_store, repair, verify

X = np.arange(10.0).reshape(5, 2)
SPECIAL = [
    *("@generator", '"generator": []', "sha256", "{host}", "{bytes}", "a::b", "X.h5::", "-x", "~"),
    *(
        "#",
        '"',
        "\\",
        "\ufeffage",
        "\u2028",
        "\x1b[2J",
        "a\nb",
        "a\rb",
        "NUL\0",
        "\ud800",
        "\udcff",
    ),
    "x" * 10_000,
]
TEXTS = st.sampled_from(SPECIAL) | st.text(st.characters(exclude_categories=()), max_size=8)


def have_surrogates(names):
    return any("\ud800" <= letter <= "\udfff" for name in names for letter in name)


def write_table(path, names):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerows([names, *X.tolist()])


@pytest.mark.filterwarnings("ignore:.*like the index of a data frame")
@given(names=st.lists(TEXTS, min_size=2, max_size=2, unique=True))
@example(names=["@generator", '"generator": []'])
@settings(max_examples=10)
def test_a_column_of_any_name_goes_through_a_store(names):
    with TemporaryDirectory() as scratch:
        directory = Path(scratch)
        encode(pandas.DataFrame(X, columns=names), directory / "store", 3, 2)
        assert not any(verify(directory / "store").problems)
        repair(directory / "store")
        assert open_store(directory / "store").manifest.column_names == tuple(names)
        if have_surrogates(names):
            with pytest.raises(InputError, match="which UTF-8 cannot represent"):
                decode(directory / "store", directory / "X.csv")
            assert [path.name for path in directory.iterdir()] == ["store"]
            return
        decode(directory / "store", directory / "X.csv")
        if any("\0" in name for name in names):
            with pytest.raises(InputError, match="contains a NUL byte"):
                encode(directory / "X.csv", directory / "again", 3, 2, header=True)
            return
        encode(directory / "X.csv", directory / "again", 3, 2, header=True)
        names_again = open_store(directory / "again").manifest.column_names
        assert names_again == tuple(name.strip() for name in names)


def can_exist(path):
    """Return whether a file can have this name."""
    try:
        path.touch(exist_ok=False)
    except (OSError, ValueError):
        return False
    path.unlink()
    return True


@given(name=TEXTS, suffix=st.sampled_from([".csv", ".npy", ".h5"]))
@example(name="a::b", suffix=".h5")
@example(name="x" * 10_000, suffix=".npy")
@settings(max_examples=10)
def test_files_and_stores_of_any_name(name, suffix):
    with TemporaryDirectory() as scratch:
        source, store = Path(f"{scratch}/X{name}{suffix}"), Path(f"{scratch}/X{name}.store")
        out = Path(f"{scratch}/X{name} again{suffix}")
        if not can_exist(out):
            with pytest.raises(InputError, match=r"does not exist|no such file"):
                encode(source, Path(scratch, "store"), 3, 2)
            np.save(f"{scratch}/matrix.npy", X)
            with pytest.raises(InputError, match=r"cannot be (made|created)|is not a directory"):
                encode(f"{scratch}/matrix.npy", store, 3, 2)
            return
        if suffix == ".csv":
            write_table(source, ["a", "b"])
        elif suffix == ".npy":
            np.save(source, X)
        else:
            with h5py.File(source, "w") as file:
                file["x"] = X
        encode(source, store, 3, 2)
        assert not any(verify(store).problems)
        repair(store)
        decode(store, out)
        shutil.rmtree(store)
        encode(out, store, 3, 2)
        decode(store, f"{scratch}/matrix.npy")
        assert np.allclose(np.load(f"{scratch}/matrix.npy"), X)


def test_a_dataset_of_a_file_whose_name_has_colons(tmp_path):
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
def test_names_of_stores_cannot_write_on_the_terminal(tmp_path, call):
    np.save(tmp_path / "X.npy", X)
    store = tmp_path / "a\x1b]0;owned\x07\nshard-0001.npy: good"
    encode_words = ("encode", tmp_path / "X.npy", store, "--machines", 3, "--recovery", 2)
    for words in (encode_words, ("info", store), ("verify", store)):
        code, out, err = call(words)
        assert code == 0, err
        assert "\x1b" not in out + err
        assert out.splitlines().count("shard-0001.npy: good") == (words[0] == "verify")
