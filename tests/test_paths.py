"""Paths as users give them to functions and commands."""

from pathlib import Path

import numpy as np
import pytest

import cec_mpi
from cec_mpi.availability import read_availability
from cec_mpi.errors import InputError
from cec_mpi.records import read_steps, resume_steps
from cec_mpi.sklearn import CodedRidge
from cec_mpi.tasks import ridge

X = np.random.default_rng(0).standard_normal((20, 3))


class ForeignPath:
    """A path object of another library."""

    def __init__(self, path):
        self._path = str(path)

    def __fspath__(self):
        return self._path


@pytest.mark.usefixtures("no_launcher")
@pytest.mark.parametrize("kind", [str, Path, ForeignPath])
def test_functions_take_every_kind_of_path(kind, call, tmp_path):
    def at(name):
        return kind(tmp_path / name)

    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", X[:, 0])
    np.save(tmp_path / "W.npy", np.eye(3))
    (tmp_path / "up.json").write_text('{"available": [[1, 2, 3]]}')
    cec_mpi.encode(at("X.npy"), at("store"), 4, 3)
    assert cec_mpi.open_store(at("store")).manifest.rows == 20
    with cec_mpi.open_operator(at("store"), availability=at("up.json")) as A:
        assert A.available == (1, 2, 3)
        found = ridge(A, y=at("y.npy"), alpha=1e-12)["result"]
        assert np.allclose(found, [1, 0, 0])
        assert np.allclose(A @ np.eye(3), X)
    assert np.allclose(CodedRidge(alpha=1e-12).fit(at("store"), at("y.npy")).coef_, found)
    cec_mpi.decode(at("store"), at("again.npy"))
    cec_mpi.verify(at("store"))
    cec_mpi.repair(at("store"))
    cec_mpi.add_machine(at("store"))
    assert call(["run", "store", "vectors=W.npy", "--out", "out", "--serial"], tmp_path)[0] == 0
    assert len(read_steps(at("out/steps.jsonl"))[1]) == 3
    assert len(resume_steps(at("out/steps.jsonl")).steps) == 3
    assert len(read_availability([at("up.json")], 4).at(0)) == 3
    assert read_availability(at("up.json"), 4).at(0) == (1, 2, 3)


URL = "s3://bucket/x.npy"
MESSAGE = "s3://bucket/x.npy is a URL with the scheme s3: expected a file or directory"


def test_functions_name_the_scheme_of_a_url(tmp_path):
    store = tmp_path / "store"
    cec_mpi.encode(X, store, 4, 3)
    for use in (
        lambda: cec_mpi.encode(URL, tmp_path / "new", 4, 3),
        lambda: cec_mpi.encode(URL, tmp_path / "new", 4),
        lambda: cec_mpi.encode(X, URL, 4, 3),
        lambda: cec_mpi.open_store(URL),
        lambda: cec_mpi.open_operator(URL).start(),
        lambda: cec_mpi.open_operator(store, availability=URL).start(),
        lambda: cec_mpi.verify(URL),
        lambda: cec_mpi.repair(URL),
        lambda: cec_mpi.add_machine(URL),
        lambda: cec_mpi.decode(store, URL),
        lambda: cec_mpi.decode(URL, tmp_path / "out.npy"),
        lambda: read_steps(URL),
        lambda: CodedRidge().fit(URL, X[:, 0]),
        lambda: CodedRidge().fit(store, URL),
    ):
        with pytest.raises(InputError) as caught:
            use()
        assert str(caught.value).startswith(MESSAGE)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


def test_an_empty_path_is_not_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a directory that contains a matrix
    np.save(tmp_path / "X.npy", X)
    for use in (
        lambda: cec_mpi.encode("", tmp_path / "new", 4, 3),
        lambda: cec_mpi.encode(X, "", 4, 3),
        lambda: cec_mpi.open_store(""),
    ):
        with pytest.raises(InputError, match=r"^'': expected the name of a file or directory$"):
            use()


@pytest.mark.parametrize(
    "line",
    [
        "plan URL",
        "run URL power --out out",
        "run store power --out URL",
        "run store vectors=URL --out out",
        "simulate URL --steps 1",
        "report URL --out page.html",
        "report run --out URL",
        "top URL",
        "join URL",
        "doctor URL",
    ],
)
@pytest.mark.usefixtures("no_launcher")
def test_commands_name_the_scheme_of_a_url(call, tmp_path, line):
    np.save(tmp_path / "X.npy", X)
    cec_mpi.encode(X, tmp_path / "store", 4, 3)
    before = sorted(tmp_path.rglob("*"))
    code, out, err = call(line.replace("URL", URL).split(), tmp_path)
    assert code == 2
    assert MESSAGE in err
    assert err.count("\n") == 1
    assert not out
    assert sorted(tmp_path.rglob("*")) == before
