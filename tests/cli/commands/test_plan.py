"""`cec-mpi plan`: pictures, steps of Algorithm 1, stores, and losses that end a run."""

import json
import os
import re
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cec_mpi import encode
from cec_mpi.cli.commands.explain import explain_plan
from cec_mpi.core import paper
from cec_mpi.errors import InputError
from cec_mpi.store import open_store
from helpers.sparse import random_sparse

pytestmark = pytest.mark.usefixtures("no_launcher")
EXAMPLE = ["plan", "--speeds", "2,2,3,3,4,4", "--recovery", "3", "--rows", "420"]


def file_names(directory):
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def cec(call):
    return lambda *args: call(args)


@pytest.mark.parametrize(
    ("name", "signature"),
    [("a.svg", b"<?xml"), ("a.SVG", b"<?xml"), ("a.png", b"\x89PNG"), ("a.pdf", b"%PDF")],
)
def test_a_figure_replaces_a_file_and_the_plan_is_printed(cec, tmp_path, name, signature):
    (tmp_path / name).write_text("old" * 99)
    plan = cec(*EXAMPLE, "--json")
    assert cec(*EXAMPLE, "--json", "--figure", tmp_path / name) == plan
    assert (tmp_path / name).read_bytes().startswith(signature)
    assert file_names(tmp_path) == [name]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["--figure", "{}/a.jpg"],
            r"picture '.*a\.jpg': expected a name that ends in \.svg, \.pdf or \.png",
        ),
        (["--figure", "{}/none/a.svg"], r"a\.svg cannot be written: no directory"),
        (["--figure", "{}/directory.svg"], r"directory\.svg is not a regular file"),
        (["--figure", "{}/pipe.png"], r"pipe\.png is not a regular file"),
        (["--figure", "{}/" + "x" * 300 + ".svg"], r"\.svg cannot be written: File name too long"),
        (["--figure", "{}/\x1b[2J/a.svg"], r"no directory .*\\x1b\[2J"),
        (["--before", "1-6"], r"--before needs --figure FILE"),
        (
            ["--before", "1-9", "--figure", "{}/a.svg"],
            r"--before: found machine 9, expected 1 to 6",
        ),
        (["--draw", "yes"], r"--draw: it was removed; use --figure FILE"),
        (["--figures", "p.svg"], r"--figures \(did you mean --figure\?\)"),  # removed from report
    ],
)
def test_wrong_options_give_one_message(cec, tmp_path, args, message):
    (tmp_path / "directory.svg").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    before = file_names(tmp_path)
    code, out, err = cec(*EXAMPLE, *(word.format(tmp_path) for word in args))
    assert (code, out) == (2, "")
    assert re.match(f"cec-mpi: error: .*{message}.*\n$", err)
    assert file_names(tmp_path) == before


def test_too_few_machines_before_the_change_are_refused(cec, tmp_path):
    code, _, err = cec(*EXAMPLE, "--before", "1,2", "--figure", tmp_path / "a.svg")
    assert (code, err.count("\n"), file_names(tmp_path)) == (4, 1, [])


def test_too_many_machines_are_not_drawn(cec, tmp_path):
    many = ["plan", "--speeds", ",".join(["1"] * 2001), "--recovery", 2, "--rows", 9]
    code, _, err = cec(*many, "--figure", tmp_path / "a.svg")
    assert code == 2
    assert "--figure: found 2001 machines, expected at most 2000" in err


def test_a_missing_matplotlib_gives_one_message(cec, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = cec(*EXAMPLE, "--figure", tmp_path / "a.svg")
    assert (code, out) == (2, "")
    assert err == "cec-mpi: error: pictures need matplotlib: pip install 'cec_mpi[plot]'\n"
    assert file_names(tmp_path) == []
    assert cec(*EXAMPLE)[0] == 0


def test_steps_are_added_to_the_output(cec):
    plan = json.loads(cec(*EXAMPLE, "--json")[1])
    plan_with_steps = json.loads(cec(*EXAMPLE, "--json", "--steps")[1])
    assert [step["alpha"] for step in plan_with_steps.pop("iterations")] == [140, 140, 70, 70]
    assert plan_with_steps == plan
    text = cec(*EXAMPLE)[1]
    assert cec(*EXAMPLE, "--steps")[1].startswith(text.rstrip("\n"))
    assert "m[4] = 70, with only 3 machines left" in cec(*EXAMPLE, "--steps")[1]


def test_steps_need_no_standard_output(cec, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)  # the effect of >&-
    assert cec(*EXAMPLE, "--steps") == (0, "", "")


# --- fractions of the paper ----------------------------------------------------------------


def parse_fractions(text):
    return tuple(Fraction(word) for word in text.split())


@st.composite
def problems(draw):
    machines = draw(st.integers(1, 12))
    available = sorted(draw(st.permutations(range(1, 20)))[:machines])
    speeds = draw(st.lists(st.fractions(min_value=Fraction(1, 10**9)), min_size=20, max_size=20))
    return tuple(available), speeds, draw(st.integers(1, machines))


@given(problems())
def test_fractions_equal_those_of_the_paper(problem):
    available, speeds, recovery = problem
    plan = explain_plan(available, speeds, recovery, 100, exact=True)
    mu, c, k = paper.optimal_load({n: speeds[n - 1] for n in available}, recovery)
    assert [*map(Fraction, plan["mu"])] == [*mu.values()]
    assert (Fraction(plan["c_star"]), plan["k_star"]) == (c, k)
    assert [*zip(map(Fraction, plan["alpha"]), plan["alpha_machines"], strict=True)] == [
        (block.alpha, [*block.P]) for block in paper.algorithm_1(mu, recovery)
    ]


def test_invalid_steps_are_refused():
    with pytest.raises(InputError, match="--steps needs --scheme heterogeneous, found cyclic"):
        explain_plan((1, 2), parse_fractions("1 1"), 1, 4, scheme="cyclic", steps=True)
    many = tuple(range(1, 1002))
    with pytest.raises(InputError, match=r"1001 machines.*at most 1000"):
        explain_plan(many, (Fraction(1),) * 1001, 2, 4000, steps=True)


# --- stores and copies of sparse rows ---------------------------------------------------------


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("sparse") / "store"
    encode(random_sparse(400, 30), path, 5, copies=3, speeds=[1, 1, 2, 2, 3])
    return path


@pytest.fixture
def plan(call, tmp_path):
    def plan(*args):
        code, out, err = call(["plan", *args, "--json"], tmp_path)
        assert (code, err) == (0, "")
        return json.loads(out)

    return plan


def test_a_store_of_copies_has_a_plan(store, plan):
    found = plan(store, "--available", "1-3,5", "--speeds", "1,1,2,2,3")
    holders = open_store(store).manifest.layout.holders
    assert sum(found["loads"]) == found["rows"] == 400
    assert found["loads"][3] == 0
    assert found["bound"] <= found["makespan"] <= 1.1 * found["bound"]
    assert found["blocks"][0]["start"] == 0
    assert found["blocks"][-1]["stop"] == 400
    fatal_sets = [set(machines) for machines in found["fatal"]]
    remaining = [set(machines) - {4} for machines in holders]
    assert all(fatal in remaining for fatal in fatal_sets)
    assert all(any(fatal <= machines for fatal in fatal_sets) for machines in remaining)


def test_a_plan_needs_a_machine_of_each_fatal_set(store, plan, call):
    fatal = plan(store)["fatal"][0]
    available = ",".join(str(n) for n in range(1, 6) if n not in fatal)
    code, _, err = call(["plan", store, "--available", available], store.parent)
    assert code == 4
    assert "no available machine holds" in err
    assert plan(store, "--available", f"{available},{fatal[0]}")["makespan"] > 0


def test_copies_are_planned_without_a_store(call, plan, tmp_path):
    args = ["--speeds", "1,1,2,2,4,4", "--copies", "3", "--rows", "6000"]
    found = [plan(*args, "--spread", spread) for spread in ("1", "8")]
    assert found[0]["loss_probability"]["3"] < found[1]["loss_probability"]["3"]
    assert found[0]["over_optimum"]["mean"] > found[1]["over_optimum"]["mean"]
    for plan_of_copies in found:
        assert sum(plan_of_copies["loads"]) == 6000
    code, out, _ = call(["plan", *args], tmp_path)
    assert code == 0
    assert "any 2 machines may leave" in out
    assert "a run ends when all machines of one of these sets have left: " in out


def test_a_store_of_a_code_has_the_plan_of_its_numbers(plan, tmp_path):
    encode(np.ones((300, 4)), tmp_path / "dense", 4, 2)
    numbers = ["--recovery", "2", "--rows", "150", "--speeds", "1,2,3,4"]
    assert plan(tmp_path / "dense", "--speeds", "1,2,3,4") == plan(*numbers)
    assert plan(tmp_path / "dense")["loads"] == [75, 75, 75, 75]


@pytest.mark.parametrize(
    ("args", "message"),
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
def test_plan_refuses_contradictory_options(args, message, store, call):
    args = [store if arg == "STORE" else arg for arg in args]
    code, _, err = call(["plan", *args], store.parent)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


def test_info_shows_which_losses_end_a_run(store, call):
    code, out, _ = call(["info", store], store.parent)
    assert code == 0
    assert "any 2 machines may leave" in out
    code, out, _ = call(["info", store, "--json"], store.parent)
    holders = open_store(store).manifest.layout.holders
    assert {tuple(machines) for machines in json.loads(out)["fatal"]} == set(holders)
