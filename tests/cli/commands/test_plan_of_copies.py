"""Plans of stores and of copies of sparse rows, and the losses that end a run."""

from __future__ import annotations

import json

import numpy as np
import pytest

from cec_mpi import encode
from cec_mpi.store import open_store
from helpers.sparse import random_sparse


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("sparse") / "store"
    encode(random_sparse(400, 30), path, 5, copies=3, speeds=[1, 1, 2, 2, 3])
    return path


@pytest.fixture
def plan(call, tmp_path):
    def plan(*words):
        code, printed, complaint = call(["plan", *words, "--json"], tmp_path)
        assert (code, complaint) == (0, "")
        return json.loads(printed)

    return plan


def test_a_store_of_copies_has_a_plan(store, plan):
    found = plan(store, "--available", "1-3,5", "--speeds", "1,1,2,2,3")
    holders = open_store(store).manifest.layout.holders
    assert sum(found["loads"]) == found["rows"] == 400
    assert found["loads"][3] == 0
    assert found["bound"] <= found["makespan"] <= 1.1 * found["bound"]
    assert found["blocks"][0]["start"] == 0
    assert found["blocks"][-1]["stop"] == 400
    left = [set(each) - {4} for each in holders]
    for each in found["fatal"]:
        assert set(each) in left
    assert all(any(set(each) <= have for each in found["fatal"]) for have in left)


def test_a_plan_needs_a_machine_of_each_fatal_set(store, plan, call):
    fatal = plan(store)["fatal"][0]
    others = ",".join(str(n) for n in range(1, 6) if n not in fatal)
    code, _, complaint = call(["plan", store, "--available", others], store.parent)
    assert code == 4
    assert "no available machine holds" in complaint
    assert plan(store, "--available", f"{others},{fatal[0]}")["makespan"] > 0


def test_copies_are_planned_without_a_store(call, plan, tmp_path):
    words = ["--speeds", "1,1,2,2,4,4", "--copies", "3", "--rows", "6000"]
    found = [plan(*words, "--spread", spread) for spread in ("1", "8")]
    assert found[0]["lost"]["3"] < found[1]["lost"]["3"]
    assert found[0]["over_optimum"]["mean"] > found[1]["over_optimum"]["mean"]
    for each in found:
        assert sum(each["loads"]) == 6000
    code, printed, _ = call(["plan", *words], tmp_path)
    assert code == 0
    assert "any 2 machines may leave" in printed
    assert "a run ends when all machines of one of these sets have left: " in printed


def test_a_store_of_a_code_has_the_plan_of_its_numbers(plan, tmp_path):
    encode(np.ones((300, 4)), tmp_path / "dense", 4, 2)
    numbers = ["--recovery", "2", "--rows", "150", "--speeds", "1,2,3,4"]
    assert plan(tmp_path / "dense", "--speeds", "1,2,3,4") == plan(*numbers)
    assert plan(tmp_path / "dense")["loads"] == [75, 75, 75, 75]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--speeds", "1,1"], "expected a store, or --speeds, --rows and one of"),
        (["--speeds", "1,1", "--rows", 5, "--copies", 2, "--recovery", 2], "one of --recovery"),
        (["--speeds", "1,1", "--rows", 5, "--copies", 3], "copies 3: expected from 1 to 2"),
        (["STORE", "--rows", 3], "--rows cannot be combined with a store"),
        (["STORE", "--speeds", "1,1"], "found 2 speeds, expected one for each of the 5 machines"),
        (["STORE", "--exact"], "--exact needs a code"),
        (["STORE", "--scheme", "cyclic"], "--scheme cyclic needs a code"),
        (["STORE", "--stragglers", 3], "stragglers 3: expected 0 to 2"),
    ],
)
def test_plan_refuses_contradictory_options(words, says, store, call):
    given = [store if word == "STORE" else word for word in words]
    code, _, complaint = call(["plan", *given], store.parent)
    assert code == 2
    assert says in complaint
    assert complaint.count("\n") == 1


def test_info_says_which_losses_end_a_run(store, call):
    code, printed, _ = call(["info", store], store.parent)
    assert code == 0
    assert "any 2 machines may leave" in printed
    code, printed, _ = call(["info", store, "--json"], store.parent)
    holders = open_store(store).manifest.layout.holders
    assert {tuple(each) for each in json.loads(printed)["fatal"]} == set(holders)
