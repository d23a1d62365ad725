"""An option of encode is written once: its flag and its keyword are the same."""

import inspect

import numpy as np
import pytest

import cec_mpi
from cec_mpi.cli import build_parser
from cec_mpi.encoding.options import EncodeOptions
from cec_mpi.errors import InputError
from cec_mpi.options.option import from_flags

OF_THE_COMMAND = {"help", "verbosity", "progress", "start_timeout", "source", "store"}
OF_PROGRAMS = {"source", "store", "runner", "comm"}


def keywords():
    parameters = inspect.signature(cec_mpi.encode).parameters
    return {name: each for name, each in parameters.items() if name not in OF_PROGRAMS}


def test_each_flag_has_its_keyword_and_each_keyword_its_flag():
    flags = {each.dest for each in build_parser().commands["encode"]._actions}
    assert flags - OF_THE_COMMAND == keywords().keys()


def test_keywords_have_the_defaults_of_the_flags():
    words = ["encode", "X.npy", "store", "--machines", "3", "--recovery", "2"]
    options = from_flags(EncodeOptions, build_parser("encode").parse_args(words))
    assert options == EncodeOptions(machines=3, recovery=2)
    defaults = {name: each.default for name, each in keywords().items()}
    assert defaults.pop("recovery") is None
    for name in ("machines",):
        assert defaults.pop(name) is inspect.Parameter.empty
    assert defaults == {name: getattr(options, name) for name in defaults}


def test_help_in_python_says_what_each_keyword_is():
    text = inspect.getdoc(cec_mpi.encode)
    parameters = text.partition("Parameters\n----------\n")[2].partition("\nReturns\n")[0]
    described = [line.partition(" : ")[0] for line in parameters.splitlines() if line[0] != " "]
    names = {name.strip() for line in described for name in line.split(",")}
    assert names == keywords().keys() | OF_PROGRAMS


def test_a_function_names_keywords_and_a_command_flags(call, tmp_path):
    np.save(tmp_path / "X.npy", np.eye(4))
    with pytest.raises(InputError, match=r"a recovery threshold \(recovery=L\)"):
        cec_mpi.encode(tmp_path / "X.npy", tmp_path / "store", 4)
    _, _, err = call(["encode", "X.npy", "store", "--machines", 4], tmp_path)
    assert "a recovery threshold (--recovery L)" in err
