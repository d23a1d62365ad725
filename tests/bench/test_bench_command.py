"""Each benchmark of one process, small, as the command line starts it."""

import json

import pytest

from cec_mpi.bench.figures import Result
from cec_mpi.bench.ranks import RankBenchmark
from cec_mpi.cli import build_parser, main

SMALL = {
    "kernel": "--columns 3 50 --megabytes 1 --turns 1 --dtype float32",
    "block": "--columns 50 --vectors 2 8 --megabytes 1 --turns 1",
    "adjoint": "--columns 50 --vectors 1 3 --megabytes 1 --turns 1 --dtype float32",
    "decode": "--recovery 3 4 --megabytes 1 --turns 1",
    "local": "--rows 31 --columns 8 --machines 4 --recovery 2 --steps 5 --turns 1",
    "event": "--machines 6 --recovery 3 --leave 2 --rows 60 --columns 5 --turns 2",
    "plan": "--machines 12 --rows 60 --turns 1",
    "encode": "--rows 3000 --columns 40 --turns 1",
    "verify": "--rows 3000 --columns 40 --turns 2 --dtype float64",
}
FIRST = {  # a figure of each
    "kernel": ("X'v, r = 50, 50 intervals, in double", "the best of NumPy"),
    "block": ("X W, 8 vectors, r = 50", "one vector"),
    "adjoint": ("X'V, 3 vectors, r = 50", "np.dot with one vector"),
    "decode": ("X w of float32, L = 3, R = 8000, equal speeds, 2 blocks", "np.copyto"),
    "local": ("X w, recorded, speeds learned", "its products alone"),
    "event": ("X'v, new set", "no event"),
    "plan": ("L = 6, uniform speeds", "the cyclic plan"),
    "encode": ("encode", "the slower of both"),
    "verify": ("verify", "reading the same files"),
}


@pytest.fixture
def bench(capsys, tmp_path, monkeypatch, no_launcher):
    """Run it in an empty directory, which stays empty; returns code, output and errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

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
    figures = Result.from_json(out).figures
    assert len({each.key for each in figures}) == len(figures)
    for each in found["figures"]:
        assert 0 < each["low"] <= each["value"] <= each["high"], each
        assert (each["unit"] == "ratio") == bool(each["over"]), each
    assert FIRST[what] in {each.key[:2] for each in figures}
    assert list(tmp_path.iterdir()) == []


def test_each_has_the_name_that_it_says_of_itself():
    commands = build_parser("bench").commands["bench"].commands
    assert {name: each.get_default("kind").what for name, each in commands.items()} == {
        name: name for name in commands
    }
    assert {*SMALL} < {*commands}


def test_each_of_ranks_knows_what_it_writes():
    commands = build_parser("bench").commands["bench"].commands
    kinds = [each.get_default("kind") for each in commands.values()]
    of_ranks = [kind for kind in kinds if issubclass(kind, RankBenchmark)]
    assert of_ranks
    for kind in of_ranks:
        assert 0 < kind().size(4) < kind().size(8)


def test_it_says_what_it_measures_to_those_who_want_to_hear_it(bench):
    code, _, err = bench("decode", "--recovery", 3, "--megabytes", 1, "--turns", 1, "-v")
    said = err.splitlines()
    assert code == 0, err
    assert any(line.startswith("cec-mpi: not counted: copy, ") for line in said), err
    assert any(line.startswith("cec-mpi: turn 1 of 1: copy, ") for line in said)


def test_a_plan_is_compared_where_the_peer_is_not_too_large(bench, monkeypatch):
    monkeypatch.setattr("cec_mpi.bench.plan._MOST_PLACES", 12 * 3)
    code, out, err = bench("plan", *SMALL["plan"].split(), "--json")
    assert (code, err) == (0, "")
    figures = Result.from_json(out).figures
    assert {each.name.split(",")[0] for each in figures if each.over} == {"L = 1", "L = 3"}
    of_all = {each.name.split(",")[0] for each in figures if each.unit == "s"}
    assert of_all == {"L = 1", "L = 3", "L = 6", "L = 10"}


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
    assert lines[0].startswith("worse: verify over reading the same files: ")
    code, out, err = bench(*words, "--compare", old, "--json")
    assert json.loads(out)["worse"] == [{"name": "verify", "over": "reading the same files"}]
    for each in content["figures"]:
        each |= {"low": 1e9, "value": 1e9, "high": 1e9}
    content["machine"]["processor"] = "another"
    given = dict(content["figures"][0])
    old.write_text(json.dumps(content))
    code, out, err = bench(*words, "--compare", old)
    assert "nothing got worse" in out
    assert "figures of another computer: processor another" in out
    code, out, err = bench(*words, "--compare", old, "--json")
    assert json.loads(out)["before"] == {key: content[key] for key in ("date", "machine")}
    content["figures"][0] = given | {"name": "a check"}
    old.write_text(json.dumps(content))
    code, out, err = bench(*words, "--compare", old)
    assert out.splitlines()[-1] == (
        "not compared, since only one of both has it: a check and verify"
    )


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("kernel --megabytes 1000000000", "--megabytes 1000000000: expected at most half of the"),
        ("kernel --columns 1000000000000000000000", "--columns 1000000000000000000000: expected"),
        ("kernel --megabytes 1 --columns 4 --intervals 32769", "expected at most 32768, the rows"),
        ("block --megabytes 1 --vectors 1000000000", "--vectors 1000000000: expected at most half"),
        ("adjoint --megabytes 1 --columns 9000000000000", "--columns 9000000000000: expected"),
        ("plan --machines 100001", "--machines 100001: expected at most 100000"),
        ("decode --recovery 3 301", "--recovery 301: expected at most 300"),
        ("decode --megabytes 1000000000", "--megabytes 1000000000: expected at most half of the"),
        ("verify --rows 1000000000000000", "bytes: expected"),
        ("local --rows 1000000000000000", "bytes: expected"),
        ("event --leave 91", "--leave 91 of 100 machines: expected at least 10 that stay"),
        ("event --machines 6 --recovery 3 --turns 8", "found 20 sets, expected at least 22"),
        ("start --ranks 1", "--ranks 1: expected at least 2"),
        ("start --ranks 100000000", "--ranks 100000000: expected at most half of the"),
        ("step --ranks 100000000", "--ranks 100000000: expected at most half of the"),
        ("step --rows 1000000000000000", "bytes: expected"),
        ("step --ranks 1", "--recovery 3 with 1 rank, of which rank 0 is no machine"),
        ("scale --ranks 3", "bench scale with 3 ranks: expected at least 4"),
        ("step --directory none", "none is not a directory"),
    ],
)
def test_settings_that_are_refused(bench, tmp_path, words, said):
    code, out, err = bench(*words.split())
    assert (code, out) == (2, "")
    assert err.startswith("cec-mpi: error: ")
    assert err.count("\n") == 1
    assert said in err
    assert list(tmp_path.iterdir()) == []
