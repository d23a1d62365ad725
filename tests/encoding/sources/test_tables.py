"""Text tables: their headers, columns, targets, and lines as an editor counts them."""

import os
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest

from cec_mpi import encode
from cec_mpi.errors import InputError
from cec_mpi.store import decode, open_store
from cec_mpi.store.work import LocalRunner
from helpers.matrices import matrix_in
from helpers.waiting import LIMIT


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
    ["1,?,3", "1,,3", "nan,x,3", "a,1990,1991", "?,?,?", ",,", "NA,null,-", '"1",b,"c"'],
)
def test_a_first_line_that_may_be_numbers_is_refused(table, tmp_path, first):
    path = table(f"{first}\n4,5,6\n")
    with pytest.raises(InputError, match=r"t\.csv: line 1 has .*header=True .*header=False"):
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


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
@pytest.mark.parametrize(
    "names", [("2019", "2020"), ("a", "1"), ("?", ""), ("#1", "nan"), ("0", "b c"), ("1,5", "x\ty")]
)
def test_a_decoded_table_is_encoded_again_alike(tmp_path, name, names):
    X = pd.DataFrame([[1.5, 2.0], [3.0, 4.0], [5.0, 6.0]], columns=names)
    encode(X, tmp_path / "store", 3, 2)
    decode(tmp_path / "store", tmp_path / name)
    source, out = matrix_in(tmp_path / name)
    assert source.column_names == names
    assert np.allclose(out, X, rtol=1e-14)


def test_numbers_in_quotes_above_numbers_without_are_names(table, tmp_path, call):
    path = table('"2019","2020"\n1.5,2\n')
    source, out = matrix_in(path)
    assert (source.column_names, out.tolist()) == (("2019", "2020"), [[1.5, 2]])
    assert matrix_in(table('"1","2"\n"3","4"\n', "u.csv"))[1].tolist() == [[1, 2], [3, 4]]
    printed = call(["encode", path, "store", "--machines", 2, "--recovery", 1], tmp_path)[1]
    assert "the first row was read as names (use --header no if it is data)" in printed


@pytest.mark.parametrize("first", ["0,1,2", "2019,2020,2021", "1990,2000,2010"])
def test_a_first_row_like_numbers_of_columns_is_pointed_out(table, tmp_path, first):
    path = table(f"{first}\n1,7,3\n")
    with pytest.warns(UserWarning, match=r"first row .* --header yes .* --header no"):
        assert encode(path, tmp_path / "store", 2, 1).rows == 2
    assert encode(path, tmp_path / "names", 2, 1, header=True).rows == 1
    assert encode(path, tmp_path / "data", 2, 1, header=False).rows == 2


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
    ("options", "message"),
    [
        ({"columns": ["aeg"]}, r"columns 'aeg': .*t\.csv has no such column: did you mean 'age'\?"),
        ({"drop": ["AGE"]}, r"drop 'AGE': .* did you mean 'age'\?"),
        ({"drop": ["zzz"]}, r"its columns are name, age, size, cm, score"),
        ({"columns": [5]}, r"columns '5': expected columns 1 to 4 of .*"),
        ({"columns": [0]}, r"columns '0': expected columns 1 to 4 of .*"),
        ({"columns": ["3-2"]}, r"columns '3-2'"),
        ({"columns": ["score", "age", 2]}, r"columns: column 2 \(age\) .* is listed twice"),
        ({"drop": ["1-4"]}, r"has 4 columns, but all of them are excluded from X"),
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
def test_unknown_columns_are_refused(table, options, message):
    with pytest.raises(InputError, match=message):
        matrix_in(table(PEOPLE), **options)


def test_a_name_that_two_columns_have(table):
    path = table("a,b,a\n1,2,3\n")
    assert matrix_in(path, columns=[3])[1].tolist() == [[3]]
    with pytest.raises(InputError, match=r"has 2 columns with this name.* \(1, 3\)"):
        matrix_in(path, columns=["a"])


def test_a_column_whose_name_is_the_number_of_another(table):
    path = table("0,1,2\nx,5,7\n")
    with pytest.raises(InputError, match=r"line 2, column 1 \(0\) is 'x'.*; --drop number=1 drops"):
        matrix_in(path, header=True)
    assert matrix_in(path, header=True, drop=[1])[1].tolist() == [[5, 7]]
    with pytest.raises(InputError, match=r"drop '1': .*expected number=1 or name=1"):
        matrix_in(path, header=True, drop=["1"])
    for word, columns in (("0", [1, 2]), ("number=1", [1, 2])):
        assert matrix_in(path, header=True, drop=[word])[0].column_names == tuple(map(str, columns))
    assert matrix_in(path, header=True, columns=["name=1"])[1].tolist() == [[5]]
    years = table("2019,2020\nx,5\n", "years.csv")
    with pytest.raises(InputError, match=r"column 1 \(2019\) is 'x'.*; --drop 1 drops"):
        matrix_in(years, header=True)
    assert matrix_in(years, header=True, drop=["2019"])[1].tolist() == [[5]]


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
    ("content", "message"),
    [
        (
            "\n# x\na,b\n\n1,2\n3,\n",
            r"line 6, column 2 \(b\) is an empty cell, expected finite numbers: .*, drop=2 ",
        ),
        ('a,"b\nc"\n1,2\n3,x\n', r"line 4, column 2 .* is 'x'"),
        ("a,b\r\n1,2\r\n\r\n3,4,5\r\n", r"line 4 has 3 columns, but line 1 has 2"),
        ("a,b\n1\n", r"line 2 has 1 column, but line 1 has 2"),
        ("1;2\n3;4\n", r"line 1 has no names: '1;2' in column 1: .*or delimiter= semicolon"),
        ("a;b\n3;4\n", r"line 2, column 1 \(a;b\) is '3;4', .* \(or delimiter= semicolon\)"),
        ("1 2\n3 4\n", r"line 2, column 1 \(1 2\) is '3 4'"),
        ('a,b\n1,2\n"3,4\n5,6\n', r"line 3 opens a quote that is never closed"),
        (b"\xff\xfe1\x00,\x002\x00\n\x00", r"is UTF-16 or binary"),
        ("1,2\r3,4\r", r"line 1 contains a carriage return"),
        ("a,b\n1,2\n3,4\r5,6\n", r"t\.csv: line 3 contains a carriage return"),
        ("a\n1\n\x1b[2J\n", r"line 3, column 1 \(a\) is '\\x1b\[2J'"),
    ],
)
def test_lines_are_counted_as_an_editor_counts_them(table, tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        encode(table(content), tmp_path / "store", 2, 1)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (b"a,b\n1,2\n3\x0099,4\n", {}),
        (b"a,b\n1,2\n3,4\0\n", {"target": {"b": "y.npy"}}),
        (b'n,a\n"x",1\n"y",3\x0099\n', {"drop": ["n"]}),
        (b'n,a\n"x",1\n"\0y",3\n', {"drop": ["n"]}),
        (b"a,b\n1,2\n\0\0\0\0", {}),
    ],
)
def test_a_null_byte_cuts_no_number(table, content, options):
    with pytest.raises(InputError, match="line 3 contains a NUL byte"):
        matrix_in(table(content), **options)


@pytest.mark.parametrize("wide", [3, 600])  # few columns, and so many that cells are read alone
def test_rows_with_too_many_and_too_few_cells_do_not_make_up_for_each_other(table, wide):
    row = ",".join(["1"] * wide)
    with pytest.raises(InputError, match=rf"line 2 has {wide + 1} columns, but line 1 has {wide}"):
        matrix_in(table(f"{row}\n{row},1\n{row[2:]}\n"))
    with pytest.raises(InputError, match=rf"line 2 has {wide - 1} columns"):
        matrix_in(table(f"{row}\n{row[2:]}\n{row},1\n"))


def test_decimal_commas_are_named(table):
    with pytest.raises(InputError, match=r"'1,5' in column 1: .*decimal point, not a comma"):
        matrix_in(table("1,5;2,5\n"), delimiter=";")
    with pytest.raises(InputError, match=r"3 columns, but line 1 has 1 \(or --delimiter semicolon"):
        matrix_in(table("a;b\n1,5;2,5\n"))


def test_a_delimiter_is_named_that_was_not_given(table):
    path = table("name;size\noak;2\n")
    with pytest.raises(InputError, match=r"'oak;2', expected a number \(or --delimiter semicolon"):
        matrix_in(path)
    with pytest.raises(InputError, match=r"only column is 'name;size' \(or --delimiter semicolon"):
        matrix_in(path, drop=["name"])


def test_a_number_that_is_not_finite_is_named_by_its_line(table, tmp_path):
    rows = "".join(f"{k},{k}\n" for k in range(60_000))  # over many remembered places
    path = table(f"a,b\n{rows}\n7,nan\n{rows}")
    with pytest.raises(InputError, match=r"line 60003, column 2 \(b\) is 'nan', expected fin"):
        encode(path, tmp_path / "store", 2, 1)
    with pytest.raises(InputError, match=r"line 60003, target column 2 \(b\) is 'nan'"):
        encode(path, tmp_path / "store", 2, 1, target={"b": tmp_path / "y.npy"})
    assert sorted(each.name for each in tmp_path.iterdir()) == ["t.csv"]


def test_some_columns_of_a_long_table(table):
    X = np.random.default_rng(0).standard_normal((20_000, 5))
    text = "".join(
        f'"n,{k}",' + ",".join(map(repr, row)) + "\n" for k, row in enumerate(X.tolist())
    )
    _, out = matrix_in(table("name,a,b,c,d,e\n" + text), columns=["e", "2-4"])
    assert np.array_equal(out, X[:, [4, 0, 1, 2]])


# What pandas reads as a number, and what it does not, is not to change with its version.
NUMBERS = ["1", " 2 ", "+3", "-1.5e3", ".5", "5.", "1E5", "00012", '"3"', "4.9e-324", "1e-400"]
OTHERS = [
    *["nan", "NA", "?", "1_000", "0x10", "1d5", "True", "1e", "--"],
    "",
    '"1,5"',
    "1 2",
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


def test_a_number_sign_in_a_row_begins_no_comment(table):
    content = 'a,b\n"two\n# lines, 9",1\n# a remark\n"x # y",2\nz#,3\n'
    assert matrix_in(table(content), columns=["b"])[1].tolist() == [[1], [2], [3]]


def test_integers_that_are_rounded_are_counted(table):
    content = "a,b\n9007199254740993,1\n-9007199254740995,2\n9007199254740992,1e300\n"
    with pytest.warns(UserWarning, match=r"t\.csv: 2 numbers were rounded, by at most 1\b"):
        matrix_in(table(content))


# --- missing values -----------------------------------------------------------------------

HOLES = ["", "NA", "nan", "NaN", "-nan", "null", "NULL", "None", "?", ".", "#N/A", "<NA>", r"\N"]


@pytest.mark.parametrize("delimiter", ["comma", "tab", "space"])
@pytest.mark.parametrize("word", [*HOLES, " NA ", '"NA"', '""'])
def test_spellings_of_missing_values(table, word, delimiter):
    if delimiter == "space" and not word.strip():
        return
    between = {"comma": ",", "tab": "\t", "space": " "}[delimiter]
    rows = [["a", "b", "c"], ["1", word, "3"], ["2", "4", "5"], ["3", "6", "7"]]
    path = table("\n".join(map(between.join, rows)))
    with pytest.raises(InputError, match=r"line 2, column 2 \(b\) is .* 1 row and 1 column have"):
        matrix_in(path, delimiter=delimiter)
    source, out = matrix_in(path, delimiter=delimiter, missing="mean")
    assert out.tolist() == [[1, 5, 3], [2, 4, 5], [3, 6, 7]]
    assert source.missing is None


@pytest.mark.parametrize("word", ["true", "TRUE", "False"])
def test_a_column_of_booleans_is_no_numbers(table, word):
    for row in (f"1,{word}", f'1,"{word}"'):
        with pytest.raises(InputError, match=rf"line 2, column 2 is '{word}', expected a number"):
            matrix_in(table(f"3,4\n{row}\n"))
        with pytest.raises(InputError, match=rf"line 1, column 2 .* '{word}'"):
            matrix_in(table(f"{row}\n{row}\n"), header=False)


@pytest.mark.parametrize("word", ["-", "--", "n.d.", "missing", "#DIV/0!", "9 9"])
def test_other_text_is_not_missing(table, word):
    with pytest.raises(InputError, match=r"line 2, column 2 \(b\) is '.*', expected a number"):
        matrix_in(table(f"a,b\n1,{word}\n"), missing="drop-rows")


@pytest.mark.parametrize(("name", "between"), [("t.csv", ","), ("t.tsv", "\t")])
def test_a_row_of_empty_cells_is_a_row(table, tmp_path, name, between):
    rows = [["a", "b", "y"], ["1", "2", "3"], ["", "", ""], ["4", "6", "7"]]
    path = table("\n".join(map(between.join, rows)) + "\n\n  \n", name)
    with pytest.raises(InputError, match=r"line 3, .* is an empty cell.* 1 row and 3 columns have"):
        encode(path, tmp_path / "store", 2, 1, target={"y": tmp_path / "y.npy"})
    made = encode(
        path, tmp_path / "store", 2, 1, missing="drop-rows", target={"y": tmp_path / "y.npy"}
    )
    assert (made.rows, made.missing.rows, made.missing.columns, made.missing.dropped) == (
        2,
        1,
        3,
        1,
    )
    assert np.load(tmp_path / "y.npy").tolist() == [3, 7]


def test_an_empty_cell_in_quotes_is_a_row_of_one_column(table):
    assert matrix_in(table('a\n1\n""\n\n3\n'), missing="mean")[1].tolist() == [[1], [2], [3]]


def test_targets_follow_the_rows(table, tmp_path):
    path = table("a,b,y\n1,10,100\n2,,200\n3,30,NA\n5,50,500\n")
    for missing, rows, y in (
        ("drop-rows", [[1, 10], [5, 50]], [100, 500]),
        ("mean", [[1, 10], [2, 30], [5, 50]], [100, 200, 500]),
    ):
        store, target, out = (tmp_path / f"{missing}{end}" for end in ("", ".npy", ".out.npy"))
        made = encode(path, store, 2, 1, missing=missing, target={"y": target})
        decode(store, out)
        assert np.allclose(np.load(out), rows, rtol=1e-14)
        assert np.load(target).tolist() == y
        assert (made.missing.rows, made.missing.dropped) == (2, 4 - len(rows))


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
    """Ends as after a signal, before any block is encoded."""

    def run(self, work):
        raise KeyboardInterrupt


def test_a_resume_needs_the_same_columns_and_makes_the_target(table, tmp_path):
    path, store, y = table(PEOPLE), tmp_path / "store", tmp_path / "y.npy"
    options = {"drop": ["name"], "target": {"score": y}}
    with pytest.raises(KeyboardInterrupt) as stopped:
        encode(path, store, 2, 1, runner=Interrupted(), **options)
    assert f"--drop name --target score:{y} --resume" in stopped.value.__notes__[0]
    assert not y.exists()
    with pytest.raises(InputError, match=r"was started with drop \['name'\], not \['age'\]"):
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
    died = subprocess.run([sys.executable, "-c", program, path, store], check=False, timeout=LIMIT)
    assert died.returncode == 7
    assert len(list(tmp_path.glob(".store.partial.*"))) == 1
    encode(path, store, 2, 1, resume=True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["store", name]
    decode(store, tmp_path / "out.npy")
    assert sorted(np.load(tmp_path / "out.npy").ravel()) == [1, 2, 3, 4]


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
    code, printed, _ = call([*words, "--target", "score:y.npy"], tmp_path)
    assert code == 0
    assert printed.splitlines()[1:] == [
        "2 columns: age, size, cm",
        "y.npy: column score, 3 numbers",
    ]
    assert "; 2 columns: age, size, cm\n" in call(["info", "store"], tmp_path)[1]
    path = table("1,2\n3,4\n")
    _, printed, _ = call(["encode", path, "unnamed", *SIZES], tmp_path)
    (line,) = printed.splitlines()[1:]
    assert line.startswith(
        "2 columns without names; the first row was read as data (use --header yes"
    )


@pytest.mark.usefixtures("no_launcher")
def test_names_of_columns_cannot_write_on_the_terminal(table, tmp_path, call, cec):
    path = table("größe,\x1b]0;owned\x07\x1b[2J,\u202eb\n1,2,3\n")
    for words in (["encode", path, "store", *SIZES], ["info", "store"]):
        code, printed, _ = call(words, tmp_path)
        assert code == 0
        assert r"3 columns: größe, \x1b]0;owned\x07\x1b[2J, \u202eb" in printed
    ascii_only = cec("info", tmp_path / "store", variables={"PYTHONIOENCODING": "ascii"})
    assert ascii_only.returncode == 0
    code, _, printed = call(["encode", path, "other", *SIZES, "--drop", "g\x1b[2J"], tmp_path)
    assert code == 2
    assert r"g\x1b[2J" in printed
    assert "\x1b" not in printed


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
    code, printed, message = call(["encode", table(PEOPLE), "store", *SIZES, *words], tmp_path)
    assert (code, printed) == (2, "")
    assert message.startswith("cec-mpi: error: ")
    assert message.count("\n") == 1
