import json

import pytest

from cec_mpi.bench.figures import Figure, Result, compare, read_result
from cec_mpi.bench.turns import fastest, in_turns, ratio, told_in_turns
from cec_mpi.errors import InputError

SETTINGS = {"turns": 3, "rows": 60, "machines": (2, 4)}


def result(*figures, what="step", **settings):
    return Result.now(what, figures, SETTINGS | settings)


def test_a_figure_is_the_median_with_the_quartiles():
    figure = Figure.of("X w", [5.0, 1.0, 2.0, 4.0, 3.0], over="bare")
    assert (figure.value, figure.low, figure.high) == (3, 2, 4)
    assert (figure.unit, figure.over, figure.better) == ("ratio", "bare", "less")


def test_a_result_comes_back_from_json():
    figures = (Figure("a", 1.5, 1.25, 1.75, over="b"), Figure("c", 8, 8, 8, "bytes", better="more"))
    made = result(*figures)
    assert Result.from_json(made.to_json()) == made
    assert Result.from_json(made.to_json(worse=["a"])) == made
    assert json.loads(made.to_json(worse=["a"]))["worse"] == ["a"]
    assert made.machine["cores"].isdigit()
    assert set(made.machine) == {"processor", "cores", "Python", "NumPy", "BLAS"}


def test_a_table_has_each_figure_and_what_it_is_over():
    lines = result(
        Figure("X w", 1.25, 1.125, 1.5, over="bare"),
        Figure("copy", 2e9, 1e9, 3e9, "bytes/s", better="more"),
    ).table()
    assert " ".join(lines.splitlines()[1].split()) == "X w 1.250 1.125 to 1.500 bare less"
    assert "2e+09  1e+09 to 3e+09  bytes/s" in lines
    assert "turns 3, rows 60, machines 2 4" in lines


WORSE = {
    "less, above": (Figure("a", 1, 0.9, 1.1), Figure("a", 2, 1.2, 3), True),
    "less, within the spread of the new": (
        Figure("a", 1, 0.9, 1.1),
        Figure("a", 2, 1, 3),
        False,
    ),
    "less, within the spread of the old": (Figure("a", 1, 0.5, 3), Figure("a", 2, 2, 2), False),
    "less, below": (Figure("a", 1, 1, 1), Figure("a", 0.5, 0.5, 0.5), False),
    "more, below": (
        Figure("a", 1, 0.9, 1.1, better="more"),
        Figure("a", 0.5, 0.4, 0.6, better="more"),
        True,
    ),
    "more, above": (
        Figure("a", 1, 1, 1, better="more"),
        Figure("a", 2, 2, 2, better="more"),
        False,
    ),
    "seconds": (Figure("a", 1, 1, 1, "s"), Figure("a", 9, 9, 9, "s"), False),
    "over another peer": (Figure("a", 1, 1, 1, over="b"), Figure("a", 9, 9, 9, over="c"), False),
    "over another best": (
        Figure("a", 1, 1, 1, over="the best: b"),
        Figure("a", 9, 9, 9, over="the best: c"),
        True,
    ),
    "a new figure": (Figure("b", 1, 1, 1), Figure("a", 9, 9, 9), False),
}


@pytest.mark.parametrize("case", WORSE)
def test_what_got_worse_is_beyond_the_spread_of_both(case):
    before, after, worse = WORSE[case]
    assert compare(result(before), result(after)) == ([(before, after)] if worse else [])


def test_an_old_result_is_of_the_same_benchmark_and_settings(tmp_path):
    path = tmp_path / "old.json"
    made = result(Figure("a", 1, 1, 1))
    path.write_text(made.to_json())
    same = {**SETTINGS, "turns": 9, "seed": 4}
    assert read_result(str(path), "step", same) == made
    with pytest.raises(InputError, match="found figures of step, expected kernel"):
        read_result(str(path), "kernel", SETTINGS)
    with pytest.raises(InputError, match="found rows 60, expected the same settings"):
        read_result(str(path), "step", SETTINGS | {"rows": 61})
    with pytest.raises(InputError, match="missing"):
        read_result(str(tmp_path / "none.json"), "step", SETTINGS)
    with pytest.raises(InputError, match="a directory, expected a file"):
        read_result(str(tmp_path), "step", SETTINGS)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", '{"format": 2}', "1", "\x00", "[" * 100_000, '{"format": 1, "figures": 3}'],
)
def test_an_old_result_that_is_none(tmp_path, text):
    (tmp_path / "old.json").write_text(text)
    with pytest.raises(InputError, match="holds no result: expected what cec-mpi bench step"):
        read_result(str(tmp_path / "old.json"), "step", SETTINGS)


def test_figures_of_an_old_result_that_are_none(tmp_path):
    content = json.loads(result(Figure("a", 1, 1, 1)).to_json())
    good = content["figures"][0]
    for wrong in (
        [good | {"low": "much"}],
        [good | {"value": None}],
        [good | {"value": float("nan")}],
        [good | {"low": 2}],
        [good | {"better": "slower"}],
        [good | {"name": ["a"]}],
        [good | {"over": 3}],
        [good, good],
        [],
    ):
        content["figures"] = wrong
        (tmp_path / "old.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match="holds no result"):
            read_result(str(tmp_path / "old.json"), "step", SETTINGS)


def test_turns_alternate_and_the_first_is_not_counted():
    order = []
    ways = {name: lambda name=name: order.append(name) for name in "abc"}
    times = in_turns(ways, 3, repeats=2, tries=1)
    assert "".join(order[::2]) == "cba" + "abc" + "cba" + "abc"
    assert sum(map(len, times.values())) == 9
    order.clear()
    times = in_turns(ways, 3, tries=2)
    assert "".join(order[::2]) == "cba" + "abc" + "cba" + "abc"
    assert order[::2] == order[1::2]
    assert {name: len(taken) for name, taken in times.items()} == dict.fromkeys("abc", 3)
    assert all(seconds > 0 for taken in times.values() for seconds in taken)


def test_ratios_are_within_turns():
    told = {"ours": iter([9.0, 2.0, 8.0, 60.0]), "peer": iter([9.0, 1.0, 2.0, 15.0])}
    times = told_in_turns({name: told[name].__next__ for name in told}, 3)
    assert times == {"ours": [2, 8, 60], "peer": [1, 2, 15]}
    assert ratio(times, "ours", "peer") == Figure("ours", 4, 3, 4, over="peer")
    found = ratio(times, "ours", "peer", called="speed", peer="the best", better="more")
    assert found == Figure("speed", 0.25, 0.25, 0.375, over="the best", better="more")
    assert fastest(times, ["ours", "peer"]) == "peer"
