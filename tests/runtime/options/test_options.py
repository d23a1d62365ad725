"""Options, each defined once as a flag of a command and a keyword of a function."""

import argparse
import inspect
import re
from dataclasses import fields
from typing import get_args

import numpy as np
import pytest

import cec_mpi
from cec_mpi.cli import build_parser, main
from cec_mpi.cli.run.options import RunOptions
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.core.plan.assignment import SCHEMES
from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.errors import CecError, InputError
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.available import AvailabilityFlags
from cec_mpi.runtime.options.elastic import implies_elastic
from cec_mpi.runtime.options.option import from_flags, own_options
from cec_mpi.runtime.options.session import GROUPS, SessionOptions
from cec_mpi.runtime.options.shards import as_speeds
from cec_mpi.simulation.options import SimulateOptions
from cec_mpi.simulation.scenario import RATE, Costs
from cec_mpi.store.format.manifest import DTYPES
from cec_mpi.store.shard import Holding, Precision, Verify
from helpers.sparse import sparse

# Arguments of the functions that are not options.
ARGUMENTS = {
    "run": {"store", "comm", "recorder", "engine"},
    "encode": {"source", "store", "runner", "comm"},
}
# Flags that are not keywords of the functions.
COMMAND_FLAGS = {
    "run": {"help_all", "help", "verbosity", *(field.name for field in fields(RunOptions))},
    "encode": {"help", "verbosity", "progress", "start_timeout", "source", "store"},
}
FUNCTIONS = {"run": cec_mpi.open_operator, "encode": cec_mpi.encode}
AVAILABILITY = {field.name for field in own_options(AvailabilityFlags)}  # flags of one keyword


def keywords(command):
    parameters = inspect.signature(FUNCTIONS[command]).parameters
    return {name: each for name, each in parameters.items() if name not in ARGUMENTS[command]}


def options_of(words):
    given = build_parser().parse_args(["run", "store", "--out", "out", *words])
    return from_flags(SessionOptions, given)


@pytest.mark.parametrize("command", ["run", "encode"])
def test_each_flag_has_its_keyword_and_each_keyword_its_flag(command):
    flags = {action.dest for action in build_parser().commands[command]._actions}
    flags -= COMMAND_FLAGS[command]
    if command == "run":
        assert flags >= AVAILABILITY
        flags = flags - AVAILABILITY | {"availability"}
    assert flags == keywords(command).keys()


def test_choices_are_all_that_the_code_knows():
    """Options name them again, because help is shown without NumPy."""
    simulated = {each.name: each.metadata["flag"] for each in own_options(SimulateOptions)}
    known = {each.name: each.metadata["flag"].get("choices") for each in fields(SessionOptions)}
    known |= {
        each.name: each.metadata["flag"].get("choices") for each in own_options(EncodeOptions)
    }
    assert known["scheme"] == SCHEMES
    assert known["shards"] == get_args(Holding)
    assert known["verify"] == get_args(Verify)
    assert known["precision"] == get_args(Precision)
    assert known["code"] == list(FAMILIES)
    assert tuple(known["dtype"]) == simulated["dtype"]["choices"] == DTYPES
    assert "(default: 5e9)" in simulated["rate"]["text"]
    assert RATE == 5e9
    assert f"(default: {Costs.decode:g})" in simulated["decode"]["text"]


@pytest.mark.parametrize(
    ("group", "words"),
    [(SessionOptions, "run store --out out"), (EncodeOptions, "encode X.npy store --machines 3")],
)
def test_keywords_have_the_defaults_of_the_flags(group, words):
    command, *_ = words.split()
    options = from_flags(group, build_parser(command).parse_args(words.split()))
    defaults = {name: keyword.default for name, keyword in keywords(command).items()}
    if command == "encode":
        assert defaults.pop("machines") is inspect.Parameter.empty
    assert defaults == {name: getattr(options, name) for name in defaults}


def test_flags_reach_the_options_of_their_names():
    words = "--machines 1-3,5 --tick 2 --wait --speeds a=1,b=2 --shards ram --deadline x2"
    words += " --emulate-speeds 1,2 --emulate-change 3:1:0.5 --emulate-change 4:2:2 --seed 7"
    words += " --available-probability 0.5"
    options = options_of(words.split())
    assert options.machines == (1, 2, 3, 5)
    assert (options.tick_seconds, options.wait, options.shards) == (2.0, True, "ram")
    assert (options.speeds, options.deadline) == ({"a": 1.0, "b": 2.0}, "x2")
    assert options.emulate_speeds == (1.0, 2.0)
    assert [change.step for change in options.emulate_changes] == [3, 4]
    assert options.availability.available_probability == 0.5
    assert (options.seed, options.availability.seed) == (7, 7)


@pytest.mark.parametrize("command", ["run", "encode"])
def test_docstrings_describe_each_keyword(command):
    text = inspect.getdoc(FUNCTIONS[command])
    parameters = text.partition("Parameters\n----------\n")[2].partition("\nReturns\n")[0]
    lines = [line.partition(" : ")[0] for line in parameters.splitlines() if line[0] != " "]
    names = {name.strip() for line in lines for name in line.split(",")}
    assert names == keywords(command).keys() | ARGUMENTS[command]


def refusal(store, **options):
    """The message of a program that opens an operator with these options."""
    with pytest.raises(InputError) as error, cec_mpi.open_operator(store, **options):
        pass
    return str(error.value)


def test_a_keyword_that_there_is_not_is_refused(tmp_path):
    printed = refusal(tmp_path, spare=1)
    assert printed == "open_operator got an unexpected keyword argument 'spare'"


@pytest.mark.parametrize(
    ("name", "value", "instead"),
    [
        ("on_loss", "continue", "use elastic (--elastic) to continue"),
        ("spares", "1", "where additional processes are spares"),
        ("replace", "spawn", "cec-mpi join"),
        ("shards_per_machine", "2", "start more ranks on this node"),
        ("memory_per_machine", "8G", "start more ranks on this node"),
        ("staged", "DIR", "use --cache DIR"),
    ],
)
def test_an_option_that_was_removed_says_what_to_use_instead(name, value, instead, store, capsys):
    printed = refusal(store, **{name: value})
    assert f"unexpected keyword argument '{name}': it was removed; " in printed
    assert instead in printed
    flag = f"--{name.replace('_', '-')}"
    for words in ([flag, value], [f"{flag}={value}", "--serial"]):
        assert main(["run", str(store), "--out", "out", *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"cec-mpi: error: unknown option {flag}: it was removed; ")
        assert instead in line


@pytest.mark.parametrize(
    ("name", "value", "others"),
    [
        ("adopt", "soon", {}),
        ("adopt", 0, {}),
        ("adopt", [], {}),
        ("tick_seconds", "a", {}),
        ("tick_seconds", [], {}),
        ("machines", 1.5, {}),
        ("machines", b"x", {}),
        ("speeds", 1.5, {}),
        ("speeds", b"x", {}),
        ("emulate_speeds", "a", {}),
        ("emulate_speeds", 1.5, {}),
        ("emulate_base", "a", {"emulate_speeds": (1, 1, 1)}),
        ("emulate_noise", [], {}),
        ("emulate_changes", 1.5, {}),
        ("inject", {}, {}),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_name(store, name, value, others):
    options = SessionOptions(**others, **{name: value})
    with pytest.raises(InputError, match=f"^{name} {re.escape(repr(value))}: expected "):
        options.validate(cec_mpi.open_store(store).manifest)


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        (each.name, each.metadata["flag"]["choices"])
        for group in GROUPS
        for each in own_options(group)
        if "choices" in each.metadata["flag"]
    ],
)
def test_choices_hold_for_the_keyword_too(store, name, choices):
    options = SessionOptions(**{name: "nothing"})
    with pytest.raises(InputError, match=f"{name} 'nothing'") as error:
        options.validate(cec_mpi.open_store(store).manifest)
    assert all(choice in str(error.value) for choice in choices)


ELASTIC = {
    "--elastic": True,
    "--local 2": 2,
    "--stragglers 1": 1,
    "--deadline x2": "x2",
    "--accept file": "file",
    "--listen node1:5555": "node1:5555",
    "--check": True,
}
NOT_ELASTIC = (
    "--start-timeout 5",
    "--no-encryption",
    "--interface eth0",
    "--ports 1-2",
    "--inject kill:1@2",
    "--stragglers 0",
)


@pytest.mark.parametrize("words", ELASTIC)
def test_options_that_need_machines_one_by_one_make_a_run_elastic(words):
    options = options_of(words.split())
    name = re.split("[ =]", words.removeprefix("--"))[0]
    assert getattr(options, name) == ELASTIC[words]
    assert options.is_elastic
    assert SessionOptions(**{name: ELASTIC[words]}).is_elastic
    assert implies_elastic({word.partition("=")[0] for word in words.split()})


@pytest.mark.parametrize("words", NOT_ELASTIC)
def test_the_others_leave_it_in_lockstep(words):
    assert not options_of(words.split()).is_elastic


def test_speeds_are_of_one_kind():
    assert as_speeds(None, 2) == as_speeds("learn", 2) == "learn"
    assert as_speeds([1, 2], 2) == (1.0, 2.0)
    assert as_speeds({"a": 1.0}, 2) == {"a": 1.0}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    place = tmp_path_factory.mktemp("options")
    np.save(place / "X.npy", np.eye(6))
    cec_mpi.encode(place / "X.npy", place / "store", 3, 2)
    return place / "store"


NOT_WITH_LISTEN = {"accept": "conn", "interface": "eth0", "ports": (1, 2)}
ELASTIC_ONLY = {"interface": "eth0", "ports": (1, 2), "encryption": False}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *[({"accept": name}, f"accept {name!r}: expected a file name")
          for name in (5, ["conn"], "a\0b", "")],
        ({"listen": 5555}, "listen 5555: expected 'HOST:PORT'"),
        *[({"listen": "a:1", name: value}, f"{name} and listen cannot be combined: expected one")
          for name, value in NOT_WITH_LISTEN.items()],
        *[({"local": 2, "ports": ports}, f"ports {ports}: expected the first and last")
          for ports in ((9,), (1, 2, 3), (9, 3), (0, 3), (1, 65536))],
        ({"local": 2, "encryption": "no"}, "encryption 'no': expected True or False"),
        ({"local": -1}, "local -1: expected at least 1 machine"),
        ({"local": "x"}, "local 'x': expected a whole number"),
    ],
)  # fmt: skip
def test_where_rank_0_cannot_listen_is_refused_before_it_does(given, expected, store):
    assert expected in refusal(store, **given)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        *[({name: value}, "this option needs an elastic run (--elastic)")
          for name, value in ELASTIC_ONLY.items()],
        ({"stragglers": 2}, "stragglers 2: expected 0 to 1 (N - L)"),
        ({"check": "parity"}, "check 'parity': it was removed; --check takes no value"),
        ({"check": "all"}, "check 'all': expected True or False"),
        ({"wait": 1}, "wait 1: expected True or False"),
        ({"check": True, "stragglers": 1}, "stragglers 1: expected 0 to 0 (N - L, less 1 with"),
        ({"deadline": 0}, "deadline 0: expected "),
        ({"inject": "kill:4@1"}, "expected"),
    ],
)  # fmt: skip
def test_options_that_do_not_go_together_are_refused(given, expected, store):
    with pytest.raises(InputError, match=re.escape(expected)):
        SessionOptions(**given).validate(cec_mpi.open_store(store).manifest)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"stragglers": 2}, "stragglers 2: expected 0 to 1 (each row is on 2 machines)"),
        ({"scheme": "cyclic"}, "scheme cyclic needs a coded store"),
        ({"machines": (1,)}, "1 machine takes part, but rows "),
    ],
)
def test_options_that_do_not_fit_copies_are_refused(given, expected, tmp_path):
    manifest = cec_mpi.encode(sparse(40, 9), tmp_path / "sparse", 3, copies=2)
    with pytest.raises(CecError, match=re.escape(expected)):
        SessionOptions(**given).validate(manifest)


def test_an_elastic_run_has_a_long_deadline_by_default(store):
    manifest = cec_mpi.open_store(store).manifest
    assert SessionOptions().validate(manifest).deadline is None
    patient = SessionOptions(elastic=True).validate(manifest).deadline
    assert (patient.factor, patient.min_seconds) == (10.0, 2.0)
    assert SessionOptions(deadline=3).validate(manifest).deadline.seconds == 3


def test_options_are_checked_once(store):
    manifest = cec_mpi.open_store(store).manifest
    checked = SessionOptions(deadline="x2", speeds=[1, 2, 3]).validate(manifest)
    assert (checked.deadline.factor, checked.speeds) == (2, (1, 2, 3))
    assert checked.machines == (1, 2, 3)
    assert checked.validate(manifest) is checked


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("268435456", 2**28),
        ("100B", 100),
        ("64GB", 64 * 10**9),
        ("64gb", 64 * 10**9),
        ("1.5 kB", 1500),
        ("2MB", 2 * 10**6),
        ("1TB", 10**12),
        ("64GiB", 64 * 2**30),
        ("64G", 64 * 2**30),
        ("64Gi", 64 * 2**30),
        ("512M", 2**29),
        ("1KiB", 1024),
        ("2T", 2**41),
        ("1e9", 10**9),
    ],
)
def test_sizes(text, found):
    assert values.size(text) == found


@pytest.mark.parametrize(
    "text", ["", "B", "GB", "0", "0.5", "-1G", "1GG", "1iB", "1X", "inf", "1e400"]
)
def test_sizes_that_are_none(text):
    with pytest.raises(argparse.ArgumentTypeError, match="expected a size from 1 byte"):
        values.size(text)
