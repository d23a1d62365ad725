"""Text tables: headers, columns, targets, missing values, and errors with line numbers."""

import warnings

import numpy as np
import pandas as pd
import pytest

from cec_mpi import encode
from cec_mpi.errors import InputError
from cec_mpi.store import decode
from helpers.dying import DyingRunner, run_until_death
from helpers.matrices import read_matrix
from helpers.stores import InterruptedRunner


@pytest.fixture
def table(tmp_path):
    def table(content, name="t.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return table


def read_numbers(path, **options):
    return read_matrix(path, **options)[1].tolist()


def random_table(rows, columns):
    """Return random numbers, and the lines of their table."""
    X = np.random.default_rng(0).standard_normal((rows, columns))
    return X, [",".join(map(repr, row)) + "\n" for row in X.tolist()]


# --- headers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    ["1,?,3", "1,,3", "nan,x,3", "a,1990,1991", "?,?,?", "NA,null,-", '"1",b,"c"'],
)
def test_an_ambiguous_first_row_is_refused(table, first):
    with pytest.raises(InputError, match=r"t\.csv: line 1 has .*--header yes .*--header no"):
        read_matrix(table(f"{first}\n4,5,6\n"))


def test_the_option_header_decides(table):
    path = table("2020,2021\n4,5\n")
    assert read_numbers(path) == [[2020, 2021], [4, 5]]
    source, out = read_matrix(path, header=True)
    assert (source.column_names, out.tolist()) == (("2020", "2021"), [[4, 5]])
    with pytest.raises(InputError, match="line 1, column 1 is 'a', expected a number"):
        read_matrix(table("a,b\n4,5\n"), header=False)


@pytest.mark.parametrize(
    ("content", "names"),
    [
        ("a,b\n1,2\n", ("a", "b")),
        (",b\n1,2\n", ("", "b")),
        ('\ufeff"a","b ""x"", c"\r\n1,2\r\n', ("a", 'b "x", c')),
        ('# by hand\n\na,"two\nlines"\n1,2', ("a", "two\nlines")),
        ('size 5",b\n1,2\n', ('size 5"', "b")),
        ("größe,日本\n1,2\n", ("größe", "日本")),
        ('"2019","2020"\n1,2\n', ("2019", "2020")),
        ('"1","2"\n"1","2"\n', ()),
    ],
)
def test_a_row_without_numbers_or_the_only_row_in_quotes_is_a_header(table, content, names):
    source, out = read_matrix(table(content))
    assert source.column_names == names
    assert out.tolist() == [[1, 2]] * (1 if names else 2)


@pytest.mark.parametrize(
    ("name", "delimiter"), [("t.csv", None), ("t.tsv", None), ("t.txt", ";"), ("t.txt", "space")]
)
def test_a_decoded_table_is_read_back(tmp_path, name, delimiter):
    spaced = "b c" if delimiter == "space" else "b\tc"
    for k, names in enumerate(
        [
            ("2019", "2020"),
            ("a", "1"),
            ("?", ""),
            ("#1", "nan"),
            ("0", spaced),
            ("1,5", 'größe;"x"'),
        ]
    ):
        X = pd.DataFrame([[1.5, 2.0], [3.0, 4.0], [5.0, 6.0]], columns=names)
        encode(X, tmp_path / f"store{k}", 3, 2)
        decode(tmp_path / f"store{k}", tmp_path / f"{k}{name}", delimiter=delimiter)
        source, out = read_matrix(tmp_path / f"{k}{name}", delimiter=delimiter)
        assert source.column_names == names
        assert np.allclose(out, X, rtol=1e-14)


@pytest.mark.parametrize(
    ("content", "message", "remedy"),
    [
        ("0,1,2\n1,7,3\n", "first row .* --header yes .* --header no", {"header": True}),
        ("1990,2000,2010\n1,7,3\n", "first row .* --header yes", {"header": False}),
        (",a\n0,5\n1,6\n", r"column 1 has no name.*index.* --drop 1", {"drop": [1]}),
        ("Unnamed: 0,a\n0,5\n", r"the name Unnamed: 0.*index.* --drop 1", {"drop": [1]}),
    ],
)
def test_a_possible_mistake_causes_a_warning(table, tmp_path, content, message, remedy):
    path = table(content)
    with pytest.warns(UserWarning, match=message):
        encode(path, tmp_path / "store", 2, 1)
    with warnings.catch_warnings(action="error"):
        encode(path, tmp_path / "silent", 2, 1, **remedy)


def test_a_comment_that_looks_like_a_row_causes_a_warning(table):
    with pytest.warns(UserWarning, match=r"line 3 and other lines that begin with # are skipped"):
        read_matrix(table("id,a\n1,2\n#2,3\n"))
    assert read_numbers(table("id,a\n1,2\n# a remark\n3,4\n")) == [[1, 2], [3, 4]]
    content = 'a,b\n"two\n# lines, 9",1\n# a remark\n"x # y",2\nz#,3\n'
    assert read_numbers(table(content), columns=["b"]) == [[1], [2], [3]]


# --- columns and delimiters ---------------------------------------------------------------

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
        ({"columns": ["score", " age "]}, [[1, 40], [2, 50], [3, 60]]),
        ({"columns": ["2-4"], "drop": ["size, cm"]}, [[40, 1], [50, 2], [60, 3]]),
    ],
)
def test_columns_are_selected_by_name_and_number(table, options, expected):
    assert read_numbers(table(PEOPLE), **options) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["aeg"]}, r"columns 'aeg': .*t\.csv has no such column: did you mean 'age'\?"),
        ({"drop": ["AGE"]}, r"drop 'AGE': .* did you mean 'age'\?"),
        ({"drop": ["zzz"]}, r"its columns are name, age, size, cm, score"),
        ({"columns": [5]}, r"columns '5': expected columns 1 to 4 of .*"),
        ({"columns": ["score", "age", 2]}, r"columns: column 2 \(age\) .* is listed twice"),
        ({"drop": ["1-4"]}, r"has 4 columns: none is left for X"),
        ({"target": {"age": "y.txt"}}, r"target age:y\.txt: expected the name of an \.npy file"),
        ({"target": {"age": "y.npy", 2: "z.npy"}}, r"target: column 2 \(age\) .* twice"),
        ({"target": {"age": "y.npy", "score": "./y.npy"}}, r"target: a file is listed twice"),
        ({"target": {"1-2": "y.npy"}}, r"target: expected one column"),
        ({"delimiter": "5"}, r"delimiter '5': expected one ASCII character"),
    ],
)
def test_unknown_and_repeated_columns_are_refused(table, options, message):
    with pytest.raises(InputError, match=message):
        read_matrix(table(PEOPLE), **options)


def test_ambiguous_columns_need_a_number_or_a_prefix(table):
    path = table("a,b,a\n1,2,3\n")
    assert read_numbers(path, columns=[3]) == [[3]]
    with pytest.raises(InputError, match=r"has 2 columns with this name.* \(1, 3\)"):
        read_matrix(path, columns=["a"])
    path = table("0,1,2\nx,5,7\n")
    with pytest.raises(InputError, match=r"line 2, column 1 \(0\) is 'x'.*; --drop number=1 drops"):
        read_matrix(path, header=True)
    with pytest.raises(InputError, match=r"drop '1': .*expected number=1 or name=1"):
        read_matrix(path, header=True, drop=["1"])
    for selector in (1, "0", "number=1"):
        assert read_numbers(path, header=True, drop=[selector]) == [[5, 7]]
    assert read_numbers(path, header=True, columns=["name=1"]) == [[5]]
    with pytest.raises(InputError, match=r"column 1 \(2019\) is 'x'.*; --drop 1 drops"):
        read_matrix(table("2019,2020\nx,5\n"), header=True)


@pytest.mark.parametrize(
    ("name", "content", "delimiter"),
    [
        ("t.csv", "a;b\n1;2\n3;4\n", "semicolon"),
        ("t.txt", "1\t2\n3\t4\n", "tab"),
        ("t.dat", "  1   2\n 3\t4 \n", "space"),
        ("t.dat", '"my a"   b\n1 2\n3 4\n', " "),
        ("t.csv", "1|2\n3|4\n", "|"),
    ],
)
def test_a_delimiter_is_a_name_or_a_character(table, name, content, delimiter):
    assert read_numbers(table(content, name), delimiter=delimiter) == [[1, 2], [3, 4]]


# --- errors -------------------------------------------------------------------------------

SEMICOLON = r"\(try --delimiter semicolon"
COMMAS = r"\(with a decimal point and without commas\)"


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("\n# x\na,b\n\n1,2\n3,\n", {}, r"line 6, column 2 \(b\) is an empty cell, .*--drop 2 "),
        ('a,"b\nc"\n1,2\n3,x\n', {}, r"line 4, column 2 .* is 'x'"),
        ("a,b\r\n1,2\r\n\r\n3,4,5\r\n", {}, r"line 4 has 3 columns, but line 1 has 2"),
        # Rows with too many and too few cells do not compensate each other.
        ("1,1\n1,1,1\n1\n", {}, "line 2 has 3 columns, but line 1 has 2"),
        ("a;b\n3;4\n", {}, rf"line 2, column 1 \(a;b\) is '3;4', .* {SEMICOLON}"),
        ("a;b\n3;4\n", {"drop": ["a"]}, rf"only column is 'a;b' {SEMICOLON}"),
        ("a;b\n1,5;2,5\n", {}, rf"3 columns, but line 1 has 1 {SEMICOLON}"),
        ("1,5;2,5\n", {"delimiter": ";"}, rf"'1,5' in column 1: .*{COMMAS}"),
        ('a,b\n"1,500",2\n', {}, rf"'1,500', expected a number {COMMAS}"),
        ('"1,234,567.8",2\n', {}, rf"numbers and '1,234,567.8' in column 1: .*{COMMAS}"),
        ('a,b\n1,2\n"3,4\n5,6\n', {}, r"line 3 opens a quote that is never closed"),
        (b"\xff\xfe1\x00,\x002\x00\n\x00", {}, r"is UTF-16 or binary"),
        ("1,2\r3,4\r", {}, r"line 1 contains a carriage return"),
        ("a,b\n1,2\n3,4\r5,6\n", {}, r"t\.csv: line 3 contains a carriage return"),
        (b"a,b\n1,2\n3\x0099,4\n", {}, "line 3 contains a NUL byte"),
        (b"a,b\n1,2\n3,4\0\n", {"columns": ["a"]}, "line 3 contains a NUL byte"),
    ],
)
def test_errors_name_the_line_as_an_editor_counts_it(table, content, options, message):
    with pytest.raises(InputError, match=message):
        read_matrix(table(content), **options)


def test_a_missing_value_after_many_rows_is_named_by_its_line(table, tmp_path):
    rows = "".join(f"{k},{k}\n" for k in range(60_000))
    path = table(f"a,b\n{rows}\n7,nan\n{rows}")
    for options, column in (({}, ""), ({"target": {"b": tmp_path / "y.npy"}}, "target ")):
        with pytest.raises(InputError, match=rf"line 60003, {column}column 2 \(b\) is 'nan', exp"):
            encode(path, tmp_path / "store", 2, 1, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


# --- numbers ------------------------------------------------------------------------------

NUMBERS = ["1", " 2 ", "+3", "-1.5e3", ".5", "5.", "1E5", "00012", '"3"', "4.9e-324", "1e-400"]
NOT_NUMBERS = ["1_000", "0x10", "1d5", "1e", "--", '"1,5"', "1 2", "\u0661", "n.d.", "#DIV/0!"]
MISSING = ["", "NA", "nan", "NaN", "-nan", "null", "NULL", "None", "?", ".", "#N/A", "<NA>", r"\N"]


def test_spellings_of_numbers_do_not_depend_on_pandas(table):
    for word in NUMBERS:
        assert read_numbers(table(f"7,{word}\n")) == [[7, float(word.strip('"'))]]
    for word in NOT_NUMBERS:
        with pytest.raises(InputError, match=r"line 2, column 2 is .*, expected a number"):
            read_matrix(table(f"7,7\n8,{word}\n"), missing="drop-rows")
    for word in ("true", "TRUE", "False"):
        for row in (f"1,{word}", f'1,"{word}"'):
            for content, line in ((f"3,4\n{row}\n", 2), (f"{row}\n{row}\n", 1)):
                with pytest.raises(InputError, match=rf"line {line}, column 2 is '{word}', expect"):
                    read_matrix(table(content), header=False)


@pytest.mark.parametrize("delimiter", [",", "\t", " "])
def test_spellings_of_missing_values_are_recognised(table, delimiter):
    for word in [*MISSING, " NA ", '"NA"', '""']:
        if delimiter != " " or word.strip():
            rows = [["a", "b", "c"], ["1", word, "3"], ["2", "4", "5"], ["3", "6", "7"]]
            path = table("\n".join(map(delimiter.join, rows)))
            message = r"line 2, column 2 \(b\) is .* 1 row and 1 column have"
            with pytest.raises(InputError, match=message):
                read_matrix(path, delimiter=delimiter)
            expected = [[1, 5, 3], [2, 4, 5], [3, 6, 7]]
            assert read_numbers(path, delimiter=delimiter, missing="mean") == expected


def test_all_digits_and_columns_of_long_tables_are_read(table):
    X = np.random.default_rng(0).standard_normal(2000) * 10.0 ** np.arange(-300, 300, 0.3)
    assert np.array_equal(read_matrix(table("\n".join(map(repr, X.tolist()))))[1][:, 0], X)
    X, lines = random_table(20_000, 5)
    content = "".join(f'"n,{k}",{line}' for k, line in enumerate(lines))
    _, out = read_matrix(table("name,a,b,c,d,e\n" + content), columns=["e", "2-4"])
    assert np.array_equal(out, X[:, [4, 0, 1, 2]])


def test_integers_that_are_rounded_are_counted(table):
    content = "a,b\n9007199254740993,1\n-9007199254740995,2\n9007199254740992,1e300\n"
    with pytest.warns(UserWarning, match=r"t\.csv: 2 numbers were rounded, by at most 1\b"):
        read_matrix(table(content))


@pytest.mark.parametrize(("name", "delimiter"), [("t.csv", ","), ("t.tsv", "\t")])
def test_a_row_of_empty_cells_is_a_row(table, tmp_path, name, delimiter):
    rows = [["a", "b", "y"], ["1", "2", "3"], ["", "", ""], ["4", "6", "7"]]
    path = table("\n".join(map(delimiter.join, rows)) + "\n\n  \n", name)
    options = {"target": {"y": tmp_path / "y.npy"}}
    with pytest.raises(InputError, match=r"line 3, .* is an empty cell.* 1 row and 3 columns have"):
        encode(path, tmp_path / "store", 2, 1, **options)
    missing = encode(path, tmp_path / "store", 2, 1, missing="drop-rows", **options).missing
    assert (missing.rows, missing.columns, missing.dropped) == (1, 3, 1)
    assert np.load(tmp_path / "y.npy").tolist() == [3, 7]
    assert read_numbers(table('a\n1\n""\n\n3\n'), missing="mean") == [[1], [2], [3]]


# --- targets ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "rows", "y"),
    [
        ("drop-rows", [[1, 10], [5, 50]], [100, 500]),
        ("mean", [[1, 10], [2, 30], [5, 50]], [100, 200, 500]),
    ],
)
def test_targets_lose_the_rows_that_x_loses(table, tmp_path, missing, rows, y):
    path = table("a,z,b,y\n1,7,10,100\n2,7,,200\n3,7,33,NA\n5,7,50,500\n")
    files = {"y": tmp_path / "y.npy", 2: tmp_path / "z.npy"}
    manifest = encode(path, tmp_path / "store", 2, 1, missing=missing, target=files)
    decode(tmp_path / "store", tmp_path / "out.npy")
    assert np.allclose(np.load(tmp_path / "out.npy"), rows, rtol=1e-14)
    assert np.load(files["y"]).tolist() == y
    assert np.load(files[2]).tolist() == [7] * len(rows)
    assert (manifest.missing.rows, manifest.missing.dropped) == (2, 4 - len(rows))


def test_targets_of_a_large_table_belong_to_the_rows_of_x(table, tmp_path):
    """A table of 10 MB is read in several blocks."""
    lines = [f"{k:0400},{k}\n" for k in range(25_000)]
    lines[24_000] = ",24000\n"
    y = tmp_path / "y.npy"
    path = table("a,b\n" + "".join(lines))
    encode(path, tmp_path / "store", 2, 1, missing="drop-rows", target={"b": y})
    decode(tmp_path / "store", tmp_path / "X.npy")
    expected = np.delete(np.arange(25_000.0), 24_000)
    assert np.array_equal(np.load(y), expected)
    assert np.allclose(np.load(tmp_path / "X.npy")[:, 0], expected, rtol=1e-13)


def test_a_target_replaces_no_file(table, tmp_path):
    (tmp_path / "y.npy").write_text("mine")
    for options, message in (
        ({"target": {2: tmp_path / "y.npy"}}, r"y\.npy exists"),
        ({"target": {2: tmp_path / "y.npy"}, "resume": True}, r"y\.npy exists"),
        ({"target": {2: tmp_path / "nowhere" / "y.npy"}}, "nowhere does not exist"),
    ):
        with pytest.raises(InputError, match=message):
            encode(table(PEOPLE), tmp_path / "store", 2, 1, drop=["name"], **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "y.npy"]
    assert (tmp_path / "y.npy").read_text() == "mine"


def test_a_resume_needs_the_same_columns_and_writes_the_target(table, tmp_path):
    path, store, y = table(PEOPLE), tmp_path / "store", tmp_path / "y.npy"
    options = {"drop": ["name"], "target": {"score": y}}
    with pytest.raises(KeyboardInterrupt) as interrupted:
        encode(path, store, 2, 1, runner=InterruptedRunner(0), **options)
    assert f"--drop name --target score:{y} --resume" in interrupted.value.__notes__[0]
    assert not y.exists()
    with pytest.raises(InputError, match=r"was started with drop \['name'\], not \['age'\]"):
        encode(path, store, 2, 1, resume=True, drop=["age"], target={"score": y})
    (tmp_path / ".y.npy.partial.0123456789abcdef").write_text("of a killed process")
    for _ in range(2):  # resuming a complete store rewrites a deleted target
        encode(path, store, 2, 1, resume=True, **options)
        assert not list(tmp_path.glob(".*"))
        assert np.load(y).tolist() == [1, 2, 3]
        y.unlink()


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize("name", ["t.csv", "t.mtx"])
def test_temporary_copies_are_removed_at_the_end_or_by_the_next_encode(table, tmp_path, name):
    head = "%%MatrixMarket matrix array real general\n2 2\n" if name.endswith("mtx") else ""
    path, store = table(f"{head}1\n2\n3\n4\n", name), tmp_path / "store"
    with pytest.raises(KeyboardInterrupt):
        encode(path, store, 2, 1, runner=InterruptedRunner(0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", name]
    run_until_death(lambda: encode(path, store, 2, 1, resume=True, runner=DyingRunner()))
    assert len(list(tmp_path.glob(".store.partial.*"))) == 1
    encode(path, store, 2, 1, resume=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", name]


# --- the command --------------------------------------------------------------------------

SIZES = ("--machines", 2, "--recovery", 1)


def test_encode_prints_the_columns_of_x_and_targets(table, tmp_path, call):
    arguments = ("encode", table(PEOPLE), "store", *SIZES)
    arguments += ("--columns", "age", "--columns", '"size, cm"')
    code, printed, _ = call([*arguments, "--target", "score:y.npy"], tmp_path)
    assert code == 0
    assert printed.splitlines()[1:] == [
        "2 columns: age, size, cm",
        "y.npy: column score, 3 numbers",
    ]
    assert "; 2 columns: age, size, cm\n" in call(["info", "store"], tmp_path)[1]
    for content, message in (
        ("1,2\n3,4\n", "2 columns without names; the first row was read as data (use --header yes"),
        ('"2019","2020"\n1,2\n', "the first row was read as names (use --header no if it is data)"),
    ):
        store = f"store {len(content)}"
        assert message in call(["encode", table(content), store, *SIZES], tmp_path)[1]


@pytest.mark.usefixtures("no_launcher")
def test_column_names_cannot_control_the_terminal(table, tmp_path, call, run):
    path = table("größe,\x1b]0;owned\x07\x1b[2J,\u202eb\n1,2,3\n")
    for words in (["encode", path, "store", *SIZES], ["info", "store"]):
        code, printed, _ = call(words, tmp_path)
        assert code == 0
        assert r"3 columns: größe, \x1b]0;owned\x07\x1b[2J, \u202eb" in printed
    command = ["cec-mpi", "info", tmp_path / "store"]
    ascii_only = run(command, variables={"PYTHONIOENCODING": "ascii"})
    assert ascii_only.returncode == 0
    code, _, printed = call(["encode", path, "other", *SIZES, "--drop", "g\x1b[2J"], tmp_path)
    assert code == 2
    assert r"g\x1b[2J" in printed
    assert "\x1b" not in printed
