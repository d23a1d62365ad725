"""What the reference says of files and exit codes is all that there is, and nothing else."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import fields
from typing import get_args

import numpy as np
import pytest

import cec_mpi
from cec_mpi import errors
from cec_mpi.cli import build_parser, main
from cec_mpi.runtime.machine.emulation import Emulation, SpeedChange
from cec_mpi.runtime.records.directory import SUMMARY_VERSION
from cec_mpi.runtime.records.events import KINDS_BY_NAME
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.runtime.records.step import FIELDS, VERSION, AbsenceReason, Waiting
from helpers import ROOT

REFERENCE = ROOT / "docs" / "reference"
RECORDS = (REFERENCE / "records.md").read_text()


def section(title, page=RECORDS):
    """The text below a heading, up to the next one of its kind or above."""
    (level,) = re.findall(rf"^(#+) {re.escape(title)}$", page, re.MULTILINE)
    after = page.split(f"\n{level} {title}\n", 1)[1]
    return re.split(rf"^#{{1,{len(level)}}} ", after, flags=re.MULTILINE)[0]


def first_cells(text, heading):
    """The code in the first column of a table, which begins with this heading."""
    table = text.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0]
    cells = re.findall(r"^\| (\[?`[^|]*)\|", table, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Results of two runs in one process: of `matvec`, and of a solver that did not converge."""
    directory = tmp_path_factory.mktemp("reference")
    basis = np.random.default_rng(1).standard_normal((30, 30))
    np.save(directory / "X.npy", basis @ basis.T)
    np.save(directory / "W.npy", np.ones((2, 30)))
    cec_mpi.encode(directory / "X.npy", directory / "store", 3, 2)
    for out, words in (
        ("products", [f"vectors={directory / 'W.npy'}", "--emulate-speeds", "1,1,2"]),
        ("power", ["power", "iterations=9", "--checkpoint-every", 2]),
    ):
        command = ["run", directory / "store", "--serial", "-q", "--out", directory / out, *words]
        assert main([str(word) for word in command]) == (8 if out == "power" else 0)
    return directory


def lines_of(directory, kind):
    lines = map(json.loads, (directory / "steps.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == kind]


@pytest.mark.usefixtures("no_launcher")
def test_each_field_of_a_header_is_described(made):
    (header,) = lines_of(made / "products", "header")
    text = section("Headers")
    assert sorted({"kind", *first_cells(text, "field")}) == sorted(header)
    assert header["version"] == VERSION
    assert f"| `version` | {VERSION} |" in text
    assert f"Version {VERSION}." in section("steps.jsonl")
    (versions,) = re.findall(r"^\| `versions` \|(.*)$", text, re.MULTILINE)
    assert re.findall(r"`(\w+)`", versions) == list(header["versions"])
    (emulation,) = re.findall(r"^\| `emulation` \|(.*)$", text, re.MULTILINE)
    names = [each.name for each in (*fields(Emulation), *fields(SpeedChange))]
    assert sorted(re.findall(r"`(\w+)`", emulation)) == sorted(names)


def test_each_field_of_a_step_is_described(made):
    described = first_cells(section("Steps"), "field")
    assert sorted(described) == sorted(FIELDS)
    assert sorted(first_cells(section("Steps"), "reason")) == sorted(get_args(AbsenceReason))
    step = lines_of(made / "power", "step")[0]
    assert set(step) - {"kind"} <= set(described)
    (parts,) = re.findall(r"^\| `payload_bytes` \|(.*)$", section("Steps"), re.MULTILINE)
    assert re.findall(r"`(\w+)`", parts) == list(step["payload_bytes"])


def test_each_kind_of_event_and_line_is_described(made):
    assert sorted(first_cells(section("Steps"), "event")) == sorted(KINDS_BY_NAME)
    kinds = first_cells(section("Lines between steps"), "`kind`")
    assert {"header", "step", *kinds} - {"waiting", "unfinished"} == {  # nobody was missing
        json.loads(line)["kind"]
        for line in (made / "power" / "steps.jsonl").read_text().splitlines()
    }
    assert set(lines_of(made / "power", "progress")[0]) == {"kind", "values"}
    assert set(lines_of(made / "power", "checkpoint")[0]) == {"kind"}
    (row,) = [line for line in section("Lines between steps").splitlines() if "`waiting`" in line]
    assert all(f"`{name}`" in row for name in Waiting.__struct_fields__)


@pytest.mark.parametrize("run", ["products", "power"])
def test_each_field_of_a_summary_is_described(made, run):
    summary = json.loads((made / run / "summary.json").read_text())
    text = section("summary.json")
    numbers = {"eigenvalue", "residual", "iterations", "converged"} if run == "power" else set()
    described = first_cells(text, "field")
    assert sorted(described) == sorted(set(summary) - numbers)
    assert set(Recorder().summary()) <= set(described)
    assert summary["version"] == SUMMARY_VERSION
    assert f"Version {SUMMARY_VERSION}." in text
    (run_line,) = re.findall(r"^\| `run` \|(.*)$", text, re.MULTILINE)
    assert set(summary["run"]) <= set(re.findall(r"`(\w+)`", run_line))


def test_each_array_of_a_checkpoint_is_described(made):
    with np.load(made / "power" / "checkpoint.npz") as file:
        names = {re.sub(r"^state\.\w+$", "state.NAME", name) for name in file.files}
        about = json.loads(str(file["about"]))
    text = section("checkpoint.npz")
    assert set(first_cells(text, "array")) == names
    summary = json.loads((made / "power" / "summary.json").read_text())
    assert about == {"version": about["version"], **summary["run"]}
    assert f"Version {about['version']}." in text


def test_each_file_of_a_run_is_described(made):
    described = set(first_cells(RECORDS, "file in DIR"))
    for run in ("products", "power"):
        found = (path for path in (made / run).rglob("*") if path.is_file())
        names = {str(path.relative_to(made / run)) for path in found}
        names = {re.sub(r"machine-\d+", "machine-0001", name) for name in names}
        assert names <= described


def names_in(content, *above):
    """The fields of an object, with those of objects in it, as the reference writes them."""
    for name, value in content.items():
        yield ".".join([*above, name])
        if isinstance(value, dict):
            yield from names_in(value, *above, name)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield from names_in(value[0], *above[:-1], f"{name}[]")


def test_each_field_of_a_manifest_is_described(made):
    page = (REFERENCE / "store.md").read_text()
    text = section("manifest.json, field by field", page)
    described = set(first_cells(text, "field"))
    manifest = json.loads((made / "store" / "manifest.json").read_text())
    inner = {name for name in names_in(manifest) if isinstance(manifest.get(name), dict)}
    found = {re.sub(r"^(code\.conditioning)\..*", r"\1", name) for name in names_in(manifest)}
    assert found - inner == described - {"column_names", "missing"}
    (conditioning,) = re.findall(r"^\| `code.conditioning` \|(.*)$", text, re.MULTILINE)
    assert set(manifest["code"]["conditioning"]) == set(re.findall(r"`(\w+)`", conditioning))
    assert f"| `version` | {manifest['version']};" in text


def test_each_exit_code_is_described():
    page = (REFERENCE / "exit-codes.md").read_text()
    rows = re.findall(r"^\| (\d+) \|([^|]*)\|", page, re.MULTILINE)
    described = {int(code): set(re.findall(r"`(\w+)`", names)) for code, names in rows}
    raised = {}
    for name in errors.__all__:
        error = getattr(errors, name)
        if issubclass(error, errors.CecError):
            raised.setdefault(error.exit_code, set()).add(name)
    assert described == raised | {0: set(), 130: {"KeyboardInterrupt"}}


PARSERS = dict(build_parser().walk())


@pytest.mark.parametrize("command", PARSERS)
def test_each_option_has_a_help(command):
    chosen = PARSERS[command]
    options = [each for each in chosen._actions if not isinstance(each, argparse._SubParsersAction)]
    assert not [each.option_strings or each.dest for each in options if not each.help]
