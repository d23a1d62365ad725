"""Directories of runs with made-up records."""

import json

import pytest

from cec_mpi.runtime.records.lines import LineFormatter
from helpers.steps import HEADER


@pytest.fixture
def make_run(tmp_path):
    """Return a function that writes the records of a run, with a header for each part."""

    def make(*parts, name="run", summary=None, header=None):
        directory = tmp_path / name
        directory.mkdir()
        writer, text = LineFormatter(), ""
        for part in parts:
            text += writer.header({**HEADER, **(header or {})})
            for record in part:
                text += record if isinstance(record, str) else writer.step(record)
        (directory / "steps.jsonl").write_text(text, "utf-8")
        if summary is not None:
            (directory / "summary.json").write_text(json.dumps(summary))
        return directory

    return make
