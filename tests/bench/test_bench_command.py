"""Each benchmark of one process, small, as the command line starts it."""

import json
import os

import pytest

from cec_mpi.cli import main

SMALL = {
    "encode": "--rows 3000 --columns 40 --turns 1",
    "verify": "--rows 3000 --columns 40 --turns 2 --dtype float64",
}
FIRST = {  # a figure of each
    "encode": ("encode", "the slower of both"),
    "verify": ("verify", "reading the same files"),
}


@pytest.fixture
def bench(capsys, tmp_path, monkeypatch):
    """Run it in an empty directory, which stays empty; returns code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    for name in list(os.environ):
        if name.startswith(("OMPI_COMM", "PMI")):
            monkeypatch.delenv(name)

    def bench(*words):
        code = main(["bench", *map(str, words)])
        found = capsys.readouterr()
        return code, found.out, found.err

    return bench


@pytest.mark.parametrize("what", SMALL)
def test_each_prints_its_figures(bench, tmp_path, what):
    code, out, err = bench(what, *SMALL[what].split(), "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["what"] == what
    names = [each["name"] for each in found["figures"]]
    assert len(set(names)) == len(names)
    for each in found["figures"]:
        assert 0 < each["low"] <= each["value"] <= each["high"], each
        assert (each["unit"] == "ratio") == bool(each["over"]), each
    assert FIRST[what] in {(each["name"], each["over"]) for each in found["figures"]}
    assert list(tmp_path.iterdir()) == []


def test_beside_earlier_figures(bench, tmp_path_factory):
    old = tmp_path_factory.mktemp("old") / "old.json"
    words = ("verify", *SMALL["verify"].split())
    code, out, err = bench(*words, "--json")
    content = json.loads(out)
    for each in content["figures"]:
        each |= dict.fromkeys(("low", "value", "high"), 1e-9)
    old.write_text(json.dumps(content))
    code, out, err = bench(*words, "--compare", old)
    assert (code, err) == (0, "")
    lines = [line for line in out.splitlines() if line.startswith("worse: ")]
    assert len(lines) == 1  # rates are not compared
    assert lines[0].startswith("worse: verify: ")
    code, out, err = bench(*words, "--compare", old, "--json")
    assert json.loads(out)["worse"] == ["verify"]
    for each in content["figures"]:
        each |= {"low": 1e9, "value": 1e9, "high": 1e9}
    content["machine"]["processor"] = "another"
    old.write_text(json.dumps(content))
    code, out, err = bench(*words, "--compare", old)
    assert "nothing got worse" in out
    assert "figures of another computer: processor another" in out


def test_settings_that_are_not_those_of_the_earlier_figures(bench, tmp_path_factory):
    old = tmp_path_factory.mktemp("old") / "old.json"
    code, out, err = bench("verify", *SMALL["verify"].split(), "--json")
    old.write_text(out)
    code, out, err = bench("verify", "--rows", 20, "--compare", old)
    assert (code, out) == (2, "")
    assert err == (
        f"cec-mpi: error: --compare {old}: found rows 3000, columns 40 and dtype float64, "
        "expected the same settings\n"
    )
    code, out, err = bench("encode", "--compare", old)
    assert code == 2
    assert "found figures of verify, expected encode" in err
