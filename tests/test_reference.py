"""The reference describes all fields, files and exit codes, and no others."""

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
    """Return the text below a heading, up to the next heading of its level or above."""
    (level,) = re.findall(rf"^(#+) {re.escape(title)}$", page, re.MULTILINE)
    after = page.split(f"\n{level} {title}\n", 1)[1]
    return re.split(rf"^#{{1,{len(level)}}} ", after, flags=re.MULTILINE)[0]


def first_cells(text, heading):
    """Return the code in the first column of the table whose first heading this is."""
    table = text.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0]
    cells = re.findall(r"^\| (\[?`[^|]*)\|", table, re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A directory with results of `matvec`, and of a solver that did not converge."""
    directory = tmp_path_factory.mktemp("reference")
    basis = np.random.default_rng(1).standard_normal((30, 30))
    np.save(directory / "X.npy", basis @ basis.T)
    np.save(directory / "W.npy", np.ones((2, 30)))
    cec_mpi.encode(directory / "X.npy", directory / "store", 3, 2)
    for out, args in (
        ("products", [f"vectors={directory / 'W.npy'}", "--emulate-speeds", "1,1,2"]),
        ("power", ["power", "iterations=9", "--checkpoint-every", 2]),
    ):
        command = ["run", directory / "store", "--serial", "-q", "--out", directory / out, *args]
        assert main([str(word) for word in command]) == (8 if out == "power" else 0)
    return directory


def read_lines(directory, kind):
    lines = map(json.loads, (directory / "steps.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == kind]


@pytest.mark.usefixtures("no_launcher")
def test_each_field_of_a_header_is_described(results):
    (header,) = read_lines(results / "products", "header")
    text = section("Headers")
    assert sorted({"kind", *first_cells(text, "field")}) == sorted(header)
    assert header["version"] == VERSION
    assert f"| `version` | {VERSION} |" in text
    assert f"Version {VERSION}." in section("steps.jsonl")
    (versions,) = re.findall(r"^\| `versions` \|(.*)$", text, re.MULTILINE)
    assert re.findall(r"`(\w+)`", versions) == list(header["versions"])
    (emulation,) = re.findall(r"^\| `emulation` \|(.*)$", text, re.MULTILINE)
    names = [field.name for field in (*fields(Emulation), *fields(SpeedChange))]
    assert sorted(re.findall(r"`(\w+)`", emulation)) == sorted(names)


def test_each_field_of_a_step_is_described(results):
    described = first_cells(section("Steps"), "field")
    assert sorted(described) == sorted(FIELDS)
    assert sorted(first_cells(section("Steps"), "reason")) == sorted(get_args(AbsenceReason))
    step = read_lines(results / "power", "step")[0]
    assert set(step) - {"kind"} <= set(described)
    (parts,) = re.findall(r"^\| `payload_bytes` \|(.*)$", section("Steps"), re.MULTILINE)
    assert re.findall(r"`(\w+)`", parts) == list(step["payload_bytes"])


def test_each_kind_of_event_and_line_is_described(results):
    assert sorted(first_cells(section("Steps"), "event")) == sorted(KINDS_BY_NAME)
    kinds = first_cells(section("Lines between steps"), "`kind`")
    assert {"header", "step", *kinds} - {"waiting", "unfinished"} == {  # no machine was missing
        json.loads(line)["kind"]
        for line in (results / "power" / "steps.jsonl").read_text().splitlines()
    }
    assert set(read_lines(results / "power", "progress")[0]) == {"kind", "values"}
    assert set(read_lines(results / "power", "checkpoint")[0]) == {"kind"}
    (row,) = [line for line in section("Lines between steps").splitlines() if "`waiting`" in line]
    assert all(f"`{name}`" in row for name in Waiting.__struct_fields__)


@pytest.mark.parametrize("run", ["products", "power"])
def test_each_field_of_a_summary_is_described(results, run):
    summary = json.loads((results / run / "summary.json").read_text())
    text = section("summary.json")
    numbers = {"eigenvalue", "residual", "iterations", "converged"} if run == "power" else set()
    described = first_cells(text, "field")
    assert sorted(described) == sorted(set(summary) - numbers)
    assert set(Recorder().summary()) <= set(described)
    assert summary["version"] == SUMMARY_VERSION
    assert f"Version {SUMMARY_VERSION}." in text
    (run_line,) = re.findall(r"^\| `run` \|(.*)$", text, re.MULTILINE)
    assert set(summary["run"]) <= set(re.findall(r"`(\w+)`", run_line))


def test_each_array_of_a_checkpoint_is_described(results):
    with np.load(results / "power" / "checkpoint.npz") as file:
        names = {re.sub(r"^state\.\w+$", "state.NAME", name) for name in file.files}
        about = json.loads(str(file["about"]))
    text = section("checkpoint.npz")
    assert set(first_cells(text, "array")) == names
    summary = json.loads((results / "power" / "summary.json").read_text())
    assert about == {"version": about["version"], **summary["run"]}
    assert f"Version {about['version']}." in text


def test_each_file_of_a_run_is_described(results):
    described = set(first_cells(RECORDS, "file in DIR"))
    for run in ("products", "power"):
        found = (path for path in (results / run).rglob("*") if path.is_file())
        names = {str(path.relative_to(results / run)) for path in found}
        names = {re.sub(r"machine-\d+", "machine-0001", name) for name in names}
        assert names <= described


def field_names(content, *parents):
    """Yield the fields of an object and of nested objects, as the reference writes them."""
    for name, value in content.items():
        yield ".".join([*parents, name])
        if isinstance(value, dict):
            yield from field_names(value, *parents, name)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield from field_names(value[0], *parents[:-1], f"{name}[]")


def test_each_field_of_a_manifest_is_described(results):
    page = (REFERENCE / "store.md").read_text()
    text = section("manifest.json, field by field", page)
    described = set(first_cells(text, "field"))
    manifest = json.loads((results / "store" / "manifest.json").read_text())
    inner = {name for name in field_names(manifest) if isinstance(manifest.get(name), dict)}
    found = {re.sub(r"^(code\.conditioning)\..*", r"\1", name) for name in field_names(manifest)}
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
def test_each_option_has_a_help_text(command):
    actions = PARSERS[command]._actions
    options = [a for a in actions if not isinstance(a, argparse._SubParsersAction)]
    assert not [option.option_strings or option.dest for option in options if not option.help]
