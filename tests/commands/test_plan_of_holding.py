"""cec-mpi plan --shards-per-machine: machines that hold several shards."""

import json

import pytest

from cec_mpi.cli import main

FAST = ["plan", "--speeds", "1,1,1,1,1,20", "--recovery", "4", "--rows", "100"]


@pytest.fixture
def cec(capsys):
    def run(*words):
        code = main([str(word) for word in words])
        return code, *capsys.readouterr()

    return run


def test_one_fast_machine_as_a_table(cec):
    code, out, err = cec(*FAST, "--shards-per-machine", "1,1,1,1,1,4", "--exact", "--draw", "no")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[:2] == ["machine  speed  rows  shard  of it", "      1      1  16        1  16"]
    assert [line.split() for line in lines[6:10]] == [
        ["6", "20", "320", "6", "100"],
        ["7", "100"],
        ["8", "100"],
        ["9", "20"],
    ]
    assert "80..99  6 7 8 9  6 6 6 6" in lines
    assert lines[-4:] == [
        "makespan 16 (lower bound 16)",
        "mu     4/25 4/25 4/25 4/25 4/25 16/5",
        "alpha  4/25 4/25 4/25 4/25 4/25 1/5",
        "c*     4/25   k* 6 (of the best assignment)",
    ]


def test_machines_and_shards_in_letters(cec, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    words = ["--shards-per-machine", "2", "--available", "1,3", "--draw", "yes"]
    code, out, err = cec("plan", "--speeds", "1,2,3", "--recovery", 2, "--rows", 12, *words)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "machine  speed  rows       shard  of it  each shard"
    assert lines[3].split()[:4] == ["2", "2", "preempted", "3"]
    assert len({line.split()[-1] for line in lines[3:5]}) == 1  # hatched
    assert lines[5].endswith("a" * 12) or "b" in lines[5]
    assert "block  rows" in out


@pytest.mark.parametrize("scheme", ["heterogeneous", "cyclic"])
def test_what_programs_get(cec, scheme):
    words = ["--shards-per-machine", 2, "--json", "--available", "1-3,6", "--scheme", scheme]
    code, out, err = cec(*FAST, *words)
    plan = json.loads(out)
    assert (code, err) == (0, "")
    assert plan["available"] == [1, 2, 3, 6]
    assert plan["shards"] == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10], [11, 12]]
    assert plan["loads"][3:5] == [0, 0]
    assert plan["shard_loads"][6:10] == [0, 0, 0, 0]
    assert sum(plan["loads"]) == sum(plan["shard_loads"]) == 400
    for block in plan["blocks"]:
        assert len(block["shards"]) == len(block["machines"]) == 4
        held = zip(block["shards"], block["machines"], strict=True)
        assert all(shard in plan["shards"][machine - 1] for shard, machine in held)
    assert "types" not in plan


def test_what_a_tolerance_costs(cec):
    words = ["plan", "--speeds", "1,1,1", "--recovery", 4, "--rows", 6, "--shards-per-machine", 2]
    code, out, err = cec(*words, "--stragglers", 1)
    assert (code, err) == (0, "")
    assert out.splitlines()[-2:] == [
        "each row: 6 shards, at most 2 of them on one machine",
        "makespan 12 (lower bound 10); without --stragglers the lower bound is 8",
    ]


def test_without_the_option_all_is_as_it_was(cec):
    assert "shard" not in cec(*FAST)[1]
    assert set(json.loads(cec(*FAST, "--json")[1])) == {
        "available",
        "recovery",
        "rows",
        "loads",
        "blocks",
        "makespan",
        "bound",
    }


def test_one_for_all_is_a_list_of_the_same(cec):
    one = cec(*FAST, "--shards-per-machine", 3, "--json")
    assert one == cec(*FAST, "--shards-per-machine", "3, 3,3,3,3,3", "--json")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--shards-per-machine", "2,2"],
            "--shards-per-machine: found 2 numbers, but 6 speeds are given",
        ),
        (["--shards-per-machine", "1000000"], "found 6000000 shards, expected at most 1000000"),
        (["--shards-per-machine", "0"], "'0': expected whole numbers of at least 1"),
        (["--shards-per-machine", "2,x"], "'2,x': expected whole numbers of at least 1"),
        (["--shards-per-machine", "2", "--steps"], "--steps cannot be combined with --shards"),
        (["--shards-per-machine", "2", "--figure", "x.svg"], "--figure cannot be combined with"),
        (
            ["--shards-per-machine", "2", "--exact", "--stragglers", "1"],
            "--exact with --shards-per-machine cannot be combined with --stragglers",
        ),
    ],
)
def test_what_cannot_be_is_one_message(cec, words, said):
    code, out, err = cec(*FAST, *words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--available", "1"], "1 machine with 2 shards available: each row needs 4"),
        (
            ["--available", "1,2", "--stragglers", "1"],
            "no row can keep 4 of them when any 1 machine",
        ),
    ],
)
def test_too_few_shards(cec, words, said):
    code, out, err = cec(*FAST, "--shards-per-machine", 2, *words)
    assert (code, out) == (4, "")
    assert said in err
