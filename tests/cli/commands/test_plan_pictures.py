"""Pictures of `cec-mpi plan`, and the steps of Algorithm 1."""

import json
import os
import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("no_launcher")
EXAMPLE = ["plan", "--speeds", "2,2,3,3,4,4", "--recovery", "3", "--rows", "420"]


def names_in(directory):
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def cec(call):
    return lambda *words: call(words)


@pytest.mark.parametrize(
    ("name", "begins"),
    [("a.svg", b"<?xml"), ("a.SVG", b"<?xml"), ("a.png", b"\x89PNG"), ("a.pdf", b"%PDF")],
)
def test_a_figure_replaces_a_file_and_the_plan_is_printed(cec, tmp_path, name, begins):
    (tmp_path / name).write_text("old" * 99)
    plan = cec(*EXAMPLE, "--json")
    assert cec(*EXAMPLE, "--json", "--figure", tmp_path / name) == plan
    assert (tmp_path / name).read_bytes().startswith(begins)
    assert names_in(tmp_path) == [name]


@pytest.mark.parametrize(
    ("words", "said"),
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
        (["--figures", "p.svg"], r"--figures \(did you mean --figure\?\)"),  # of report, removed
        (["--steps", "--scheme", "cyclic"], r"--steps needs --scheme heterogeneous, found cyclic"),
    ],
)
def test_wrong_use_is_one_message(cec, tmp_path, words, said):
    (tmp_path / "directory.svg").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    before = names_in(tmp_path)
    code, out, err = cec(*EXAMPLE, *(word.format(tmp_path) for word in words))
    assert (code, out) == (2, "")
    assert re.match(f"cec-mpi: error: .*{said}.*\n$", err)
    assert names_in(tmp_path) == before


def test_too_few_machines_before_the_change_are_refused(cec, tmp_path):
    code, _, err = cec(*EXAMPLE, "--before", "1,2", "--figure", tmp_path / "a.svg")
    assert (code, err.count("\n"), names_in(tmp_path)) == (4, 1, [])


def test_too_many_machines_are_not_drawn(cec, tmp_path):
    many = ["plan", "--speeds", ",".join(["1"] * 2001), "--recovery", 2, "--rows", 9]
    code, _, err = cec(*many, "--figure", tmp_path / "a.svg")
    assert code == 2
    assert "--figure: found 2001 machines, expected at most 2000" in err


def test_a_missing_matplotlib_is_one_message(cec, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = cec(*EXAMPLE, "--figure", tmp_path / "a.svg")
    assert (code, out) == (2, "")
    assert err == "cec-mpi: error: pictures need matplotlib: pip install 'cec_mpi[plot]'\n"
    assert names_in(tmp_path) == []
    assert cec(*EXAMPLE)[0] == 0


def test_a_figure_shows_the_steps_if_requested(cec, tmp_path):
    for words in ((), ("--steps",)):
        assert cec(*EXAMPLE, "--figure", tmp_path / "a.svg", *words)[0] == 0
        shown = "Algorithm 1 step by step" in (tmp_path / "a.svg").read_text()
        assert shown is bool(words)


def test_steps_are_added_to_the_output(cec):
    plain = json.loads(cec(*EXAMPLE, "--json")[1])
    stepped = json.loads(cec(*EXAMPLE, "--json", "--steps")[1])
    assert [each["alpha"] for each in stepped.pop("iterations")] == [140, 140, 70, 70]
    assert stepped == plain
    text = cec(*EXAMPLE)[1]
    assert cec(*EXAMPLE, "--steps")[1].startswith(text.rstrip("\n"))
    assert "m[4] = 70, of the last 3 machines" in cec(*EXAMPLE, "--steps")[1]


def test_the_table_of_steps_fits_the_terminal(cec, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "72")
    text = cec(*EXAMPLE, "--available", "1-3,5-6", "--steps")[1]
    assert max(map(len, text.splitlines())) <= 72
    assert "a      0..167    1 5 6\n" in text
    assert re.search(r"^\(m of \d more machines: ", text, re.MULTILINE)


def test_plan_without_standard_output():
    command = [sys.executable, "-m", "cec_mpi", *EXAMPLE, "--steps"]
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    done = subprocess.run(closed, stderr=subprocess.PIPE, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 2)
