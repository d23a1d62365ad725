"""The league as the command line starts it: who takes part, who is available, what it prints."""

import json
import os
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import pytest

from cec_mpi.bench.league.league import League, figures_of
from cec_mpi.bench.league.work import Outcome
from cec_mpi.cli import main
from cec_mpi.errors import InfeasibleError, InputError

SMALL = ("league", "--size", "60", "--turns", "1", "--emulate-base", "1e6", "--limit", "100")

ONES = ",".join(["1"] * 20)


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
        assert list(tmp_path.iterdir()) == []
        return code, found.out, found.err

    return bench


def test_it_prints_times_over_those_of_this_package(bench, tmp_path_factory):
    trace = tmp_path_factory.mktemp("trace") / "trace.json"
    trace.write_text('{"available": [[1, 2, 3], [1, 3]]}')
    words = ("--speeds", "1,2,3", "--recovery", "2", "--trace", trace, "--hold", "3")
    only = ("--iterations", "6", "--only", "restarted,heterogeneous", "--json")
    code, out, err = bench(*SMALL, *words, *only)
    assert (code, err) == (0, "")
    found = {each["name"]: each for each in json.loads(out)["figures"]}
    assert found["restarted"]["over"] == "heterogeneous"
    for name in ("restarted", "heterogeneous"):
        for kind in ("in all", "an iteration", "at events", "to set up", "moved"):
            assert found[f"{name}, {kind}"]["value"] > 0
    # X is read again when a machine has gone.
    assert found["restarted, moved"]["value"] > 60 * 60 * 8 > found["heterogeneous, moved"]["value"]


def test_dask_takes_part_or_it_is_said_what_is_missing(bench):
    options = ("--speeds", "1,2", "--recovery", "1", "--trace", "ec2", "--iterations", "3")
    code, out, err = bench(*SMALL, *options, "--only", "dask,heterogeneous")
    if find_spec("distributed") is None:
        assert (code, out) == (2, "")
        assert err == (
            "cec-mpi: error: --only with dask: the package distributed is not installed; expected "
            "pip install 'cec_mpi[league]', or --only heterogeneous\n"
        )
    else:
        assert (code, err) == (0, "")
        assert "dask, moved" in out


def test_ratios_are_of_the_times_of_a_turn():
    def outcome(*seconds, events=()):
        return Outcome(1.0, list(seconds), list(events), 80)

    found = figures_of(
        {
            "heterogeneous": [outcome(1.0, 1.0), outcome(3.0)],
            "uncoded": [outcome(3.0, events=[1.0]), outcome(12.0)],
        }
    )
    (ratio,) = (each for each in found if each.over)
    assert (ratio.name, ratio.value, ratio.low, ratio.better) == ("uncoded", 3.0, 2.5, "more")
    names = {each.name: each.value for each in found}
    assert names["uncoded, at events"] == 0.5
    assert "heterogeneous, at events" not in names


def test_the_spot_trace_has_enough_machines_in_each_tick():
    six = League(hold=1, iterations=137).available()
    assert len(six) == 137
    assert min(map(len, six)) >= 3
    assert sum(a != b for a, b in pairwise(six)) == 52
    twenty = League(hold=2, iterations=274, speeds=ONES, recovery=10).available()
    assert [len(up) for up in twenty[:16:2]] == [18, 20, 20, 20, 20, 20, 20, 16]
    assert twenty[0] == twenty[1] == tuple(range(1, 19))


def test_the_trace_of_the_experiments():
    found = League(
        trace="ec2", hold=1, iterations=400, speeds=ONES, recovery=10, stragglers=2
    ).available()
    share = np.mean([[n in up for n in range(1, 21)] for up in found], axis=0)
    assert (share[:12] == 1).all()
    assert (abs(share[12:] - 0.5) < 0.1).all()


def test_ticks_with_too_few_machines_are_left_out(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("1,1,0\n1,0,0\n0,1,1\n")
    options = {"speeds": "1,1,1", "recovery": 2, "trace": str(trace), "hold": 2}
    found = League(iterations=6, **options).available()
    assert found == ((1, 2), (1, 2), (2, 3), (2, 3), (2, 3), (2, 3))
    with pytest.raises(InfeasibleError, match=r"no tick with 3 of machines 1\.\.3"):
        League(iterations=6, stragglers=1, **options).available()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recovery": 7}, "--recovery 7 and --stragglers 0: expected a sum of at most 6"),
        ({"stragglers": 4}, "--recovery 3 and --stragglers 4: expected a sum of at most 6"),
        ({"size": 5}, "--size 5: expected at least 6"),
        ({"size": 10**6}, "--size 1000000: expected at most half of the"),
        ({"base": -1.0}, "--emulate-base -1.0: expected a positive number"),
        ({"base": float("nan")}, "--emulate-base nan: expected a positive number"),
        ({"speeds": f"{ONES},1", "recovery": 2}, "--trace spot with 21 machines"),
        ({"trace": "none.json"}, "none.json: no such file"),
        ({"directory": "none"}, "none is not a directory"),
    ],
)
def test_settings_that_do_not_fit(options, message):
    with pytest.raises(InputError, match=message):
        League(only="cyclic", **options).measure()


def test_contestants_that_are_none(bench):
    code, out, err = bench("league", "--only", "heterogeneous,other")
    assert (code, out) == (2, "")
    assert "'heterogeneous,other': expected some of heterogeneous,cyclic,uncoded" in err


def test_a_contestant_that_fails_is_named(bench):
    words = ("--only", "cyclic", "--iterations", "3", "--limit", "0.1")
    code, out, err = bench(*SMALL[:-2], *words)
    assert (code, out) == (3, "")
    assert err == "cec-mpi: error: heterogeneous: mpirun: no end after 0.1 seconds (--limit)\n"
