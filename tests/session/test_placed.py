"""Machines with several shards, all in one process."""

import json

import numpy as np
import pytest

import cec_mpi
from cec_mpi.cli import main
from cec_mpi.errors import CecError, InfeasibleError, InputError
from cec_mpi.options.placed import Placed
from cec_mpi.session.copies import stage_here
from helpers.products import check_products
from helpers.recording import Kept

MACHINES, RECOVERY, ROWS, COLUMNS = 7, 3, 210, 20
WAYS = [1, 2, 3, 7, (4, 2, 1), (1, 5), (2, 1)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("placed")
    X = np.random.default_rng(0).standard_normal((ROWS, COLUMNS))
    np.save(path / "X.npy", X)
    cec_mpi.encode(path / "X.npy", path / "store", MACHINES, RECOVERY)
    return X, path / "store"


@pytest.mark.parametrize("scheme", ["heterogeneous", "cyclic"])
@pytest.mark.parametrize("way", WAYS)
def test_products_are_those_of_x_whoever_has_the_shards(made, way, scheme):
    X, store = made
    kept = Kept()
    options = {"shards_per_machine": way, "scheme": scheme, "recorder": kept}
    with cec_mpi.open_operator(store, None, **options) as operator:
        check_products(operator, X)
        there = kept.common.get("shards_of_machine", [[n] for n in range(1, MACHINES + 1)])
        for gone in range(1, len(there) + 1):
            left = set(range(1, len(there) + 1)) - {gone}
            if sum(len(there[n - 1]) for n in left) >= RECOVERY:
                operator.available = left
                check_products(operator, X, 1)
    for record in kept.records:
        assert len(record.rows) == len(record.seconds) == len(record.assignment) == len(there)
        assert sum(record.rows) == RECOVERY * ROWS // RECOVERY
        for rows, bounds, mine in zip(record.rows, record.assignment, there, strict=True):
            assert sum(bounds[1::2]) - sum(bounds[::2]) == rows
            assert max(bounds, default=0) <= len(mine) * ROWS // RECOVERY
        assert record.error_bound < 1e-10


def test_without_the_option_a_record_is_as_it_was(made):
    _X, store = made
    kept, placed = Kept(), Kept()
    with cec_mpi.open_operator(store, None, recorder=kept) as operator:
        plain = operator @ np.ones(COLUMNS)
    with cec_mpi.open_operator(store, None, recorder=placed, shards_per_machine=1) as operator:
        np.testing.assert_array_equal(operator @ np.ones(COLUMNS), plain)
    assert kept.common.keys() == placed.common.keys()
    assert "shards_of_machine" not in kept.common
    assert kept.common["machines"] == MACHINES
    assert kept.records[0].assignment == placed.records[0].assignment


def test_a_machine_that_is_alone_is_enough_where_it_has_l_shards(made):
    X, store = made
    with cec_mpi.open_operator(store, None, shards_per_machine=(4, 2, 1)) as operator:
        operator.available = {1}
        check_products(operator, X)
        operator.available = {2}
        with pytest.raises(
            InfeasibleError, match=r"1 machine is .* needs 3 shards, and they have 2 \(--wait"
        ):
            operator @ np.ones(COLUMNS)
        with pytest.raises(InputError, match="4"):
            operator.available = {4}


def test_a_fast_machine_has_as_many_as_it_can_use(made):
    X, store = made
    kept = Kept()
    speeds = (1, 1, 4)
    options = {"shards_per_machine": "auto", "speeds": speeds, "recorder": kept}
    with cec_mpi.open_operator(store, None, **options) as operator:
        check_products(operator, X)
    assert kept.common["shards_of_machine"] == [[1], [2], [3, 4, 5, 6, 7]]
    assert kept.common["machines"] == 3
    assert kept.records[0].rows == [35, 35, 140]  # 210 rows of speeds 1, 1, 4: two shards' worth


def test_further_stores_are_shared_out_in_proportion(made, tmp_path):
    X, store = made
    other = np.random.default_rng(3).standard_normal((40, 6))
    np.save(tmp_path / "other.npy", other)
    cec_mpi.encode(tmp_path / "other.npy", tmp_path / "other", 12, 4)
    cec_mpi.encode(tmp_path / "other.npy", tmp_path / "small", 2, 1)
    kept = Kept()
    options = {"shards_per_machine": (4, 2, 1), "recorder": kept}
    with cec_mpi.open_operator(store, None, **options) as operator:
        operator.available = {1, 2}
        for path in (tmp_path / "other", tmp_path / "small"):
            with operator.open(path) as further:
                found = further @ np.ones(6)
                np.testing.assert_allclose(found, other.sum(axis=1), rtol=1e-9, atol=1e-12)
                check_products(operator, X, 1)
    assert {len(record.rows) for record in kept.records if record.store} == {3, 2}


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"shards_per_machine": 0}, InputError, "shards per machine 0: expected at least 1"),
        ({"shards_per_machine": "two"}, InputError, "shards per machine 'two': expected"),
        ({"shards_per_machine": True}, InputError, "shards per machine True: expected"),
        ({"shards_per_machine": {1: 2}}, InputError, "expected a whole number, a list with one"),
        (
            {"shards_per_machine": (2, 0)},
            InputError,
            "2,0: expected at least 1 shard on each machine",
        ),
        ({"shards_per_machine": (4, 4)}, InputError, "4,4: 8 in total, but the store has 7 shards"),
        ({"shards_per_machine": (1, 1)}, InfeasibleError, "1,1: 2 in total, but a step"),
        ({"shards_per_machine": 2.5}, InputError, "shards per machine 2.5: expected a whole"),
        ({"shards_per_machine": "auto"}, InputError, "auto needs speeds (--speeds"),
        (
            {"shards_per_machine": "auto", "speeds": (1,) * 8},
            InputError,
            "auto: 8 machines for 7 shards",
        ),
        (
            {"shards_per_machine": "auto", "speeds": (1, 1), "machines": "1-2"},
            InputError,
            "shards per machine auto cannot be combined with machines",
        ),
        ({"shards_per_machine": 4, "memory_per_machine": 40_000}, InfeasibleError, "4 shards"),
        ({"memory_per_machine": 100}, InfeasibleError, "100 bytes: 1 shard needs"),
        ({"memory_per_machine": 0}, InputError, "memory per machine 0: expected at least 1 byte"),
        (
            {"shards_per_machine": "auto", "speeds": (1, 1), "memory_per_machine": 13_000},
            InfeasibleError,
            "with memory per machine 13000: the machines have room for 2 shards",
        ),
        ({"shards_per_machine": 3, "speeds": (1, 1)}, InputError, "2 speeds"),
        (
            {"shards_per_machine": 3, "machines": "3-4"},
            InputError,
            "3,4: expected machines from 1 to 3",
        ),
        ({"shards_per_machine": 3, "machines": "3"}, InfeasibleError, "with 1 shard, but a step"),
        ({"shards_per_machine": 3, "emulate_speeds": (1, 1)}, InputError, "2 emulated speeds"),
    ],
)
def test_what_cannot_be_is_refused_in_one_message(made, options, kind, words):
    with (
        pytest.raises(CecError) as caught,
        cec_mpi.open_operator(made[1], None, **options),
    ):
        pass
    assert isinstance(caught.value, kind)
    assert words in str(caught.value)


def test_room_for_some_is_enough_if_l_are_among_them(made):
    X, store = made
    kept = Kept()
    options = {"shards_per_machine": "auto", "speeds": (1, 1), "memory_per_machine": 25_000}
    with cec_mpi.open_operator(store, None, recorder=kept, **options) as operator:
        check_products(operator, X)
    assert kept.common["shards_of_machine"] == [[1, 2], [3, 4]]


def test_a_run_says_who_has_what(made, tmp_path, monkeypatch, capsys):
    X, store = made
    monkeypatch.chdir(tmp_path)
    np.save("W.npy", np.random.default_rng(4).standard_normal((3, COLUMNS)))
    words = ["run", str(store), "--out", "out", "--serial", "vectors=W.npy", "--map"]
    assert main([*words, "--shards-per-machine", "3"]) == 0
    said = capsys.readouterr().out
    lines = [line.split() for line in said.splitlines() if " in " in line]
    assert [line[5:8] for line in lines[:3]] == [
        ["1-3", "in", str(store)],
        ["4-6", "in", str(store)],
        ["7", "in", str(store)],
    ]
    header, first = map(json.loads, (tmp_path / "out/steps.jsonl").read_text().splitlines()[:2])
    assert header["shards_of_machine"] == [[1, 2, 3], [4, 5, 6], [7]]
    assert header["store_shards"] == 7
    assert len(first["rows"]) == 3
    np.testing.assert_allclose(np.load("out/result.npy"), np.load("W.npy") @ X.T, rtol=1e-10)


@pytest.mark.parametrize("word", ["0", "two", "1,,2", "1,x", "-1", ""])
def test_the_flag_names_what_it_expects(word, capsys):
    words = ["run", "store", "--out", "out", "--serial"]
    assert main([*words, f"--shards-per-machine={word}"]) == 2
    assert "expected a whole number of at least 1, a list" in capsys.readouterr().err


def test_a_node_stages_what_its_machines_have(made, tmp_path):
    X, store = made
    copies = tmp_path / "copies"
    options = Placed(shards_per_machine=3)
    staged = stage_here(str(store), str(copies), (1, 3), options)
    assert [machine for _, machine, _ in staged] == [1, 3]
    assert sorted(path.name for path in copies.glob("*.npy")) == [
        f"shard-000{n}.npy" for n in (1, 2, 3, 7)
    ]
    kept = Kept()
    given = {"shards_per_machine": 3, "staged": str(copies), "recorder": kept}
    with cec_mpi.open_operator(store, None, **given) as operator:
        check_products(operator, X)
    assert kept.common["machines_with_copies"] == [1, 3]
    assert kept.common["shard_files"][1][0] == str(copies / "shard-0001.npy")
    with pytest.raises(InputError, match=r"machine 4: expected machines from 1 to 3"):
        stage_here(str(store), str(copies), (4,), options)


@pytest.mark.parametrize(("way", "said"), [("auto", True), ("1,1,5", False)])
def test_what_was_shared_out_is_said_in_one_line(made, tmp_path, capsys, way, said):
    words = ["run", str(made[1]), "--out", str(tmp_path / "out"), "--serial", "svd"]
    more = ["k=2", "--speeds", "1,1,4", "--shards-per-machine", way]
    assert main([*words, *more]) == 0
    assert ("shards per machine: 1, 1, 5\n" in capsys.readouterr().out) is said
