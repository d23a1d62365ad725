"""Options, each defined once as a flag of a command and a keyword of a function."""

import argparse
import inspect
import re
from dataclasses import fields
from typing import get_args

import numpy as np
import pytest
from msgspec import structs

import cec_mpi
from cec_mpi.cli import build_parser, main
from cec_mpi.cli.run.options import RunOptions
from cec_mpi.core.code.families import FAMILIES
from cec_mpi.core.plan.assignment import SCHEMES
from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.errors import CecError, InputError
from cec_mpi.runtime.options import values
from cec_mpi.runtime.options.availability import AvailabilityFlags
from cec_mpi.runtime.options.elastic import implies_elastic
from cec_mpi.runtime.options.option import from_flags, own_options
from cec_mpi.runtime.options.session import GROUPS, SessionOptions
from cec_mpi.runtime.options.shards import as_speeds
from cec_mpi.simulation.options import SimulateOptions
from cec_mpi.simulation.scenario import RATE, Costs
from cec_mpi.store.format.manifest import DTYPES, RebuiltRows
from cec_mpi.store.shard import Holding, Precision, Verification
from helpers.sparse import random_sparse

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
AVAILABILITY = {field.name for field in own_options(AvailabilityFlags)}  # flags of `availability`


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("options") / "store"
    cec_mpi.encode(np.eye(6), path, 3, 2)
    return path


@pytest.fixture(scope="module")
def manifest(store):
    return cec_mpi.open_store(store).manifest


def keywords(command):
    parameters = inspect.signature(FUNCTIONS[command]).parameters
    return {name: value for name, value in parameters.items() if name not in ARGUMENTS[command]}


def parse(flags):
    arguments = build_parser().parse_args(["run", "store", "--out", "out", *flags.split()])
    return from_flags(SessionOptions, arguments)


# --- flags and keywords -------------------------------------------------------------------


@pytest.mark.parametrize("command", ["run", "encode"])
def test_flags_keywords_and_docstrings_agree(command):
    flags = {action.dest for action in build_parser().commands[command]._actions}
    flags -= COMMAND_FLAGS[command]
    if command == "run":
        assert flags >= AVAILABILITY
        flags = flags - AVAILABILITY | {"availability"}
    assert flags == keywords(command).keys()
    text = inspect.getdoc(FUNCTIONS[command])
    parameters = text.partition("Parameters\n----------\n")[2].partition("\nReturns\n")[0]
    lines = [line.partition(" : ")[0] for line in parameters.splitlines() if line[0] != " "]
    documented = {name.strip() for line in lines for name in line.split(",")}
    assert documented == keywords(command).keys() | ARGUMENTS[command]


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


def test_choices_and_defaults_in_the_help_are_those_of_the_code():
    """Options repeat them, because help is shown without NumPy."""
    simulate_flags = {field.name: field.metadata["flag"] for field in own_options(SimulateOptions)}
    options = *fields(SessionOptions), *own_options(EncodeOptions)
    choices = {field.name: field.metadata["flag"].get("choices") for field in options}
    assert choices["scheme"] == SCHEMES
    assert choices["shards"] == get_args(Holding)
    assert choices["verify"] == get_args(Verification)
    assert choices["precision"] == get_args(Precision)
    assert choices["code"] == list(FAMILIES)
    assert tuple(choices["dtype"]) == simulate_flags["dtype"]["choices"] == DTYPES
    assert "(default: 5e9)" in simulate_flags["rate"]["text"]
    assert RATE == 5e9
    assert f"(default: {Costs.decode:g})" in simulate_flags["decode"]["text"]


def test_flags_set_the_options_of_their_names():
    options = parse(
        "--machines 1-3,5 --tick 2 --wait --speeds a=1,b=2 --shards ram --deadline x2 --seed 7 "
        "--emulate-speeds 1,2 --emulate-change 3:1:0.5 --emulate-change 4:2:2 "
        "--available-probability 0.5"
    )
    assert options.machines == (1, 2, 3, 5)
    assert (options.tick_seconds, options.wait, options.shards) == (2.0, True, "ram")
    assert (options.speeds, options.deadline) == ({"a": 1.0, "b": 2.0}, "x2")
    assert options.emulate_speeds == (1.0, 2.0)
    assert [change.step for change in options.emulate_changes] == [3, 4]
    assert options.availability.available_probability == 0.5
    assert (options.seed, options.availability.seed) == (7, 7)


@pytest.mark.parametrize(
    ("flags", "is_elastic"),
    [
        *(
            (flags, True)
            for flags in (
                "--elastic",
                "--local 2",
                "--stragglers 1",
                "--deadline x2",
                "--accept file",
                "--listen node1:5555",
                "--check",
                "--adopt",
            )
        ),
        ("--start-timeout 5 --no-encryption --interface eth0 --ports 1-2", False),
        ("--inject kill:1@2 --stragglers 0", False),
    ],
)
def test_some_options_imply_an_elastic_run(flags, is_elastic):
    assert parse(flags).is_elastic == is_elastic
    assert implies_elastic(set(flags.split())) == (is_elastic or "--stragglers" in flags)


# --- validation ---------------------------------------------------------------------------


def rejection_message(store, **options):
    """Return the message with which an operator with these options is rejected."""
    with pytest.raises(InputError) as error, cec_mpi.open_operator(store, **options):
        pass
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "value", "replacement"),
    [
        ("on_loss", "continue", "use elastic (--elastic) to continue"),
        ("shards_per_machine", "2", "start more ranks on this node"),
    ],
)
def test_a_removed_option_is_rejected_with_its_replacement(name, value, replacement, store, capsys):
    message = rejection_message(store, **{name: value})
    assert f"unexpected keyword argument '{name}': it was removed; " in message
    assert replacement in message
    flag = f"--{name.replace('_', '-')}"
    for words in ([flag, value], [f"{flag}={value}", "--serial"]):
        assert main(["run", str(store), "--out", "out", *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"cec-mpi: error: unknown option {flag}: it was removed; ")
        assert replacement in line


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("adopt", value) for value in ("soon", 0)),
        ("tick_seconds", "a"),
        ("machines", 1.5),
        *(("speeds", value) for value in (1.5, "fast")),
        ("emulate_speeds", "a"),
        ("emulate_base", "a"),
        ("emulate_noise", []),
        ("emulate_changes", 1.5),
        ("inject", {}),
        *(("local", value) for value in (-1, "x")),
        ("wait", 1),
        ("check", "all"),
        ("deadline", 0),
        ("threads", 0),
        *(("start_timeout", value) for value in (0, float("nan"), "soon")),
        *(
            (field.name, "unknown")
            for group in GROUPS
            for field in own_options(group)
            if "choices" in field.metadata["flag"]
        ),
    ],
)
def test_an_invalid_value_is_rejected_with_its_name(manifest, name, value):
    required_options = {"emulate_speeds": (1, 1, 1)} if name == "emulate_base" else {}
    text = f"{value}" if name == "deadline" else repr(value)
    with pytest.raises(InputError, match=f"^{name} {re.escape(text)}: expected "):
        SessionOptions(**{name: value}, **required_options).validate(manifest)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({name: value}, "this option needs an elastic run (--elastic)")
          for name, value in {"interface": "eth0", "ports": (1, 2), "encryption": False}.items()),
        ({"stragglers": 2}, "stragglers 2: expected 0 to 1 (N - L)"),
        ({"check": "parity"}, "check 'parity': it was removed; --check takes no value"),
        ({"check": True, "stragglers": 1}, "stragglers 1: expected 0 to 0 (N - L, less 1 with"),
        ({"check": True, "adopt": 1}, "adopt and check cannot be combined"),
        ({"inject": "kill:4@1"}, "expected"),
        ({"local": 1}, "local 1: a step needs 2 machines: start more machines"),
        ({"machines": "1,1"}, "machines 1,1: a machine is listed twice"),
        ({"machines": (1, 4)}, "machines 1,4: expected machines from 1 to 3"),
        ({"machines": "3"}, "1 machine takes part, but a step needs 2"),
        ({"emulate_noise": 0.1}, "need --emulate-speeds LIST"),
        ({"emulate_speeds": (1, 1, 1), "emulate_base": 0}, "emulation base 0.0: expected a pos"),
        ({"emulate_speeds": (1, 1, 1), "emulate_noise": 11}, "emulation noise 11.0: expected 0 to"),
        ({"emulate_speeds": (1, 1)}, "found 2 emulated speeds, expected 3, one for each machine"),
        ({"speeds": (1, 2, 1e200)}, "speeds: the speed 1e+200: expected 1e-100 to 1e+100"),
        ({"cache_limit": 5}, "--cache-limit SIZE needs --cache DIR"),
        ({"cache": "c", "cache_limit": 0}, "expected at least 1 byte"),
        ({"cache": "c", "cache_limit": "2G"}, "expected a whole number"),
        ({"cache": ""}, "expected the name of a file or directory"),
        ({"seed": -1}, "seed -1: expected at least 0"),
        ({"device": ("cpu", "cpu")}, "device"),
        *(({"accept": name}, f"accept {name!r}: expected a file name")
          for name in (5, "a\0b", "")),
        ({"listen": 5555}, "listen 5555: expected 'HOST:PORT'"),
        *(({"listen": "a:1", name: value}, f"{name} and listen cannot be combined: expected one")
          for name, value in {"accept": "f", "interface": "eth0", "ports": (1, 2)}.items()),
        *(({"local": 2, "ports": ports}, f"ports {ports}: expected the first and last")
          for ports in ((9,), (9, 3), (0, 3), (1, 65536))),
        ({"local": 2, "encryption": "no"}, "encryption 'no': expected True or False"),
    ],
)  # fmt: skip
def test_contradictory_options_are_rejected(options, message, manifest):
    with pytest.raises(CecError, match=re.escape(message)):
        SessionOptions(**options).validate(manifest)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stragglers": 2}, "stragglers 2: expected 0 to 1 (each row is on 2 machines)"),
        ({"scheme": "cyclic"}, "scheme cyclic needs a coded store"),
        ({"machines": (1,)}, "1 machine takes part, but rows "),
    ],
)
def test_options_that_do_not_fit_a_store_of_copies_are_rejected(options, message, tmp_path):
    manifest = cec_mpi.encode(random_sparse(40, 9), tmp_path / "sparse", 3, copies=2)
    with pytest.raises(CecError, match=re.escape(message)):
        SessionOptions(**options).validate(manifest)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"machines": 12, "recovery": 9, "dtype": "float32", "code": "fourier"},
            r"check: with this code \(fourier, N = 12, L = 9\) in float32, a check with 10 machines"
            r" can miss errors of up to 0\.\d+ of X w, expected at most 0.001: encode with dtype "
            "float64, a smaller L, or another code$",
        ),
        (
            {"machines": 3, "recovery": 3},
            "a row has only 3 answers: encode with more machines, or a smaller L$",
        ),
    ],
)
def test_a_code_that_hides_errors_is_rejected_with_a_remedy(tmp_path, arguments, message):
    X = np.random.default_rng(0).standard_normal((18, 100))
    manifest = cec_mpi.encode(X, tmp_path / "store", **arguments)
    SessionOptions().validate(manifest)
    with pytest.raises(InputError, match=message):
        SessionOptions(check=True).validate(manifest)


def test_shards_that_were_repaired_with_large_errors_are_rejected(manifest):
    def validate(bound):
        repaired = structs.replace(manifest.shards[0], rebuilt=(RebuiltRows(0, 2, bound),))
        shards = repaired, *manifest.shards[1:]
        SessionOptions(check=True).validate(structs.replace(manifest, shards=shards))

    validate(1e-12)
    for bound, message in ((1e-3, "errors of up to 0.0"), (9, "as large as X")):
        with pytest.raises(InputError, match=f"{message}.*: encode X again, because .* repaired"):
            validate(bound)


def test_validated_options_have_all_defaults(manifest):
    assert SessionOptions().validate(manifest).deadline is None
    deadline = SessionOptions(elastic=True).validate(manifest).deadline
    assert (deadline.factor, deadline.min_seconds) == (10.0, 2.0)
    assert SessionOptions(deadline=3).validate(manifest).deadline.seconds == 3
    validated = SessionOptions(deadline="x2", speeds=[1, 2, 3], adopt=True).validate(manifest)
    assert (validated.deadline.factor, validated.adopt, validated.machines) == (2, 2.0, (1, 2, 3))
    assert validated.validate(manifest) is validated
    assert as_speeds(None, 2) == as_speeds("learn", 2) == "learn"
    assert as_speeds({"a": 1.0}, 2) == {"a": 1.0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("268435456", 2**28),
        ("100B", 100),
        ("1.5 kB", 1500),
        ("64gb", 64 * 10**9),
        ("64GiB", 64 * 2**30),
        ("64Gi", 64 * 2**30),
        ("2T", 2**41),
        ("1e9", 10**9),
        *(
            (text, None)
            for text in ("", "B", "0", "0.5", "-1G", "1GG", "1iB", "1X", "inf", "1e400")
        ),
    ],
)
def test_sizes_are_parsed_with_their_units(text, expected):
    if expected is not None:
        assert values.size(text) == expected
        return
    with pytest.raises(argparse.ArgumentTypeError, match="expected a size from 1 byte"):
        values.size(text)
