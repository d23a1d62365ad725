"""Text tables: their headers, columns, targets, and lines as an editor counts them."""

import os
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest

from cec_mpi import encode
from cec_mpi.errors import InputError
from cec_mpi.store import decode, open_store
from cec_mpi.store.work import LocalRunner
from helpers.matrices import matrix_in


@pytest.fixture
def table(tmp_path):
    def table(content, name="t.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return table


# --- headers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    ["1,?,3", "1,,3", "nan,x,3", "a,1990,1991", "?,?,?", ",,", "NA,null,-", '"1","b","c"'],
)
def test_a_first_line_that_may_be_numbers_is_refused(table, tmp_path, first):
    path = table(f"{first}\n4,5,6\n")
    with pytest.raises(InputError, match=r"t\.csv: line 1 has .*--header yes .*--header no"):
        encode(path, tmp_path / "store", 2, 1)
    assert not (tmp_path / "store").exists()


def test_the_users_word_on_the_header_counts(table):
    path = table("2020,2021\n4,5\n")
    assert matrix_in(path)[1].tolist() == [[2020, 2021], [4, 5]]
    source, out = matrix_in(path, header=True)
    assert source.column_names == ("2020", "2021")
    assert out.tolist() == [[4, 5]]
    with pytest.raises(InputError, match="line 1, column 1 is 'a', expected a number"):
        matrix_in(table("a,b\n4,5\n"), header=False)


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("a,b\n1,2\n", ("a", "b")),
        (",b\n1,2\n", ("", "b")),
        ('\ufeff"a","b ""x"", c"\r\n1,2\r\n', ("a", 'b "x", c')),
        ('# by hand\n\na,"two\nlines"\n1,2', ("a", "two\nlines")),
        ('size 5",b\n1,2\n', ('size 5"', "b")),
        ("größe,日本\n1,2\n", ("größe", "日本")),
    ],
)
def test_a_line_without_numbers_is_a_header(table, content, names):
    source, out = matrix_in(table(content))
    assert source.column_names == names
    assert out.tolist() == [[1, 2]]


def test_a_first_line_of_numbers_that_are_not_finite_is_no_header(table):
    with pytest.raises(InputError, match="holds nan at line 1, column 1, expected finite numbers"):
        matrix_in(table("nan,inf\n"))


def test_the_store_keeps_the_names(table, tmp_path):
    encode(table("a,größe\n1,2\n3,4\n"), tmp_path / "store", 2, 1)
    assert open_store(tmp_path / "store").manifest.column_names == ("a", "größe")
    encode(table("1,2\n3,4\n", "u.csv"), tmp_path / "plain", 2, 1)
    assert "column_names" not in (tmp_path / "plain" / "manifest.json").read_text()


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_the_index_of_a_data_frame_is_pointed_out(table, tmp_path, name):
    path = table(f"{name},a\n0,5\n1,6\n")
    with pytest.warns(UserWarning, match=r"column 1 has .*index.* --drop 1"):
        encode(path, tmp_path / "store", 2, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encode(path, tmp_path / "dropped", 2, 1, drop=[1])
    assert open_store(tmp_path / "dropped").manifest.columns == 1


def test_a_comment_that_looks_like_a_row_is_pointed_out(table):
    with pytest.warns(UserWarning, match=r"line 3 and other lines that begin with # are skipped"):
        matrix_in(table("id,a\n1,2\n#2,3\n"))
    assert matrix_in(table("id,a\n1,2\n# a remark\n3,4\n"))[1].tolist() == [[1, 2], [3, 4]]


# --- columns ------------------------------------------------------------------------------

PEOPLE = """name,age,"size, cm",score
"Smith, Ann",40,170,1
"Öl
zwei",50,180,2
O'Hara #1,60,190,3
"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"drop": ["name"]}, [[40, 170, 1], [50, 180, 2], [60, 190, 3]]),
        ({"drop": [1, "score"]}, [[40, 170], [50, 180], [60, 190]]),
        ({"columns": ["score", "age"]}, [[1, 40], [2, 50], [3, 60]]),
        ({"columns": ["2-4"], "drop": ["size, cm"]}, [[40, 1], [50, 2], [60, 3]]),
        ({"columns": ["4", " age "]}, [[1, 40], [2, 50], [3, 60]]),
    ],
)
def test_columns_by_name_and_number(table, options, expected):
    assert matrix_in(table(PEOPLE), **options)[1].tolist() == expected


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"columns": ["aeg"]}, r"columns 'aeg': .*t\.csv has no such column: did you mean 'age'\?"),
        ({"drop": ["AGE"]}, r"drop 'AGE': .* did you mean 'age'\?"),
        ({"drop": ["zzz"]}, r"its columns are name, age, size, cm, score"),
        ({"columns": [5]}, r"columns '5': expected columns 1 to 4 of .*"),
        ({"columns": [0]}, r"columns '0': expected columns 1 to 4 of .*"),
        ({"columns": ["3-2"]}, r"columns '3-2'"),
        ({"columns": ["age", 2]}, r"columns: column 2 \(age\) .* is listed twice"),
        ({"drop": ["1-4"]}, r"has 4 columns, but none of them is left for X"),
        ({"columns": "age"}, r"columns 'age': expected a list"),
        ({"target": {"age": "y.txt"}}, r"target age:y\.txt: expected the name of an \.npy file"),
        ({"target": {"age": "y.npy", 2: "z.npy"}}, r"target: column 2 \(age\) .* twice"),
        ({"target": {"age": "y.npy", "score": "./y.npy"}}, r"target: a file is listed twice"),
        ({"target": {"1-2": "y.npy"}}, r"target: expected one column"),
        ({"delimiter": "5"}, r"delimiter '5': expected one character"),
        ({"delimiter": ";;"}, r"delimiter ';;': expected one character"),
        ({"delimiter": ""}, r"delimiter '': expected one character"),
    ],
)
def test_columns_that_are_not_there_are_refused(table, options, says):
    with pytest.raises(InputError, match=says):
        matrix_in(table(PEOPLE), **options)


def test_a_name_that_two_columns_have(table):
    path = table("a,b,a\n1,2,3\n")
    assert matrix_in(path, columns=[3])[1].tolist() == [[3]]
    with pytest.raises(InputError, match=r"has 2 columns of this name.* \(1, 3\)"):
        matrix_in(path, columns=["a"])


def test_columns_of_other_formats_are_refused(tmp_path):
    np.save(tmp_path / "X.npy", np.ones((4, 3)))
    for options in ({"columns": [1]}, {"header": True}, {"target": {1: tmp_path / "y.npy"}}):
        with pytest.raises(
            InputError, match=r"is only for text tables \(\.csv, \.tsv\), not for .*X\.npy"
        ):
            encode(tmp_path / "X.npy", tmp_path / "store", 2, 1, **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["X.npy"]


@pytest.mark.parametrize(
    ("name", "content", "delimiter"),
    [
        ("t.csv", "1;2\n3;4\n", ";"),
        ("t.csv", "a;b\n1;2\n3;4\n", "semicolon"),
        ("t.txt", "1\t2\n3\t4\n", "tab"),
        ("t.dat", "  1   2\n 3\t4 \n", "space"),
        ("t.dat", '"my a"   b\n1 2\n3 4\n', " "),
        ("t.tsv", "1\t2\n3\t4\n", None),
        ("t.csv", "1|2\n3|4\n", "|"),
    ],
)
def test_delimiters(table, name, content, delimiter):
    assert matrix_in(table(content, name), delimiter=delimiter)[1].tolist() == [[1, 2], [3, 4]]


# --- what is wrong, and where -------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            "\n# x\na,b\n\n1,2\n3,\n",
            r"line 6, column 2 \(b\) is an empty cell, expected a number; --drop 2 ",
        ),
        ('a,"b\nc"\n1,2\n3,x\n', r"line 4, column 2 .* is 'x'"),
        ("a,b\r\n1,2\r\n\r\n3,4,5\r\n", r"line 4 has 3 columns, but line 1 has 2"),
        ("a,b\n1\n", r"line 2 has 1 column, but line 1 has 2"),
        ("1;2\n3;4\n", r"line 1 has no names: '1;2' in column 1: .*or --delimiter semicolon"),
        ("a;b\n3;4\n", r"line 2, column 1 \(a;b\) is '3;4', .* \(or --delimiter semicolon\)"),
        ("1 2\n3 4\n", r"line 2, column 1 \(1 2\) is '3 4'"),
        ('a,b\n1,2\n"3,4\n5,6\n', r"line 3 opens a quote that is never closed"),
        (b"\xff\xfe1\x00,\x002\x00\n\x00", r"is UTF-16 or binary"),
        ("1,2\r3,4\r", r"line 1 contains a carriage return"),
        ("a,b\n1,2\n3,4\r5,6\n", r"t\.csv: line 3 contains a carriage return"),
        ("a\n1\n\x1b[2J\n", r"line 3, column 1 \(a\) is '\\x1b\[2J'"),
    ],
)
def test_lines_are_counted_as_an_editor_counts_them(table, tmp_path, content, says):
    with pytest.raises(InputError, match=says):
        encode(table(content), tmp_path / "store", 2, 1)
    assert not (tmp_path / "store").exists()


def test_decimal_commas_are_named(table):
    with pytest.raises(InputError, match=r"'1,5' in column 1: .*decimal point, not a comma"):
        matrix_in(table("1,5;2,5\n"), delimiter=";")
    with pytest.raises(InputError, match=r"3 columns, but line 1 has 1 \(or --delimiter semicolon"):
        matrix_in(table("a;b\n1,5;2,5\n"))


def test_a_number_that_is_not_finite_is_named_by_its_line(table, tmp_path):
    rows = "".join(f"{k},{k}\n" for k in range(60_000))  # over many remembered places
    path = table(f"a,b\n{rows}\n7,nan\n{rows}")
    with pytest.raises(InputError, match=r"holds nan at line 60003, column 2 \(b\), expected fin"):
        encode(path, tmp_path / "store", 2, 1)
    with pytest.raises(InputError, match=r"holds nan at line 60003, column 2 \(b\), a target"):
        encode(path, tmp_path / "store", 2, 1, target={"b": tmp_path / "y.npy"})
    assert sorted(each.name for each in tmp_path.iterdir()) == ["t.csv"]


def test_some_columns_of_a_long_table(table):
    X = np.random.default_rng(0).standard_normal((70_000, 5))
    text = "".join(
        f'"n,{k}",' + ",".join(map(repr, row)) + "\n" for k, row in enumerate(X.tolist())
    )
    _, out = matrix_in(table("name,a,b,c,d,e\n" + text), columns=["e", "2-4"])
    assert np.array_equal(out, X[:, [4, 0, 1, 2]])


def test_a_table_that_is_written_to_meanwhile_is_refused(table, tmp_path):
    path = table("1,2\n" * 1000)

    class Writing(LocalRunner):
        def run(self, work):
            path.write_text("1,2\n" * 500 + "1,22\n12\n" * 250)
            return super().run(work)

    with pytest.raises(InputError, match=r"t\.csv changed during the encode"):
        encode(path, tmp_path / "store", 2, 1, runner=Writing())
    assert [each.name for each in tmp_path.iterdir()] == ["t.csv"]


# What pandas reads as a number, and what it does not, is not to change with its version.
NUMBERS = ["1", " 2 ", "+3", "-1.5e3", ".5", "5.", "1E5", "00012", '"3"', "4.9e-324", "1e-400"]
OTHERS = [
    "nan",
    "",
    "NA",
    "?",
    "1_000",
    '"1,5"',
    "0x10",
    "1d5",
    "True",
    "1e",
    "1 2",
    "--",
    "\u0661",
]


@pytest.mark.parametrize("word", NUMBERS)
def test_ways_to_write_a_number(table, word):
    assert matrix_in(table(f"7,{word}\n"))[1].tolist() == [[7, float(word.strip('"'))]]


@pytest.mark.parametrize("word", OTHERS)
def test_what_is_no_finite_number_is_refused(table, word):
    with pytest.raises(InputError, match=r"line 2, column 2"):
        matrix_in(table(f"7,7\n8,{word}\n"))


def test_digits_of_numbers_are_all_read(table):
    X = np.random.default_rng(0).standard_normal(2000) * 10.0 ** np.arange(-300, 300, 0.3)
    assert np.array_equal(matrix_in(table("\n".join(map(repr, X.tolist()))))[1][:, 0], X)


# --- targets ------------------------------------------------------------------------------


def test_a_target_leaves_X_and_gets_a_file(table, tmp_path):
    X = np.random.default_rng(1).standard_normal((9_000, 4))
    text = "".join(",".join(map(repr, row)) + "\n" for row in X.tolist())
    files = {"b": tmp_path / "y.npy", 4: tmp_path / "z.npy"}
    encode(table("a,b,c,d\n" + text), tmp_path / "store", 3, 2, target=files)
    assert np.array_equal(np.load(files["b"]), X[:, 1])
    assert np.array_equal(np.load(files[4]), X[:, 3])
    decode(tmp_path / "store", tmp_path / "out.npy")
    assert np.allclose(np.load(tmp_path / "out.npy"), X[:, [0, 2]], rtol=0, atol=1e-13)
    assert not list(tmp_path.glob(".*"))


def test_a_target_that_is_no_number_leaves_nothing_behind(table, tmp_path):
    path = table("a,b\n1,2\n3,yes\n")
    with pytest.raises(
        InputError, match=r"line 3, column 2 \(b\) is 'yes', expected a number; --drop 2 "
    ):
        encode(path, tmp_path / "store", 2, 1, target={"b": tmp_path / "y.npy"})
    assert [each.name for each in tmp_path.iterdir()] == ["t.csv"]


def test_a_target_replaces_no_file(table, tmp_path):
    (tmp_path / "y.npy").write_text("mine")
    for resume in (False, True):
        with pytest.raises(InputError, match=r"y\.npy exists"):
            encode(
                table(PEOPLE), tmp_path / "store", 2, 1, drop=["name"], resume=resume,
                target={"score": tmp_path / "y.npy"},
            )  # fmt: skip
    assert (tmp_path / "y.npy").read_text() == "mine"
    assert not (tmp_path / "store").exists()
    with pytest.raises(InputError, match="nowhere is not a directory"):
        encode(table(PEOPLE), tmp_path / "s", 2, 1, target={2: tmp_path / "nowhere" / "y.npy"})


class Interrupted(LocalRunner):
    """Ends as a process does that is told to, before the last work."""

    def run(self, work):
        if type(work).__name__ == "Encoding":
            raise KeyboardInterrupt
        return super().run(work)


def test_a_resume_needs_the_same_columns_and_makes_the_target(table, tmp_path):
    path, store, y = table(PEOPLE), tmp_path / "store", tmp_path / "y.npy"
    options = {"drop": ["name"], "target": {"score": y}}
    with pytest.raises(KeyboardInterrupt) as stopped:
        encode(path, store, 2, 1, runner=Interrupted(), **options)
    assert f"--drop name --target score:{y} --resume" in stopped.value.__notes__[0]
    assert not y.exists()
    with pytest.raises(InputError, match=r"was begun with drop \['name'\], not \['age'\]"):
        encode(path, store, 2, 1, resume=True, drop=["age"], target={"score": y})
    (tmp_path / ".y.npy.partial.0123456789abcdef").write_text("of a process that was killed")
    encode(path, store, 2, 1, resume=True, **options)
    assert not list(tmp_path.glob(".*"))
    assert np.load(y).tolist() == [1, 2, 3]
    y.unlink()  # and a complete one makes it again
    encode(path, store, 2, 1, resume=True, **options)
    assert np.load(y).tolist() == [1, 2, 3]


@pytest.mark.parametrize("name", ["t.csv", "t.mtx"])
def test_what_was_read_once_goes_at_the_end_and_after_a_kill(table, tmp_path, name):
    head = "%%MatrixMarket matrix array real general\n2 2\n" if name.endswith("mtx") else ""
    path, store = table(f"{head}1\n2\n3\n4\n", name), tmp_path / "store"
    with pytest.raises(KeyboardInterrupt):
        encode(path, store, 2, 1, runner=Interrupted())
    assert sorted(each.name for each in tmp_path.iterdir()) == ["store", name]
    program = (
        "import os, sys, cec_mpi\n"
        "from cec_mpi.store.work import LocalRunner\n"
        "class Dying(LocalRunner):\n"
        "    def run(self, work): os._exit(7)\n"
        "cec_mpi.encode(*sys.argv[1:], 2, 1, resume=True, runner=Dying())"
    )
    died = subprocess.run([sys.executable, "-c", program, path, store], check=False, timeout=60)
    assert died.returncode == 7
    assert len(list(tmp_path.glob(".store.partial.*"))) == 1
    encode(path, store, 2, 1, resume=True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["store", name]
    decode(store, tmp_path / "out.npy")
    assert sorted(np.load(tmp_path / "out.npy").ravel()) == [1, 2, 3, 4]


@pytest.mark.usefixtures("no_launcher")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_was_read_once_goes_after_a_signal(table, tmp_path, number):
    path, store = table("1,2\n3,4\n"), tmp_path / "store"
    program = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from cec_mpi import __main__\n"
        "from cec_mpi.store.work import LocalRunner\n"
        "def run(self, work):\n"
        "    assert list(Path(sys.argv[3]).parent.glob('.store.partial.*'))\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    time.sleep(60)\n"
        "LocalRunner.run = run\n"
        "sys.exit(__main__.main())"
    )
    words = ("encode", path, store, "--machines", "2", "--recovery", "1")
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 128 + number, done.stderr
    assert "is incomplete, resume with: cec-mpi encode" in done.stderr
    assert sorted(each.name for each in tmp_path.iterdir()) == ["store", "t.csv"]


def test_a_disk_without_room_for_what_is_read_is_one_message(table, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(InputError, match=r"store cannot be written: No space left on device$"):
        encode(table("1,2\n3,4\n"), tmp_path / "store", 2, 1)
    assert [each.name for each in tmp_path.iterdir()] == ["t.csv"]


# --- at the command line ------------------------------------------------------------------


SIZES = ("--machines", 2, "--recovery", 1)


def test_encode_says_which_columns_it_found(table, tmp_path, call):
    words = ("encode", table(PEOPLE), "store", *SIZES, "--columns", 'age,"size, cm"')
    code, said, _ = call([*words, "--target", "score:y.npy"], tmp_path)
    assert code == 0
    assert said.splitlines()[1:] == ["2 columns: age, size, cm", "y.npy: column score, 3 numbers"]
    assert "; 2 columns: age, size, cm\n" in call(["info", "store"], tmp_path)[1]
    path = table("1,2\n3,4\n")
    _, said, _ = call(["encode", path, "unnamed", *SIZES], tmp_path)
    assert said.splitlines()[1:] == ["2 columns without names"]


@pytest.mark.usefixtures("no_launcher")
def test_names_of_columns_cannot_write_on_the_terminal(table, tmp_path, call, cec):
    path = table("größe,\x1b]0;owned\x07\x1b[2J,\u202eb\n1,2,3\n")
    for words in (["encode", path, "store", *SIZES], ["info", "store"]):
        code, said, _ = call(words, tmp_path)
        assert code == 0
        assert r"3 columns: größe, \x1b]0;owned\x07\x1b[2J, \u202eb" in said
    ascii_only = cec("info", tmp_path / "store", variables={"PYTHONIOENCODING": "ascii"})
    assert ascii_only.returncode == 0
    code, _, said = call(["encode", path, "other", *SIZES, "--drop", "g\x1b[2J"], tmp_path)
    assert code == 2
    assert r"g\x1b[2J" in said
    assert "\x1b" not in said


@pytest.mark.parametrize(
    "words",
    [
        ("--target", "score"),
        ("--target", "score:y.npy", "--target", "score:z.npy"),
        ("--columns", ""),
        ("--columns", "age,,score"),
        ("--delimiter", "x"),
        ("--header", "maybe"),
    ],
)
def test_bad_options_are_one_message(table, tmp_path, call, words):
    code, said, message = call(["encode", table(PEOPLE), "store", *SIZES, *words], tmp_path)
    assert (code, said) == (2, "")
    assert message.startswith("cec-mpi: error: ")
    assert message.count("\n") == 1
