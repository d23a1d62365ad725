"""Who is available when: files, several groups of machines, the random model."""

import json

import numpy as np
import pytest

from cec_mpi.errors import InputError
from cec_mpi.runtime.availability.command import from_command
from cec_mpi.runtime.availability.models import (
    PAPER_AVAILABLE,
    ListedAvailability,
    RandomAvailability,
    all_available,
    from_counts,
)
from cec_mpi.runtime.availability.reading import as_availability, read_availability

SETS = [[1, 2, 3], [3, 1], [], [2]]


def written(directory, content, name="who.json"):
    """The path of a file with this content: text, bytes or what JSON can say."""
    path = directory / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def counts(data, gap=600):
    return {"metadata": {"gap_seconds": gap}, "data": data}


def ticks(availability, number):
    return [availability.at(tick) for tick in range(number)]


def test_the_papers_example():
    assert PAPER_AVAILABLE == ((1, 2, 3, 4, 5, 6), (1, 2, 3, 5, 6), (1, 2, 3, 5), (2, 3, 5))


def test_everyone_is_always_available():
    assert ticks(all_available(4), 3) == [(1, 2, 3, 4)] * 3


# --- files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "machines", "expected"),
    [
        ({"gap_seconds": 600, "available": SETS}, 3, [(1, 2, 3), (1, 3), (), (2,)]),
        ({"available": [[1]]}, 3, [(1,)] * 4),  # the last entry holds
        (counts([2, 4, 0, 1, 9]), 4, [(1, 2), (1, 2, 3, 4), (), (1,), (1, 2, 3, 4)]),
        ({"data": [1, 2]}, 2, [(1,), (1, 2)]),
    ],
)
def test_sets_of_machines_and_counts(tmp_path, content, machines, expected):
    path = written(tmp_path, content)
    for name in (path, str(path)):
        assert ticks(read_availability([name], machines), len(expected)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "1,1,1\n1,0,1\n0,0,0\n0,1,0\n",
        " m1, m2 ,m3\r\n 1, 1, 1\r\n\r\n1 ,0,1\r\n0,0,0\r\n0,1,0",
        '"one","two","three"\n"1","1","1"\n1,0,1\n0,0,0\n0,1,0\n',
    ],
    ids=["plain", "header, spaces and blank lines", "quoted"],
)
def test_a_table_of_zeros_and_ones(tmp_path, text):
    path = written(tmp_path, text.encode(), "WHO.CSV")
    assert ticks(read_availability([path], 3), 4) == [(1, 2, 3), (1, 3), (), (2,)]


@pytest.mark.parametrize(
    "content", [{"available": [[1], [2, 1]]}, counts([1, 2]), "1,0\n1,1\n"], ids=str
)
def test_every_format_can_be_repeated(tmp_path, content):
    repeated = read_availability([written(tmp_path, content)], 2, repeat=True)
    assert ticks(repeated, 5) == [(1,), (1, 2), (1,), (1, 2), (1,)]
    assert repeated.at(1_000_001) == (1, 2)


def test_counts_of_several_groups_are_added(tmp_path):
    paths = [
        written(tmp_path, counts(data), f"{n}.json")
        for n, data in enumerate([[1, 2, 0, 5], [1], [0, 1, 0]])
    ]
    added = read_availability(paths, 6)
    assert [len(available) for available in ticks(added, 6)] == [2, 4, 1, 6, 6, 6]
    assert added.at(1) == (1, 2, 3, 4)


def test_groups_that_are_repeated_start_again_at_the_same_tick(tmp_path):
    paths = [
        written(tmp_path, counts([1, 2, 3]), "long.json"),
        written(tmp_path, counts([0, 1]), "short.json"),
    ]
    repeated = read_availability(paths, 9, repeat=True)
    assert [len(available) for available in ticks(repeated, 6)] == [1, 3, 4, 1, 3, 4]


@pytest.mark.parametrize("other", [1200, None])
def test_groups_of_different_gaps_are_refused(tmp_path, other):
    paths = [
        written(tmp_path, counts([1], 600), "one.json"),
        written(tmp_path, counts([1], other), "two.json"),
    ]
    with pytest.raises(InputError, match=f"gap_seconds.*600, {other or 'none'}"):
        read_availability(paths, 4)


def test_only_counts_can_be_added(tmp_path):
    paths = [
        written(tmp_path, counts([1]), "one.json"),
        written(tmp_path, {"available": [[1]]}, "two.json"),
    ]
    with pytest.raises(InputError, match=r"two\.json lists machines"):
        read_availability(paths, 4)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is empty"),
        ("{", "not JSON"),
        (b"\xff\xfe", "is not a text file"),
        ("[" * 100_000, "not JSON"),
        ([[1, 2]], '"available" or "data"'),
        ({}, '"available" or "data"'),
        ({"available": 3}, '"available" or "data"'),
        ({"data": {"1": 2}}, '"available" or "data"'),
        ({"available": []}, "empty"),
        ({"available": [[1], 2]}, "entry 1 .* 2, expected a list"),
        ({"available": [[1], [1, 4]]}, "entry 1 .* machine 4, expected 1 to 3"),
        ({"available": [[0]]}, "entry 0 .* machine 0, expected 1 to 3"),
        ({"available": [[-1]]}, "machine -1"),
        ({"available": [[1.0]]}, r"machine 1\.0"),
        ({"available": [[True]]}, "machine True"),
        ({"available": [["1"]]}, "machine '1'"),
        ({"available": [[[1]]]}, r"machine \[1\]"),
        ({"available": [[None]]}, "machine None"),
        ({"available": [[3], [2, 2]]}, r"entry 1 .* twice: \[2, 2\]"),
        (counts([]), "empty"),
        (counts([1, -1]), "entry 1 .* -1, expected a number"),
        (counts([1.5]), r"entry 0 .* 1\.5"),
        (counts([True]), "entry 0 .* True"),
        (counts(["2"]), "entry 0 .* '2'"),
        (counts([None]), "entry 0 .* None"),
        (counts([1], [600]), "gap_seconds"),
        (counts([1], 0), "gap_seconds is 0, expected a positive number"),
        ({"gap_seconds": -1, "available": [[1]]}, "gap_seconds is -1"),
        ("\n\n", "is empty"),
        ("a,b,c\n", "no rows"),
        ("1,1\n", "line 1 is '1,1', expected 3 columns"),
        ("1,1,1\n1,1,1,1\n", "line 2 is '1,1,1,1', expected 3 columns"),
        ("1,1,1\n1,2,1\n", "line 2 is '1,2,1', expected 3 columns of 0 or 1"),
        ("a,b,c\n1,1,1\n1,,1\n", "line 3 is '1,,1'"),
        ("a,b,c\nd,e,f\n", "line 2 is 'd,e,f'"),
        ("1;1;1\n0;1;0\n", "expected 3 columns"),
        ("1,1,1\n" + "1" * 200_000, ""),
        (b"1,1,\xff\n", "is not a text file"),
    ],
)
def test_files_of_no_known_format_are_refused_by_name(tmp_path, content, says):
    path = written(tmp_path, content, "who")
    with pytest.raises(InputError, match=f"who.*{says}"):
        read_availability([path], 3)


def test_a_missing_file_and_a_directory(tmp_path):
    with pytest.raises(InputError, match=r"absent\.json does not exist"):
        read_availability([tmp_path / "absent.json"], 3)
    with pytest.raises(InputError, match="cannot be read"):
        read_availability([tmp_path], 3)


def test_a_list_without_entries():
    with pytest.raises(InputError, match="has no entries"):
        ListedAvailability([])


# --- how many there will be ---------------------------------------------------------------


@pytest.mark.parametrize("repeat", [False, True])
@pytest.mark.parametrize("data", [[3], [0, 3, 1], [3, 2, 1, 0], [1, 0, 2, 0, 1]])
def test_the_most_machines_from_a_tick_on(data, repeat):
    availability = from_counts(data, 5, repeat)
    for tick in range(2 * len(data) + 1):
        later = [len(availability.at(t)) for t in range(tick, tick + 2 * len(data))]
        assert availability.max_available(tick) == max(later)


# --- the random model ---------------------------------------------------------------------


def test_a_seed_gives_the_same_sets_in_any_order():
    first, second = (RandomAvailability(20, 0.5, seed=7) for _ in range(2))
    forward = ticks(first, 50)
    assert [second.at(tick) for tick in reversed(range(50))] == forward[::-1]
    assert ticks(RandomAvailability(20, 0.5, seed=8), 50) != forward


@pytest.mark.parametrize("probability", [0.01, 0.3, 0.9])
def test_each_machine_is_available_about_as_often_as_its_probability(probability):
    number, machines = 4000, 8
    model = RandomAvailability(machines, probability, seed=1)
    up = np.zeros((number, machines))
    for tick in range(number):
        up[tick, np.array(model.at(tick), dtype=int) - 1] = 1
    deviation = np.sqrt(probability * (1 - probability) / number)
    assert np.abs(up.mean(axis=0) - probability).max() < 5 * deviation
    together = (up[:, 0] * up[:, 1]).mean()  # independently, and so are the ticks
    assert abs(together - probability**2) < 5 * np.sqrt(probability**2 / number)
    following = (up[1:, 0] * up[:-1, 0]).mean()
    assert abs(following - probability**2) < 5 * np.sqrt(probability**2 / number)


def test_probability_one_is_everyone():
    assert ticks(RandomAvailability(3, 1.0), 5) == [(1, 2, 3)] * 5


@pytest.mark.parametrize("probability", [0, -0.1, 1.0001, float("nan"), float("inf")])
def test_a_probability_out_of_range(probability):
    with pytest.raises(
        InputError, match=f"probability {probability}: expected a number above 0 and at most 1"
    ):
        RandomAvailability(3, probability)


def test_machines_are_ascending_plain_numbers():
    for available in ticks(RandomAvailability(9, 0.5), 30):
        assert list(available) == sorted(available)
        assert json.dumps(available)


def test_what_a_program_may_say_of_who_is_available(tmp_path):
    path = written(tmp_path, {"available": SETS})
    for given, expected in (
        (None, [(1, 2, 3)] * 3),
        (path, [(1, 2, 3), (1, 3), ()]),
        (lambda tick: {3, 1 + tick}, [(1, 3), (2, 3), (3,)]),
        ({3, 1}, [(1, 3)] * 3),
        (np.array([3, 2]), [(2, 3)] * 3),
        ([{2, 1}, (3, 2)], [(1, 2), (2, 3), (2, 3)]),
        (["1-2", "2-3"], [(1, 2), (2, 3), (2, 3)]),
        (ListedAvailability([(2,)]), [(2,)] * 3),
    ):
        assert ticks(as_availability(given, 3), 3) == expected


@pytest.mark.parametrize("given", [4, {4}, {"one"}, [{1}, {4}], [{1}, 2], "no such file"])
def test_anything_else_is_refused(given):
    with pytest.raises(InputError, match=r"availability|does not exist"):
        as_availability(given, 3)


# --- a command that is asked --------------------------------------------------------------


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("1 2 5", (1, 2, 5)),
        ("5,1, 2\n", (1, 2, 5)),
        ("1\n2\n\n5\n", (1, 2, 5)),
        (" [5, 1, 2]\n", (1, 2, 5)),
        ("2 2", (2,)),
        ("1-3 5", (1, 2, 3, 5)),
        ("5,1-2,2-3", (1, 2, 3, 5)),
        ("", ()),
        ("\n", ()),
        ("[]", ()),
    ],
)
def test_what_a_command_may_print(tmp_path, printed, expected):
    path = tmp_path / "up to date.txt"
    path.write_text(printed)
    assert from_command(f"cat '{path}'", 6).at(0) == expected


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("echo one", "printed 'one', expected machine numbers"),
        ("echo 3-1", "printed '3-1', expected machine numbers"),
        ("echo 1-99999999999", "expected machine numbers"),
        ("echo 1.5", "printed '1.5', expected machine numbers"),
        ("echo [1,true]", "expected machine numbers"),
        ("echo [1", "expected machine numbers"),
        ("echo [[1]]", "expected machine numbers"),
        ("echo {}", "expected machine numbers"),
        ("echo 1 7", r"printed '1 7': it has machine 7, expected numbers from 1\.\.6"),
        ("echo 0", r"has machine 0, expected numbers from 1\.\.6"),
        ("echo -1", "expected machine numbers"),
        ("yes 1", "printed more than 1048576 bytes: expected machine numbers"),
        ("false", "failed with exit code 1 and printed nothing"),
        ("sh -c 'echo 1; echo no luck >&2; exit 3'", "code 3 and printed 'no luck'"),
        ("sh -c 'kill $$'", "failed with exit code -15"),
        ("head -c 10000 /dev/zero", r"\.\.\.', expected machine numbers"),
        ("no-such-program 1", "cannot be started: .*No such file"),
        ("/", "cannot be started: .*Permission denied"),
        ("sh -c 'sleep 30 & sleep 30'", "has not ended after 0.3 seconds"),
    ],
)
def test_a_command_that_gives_no_answer_is_named_with_its_output(command, says):
    availability = from_command(command, 6, limit=0.3 if "sleep" in command else 10)
    with pytest.raises(InputError, match=says) as refused:
        availability.at(3)
    assert f"command {command!r} for tick 3 " in str(refused.value)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("command", ["", " ", "echo 'one"])
def test_a_command_without_words(command):
    with pytest.raises(InputError, match=f"command {command!r}.*(expected|cannot be split)"):
        from_command(command, 6)


def test_a_command_gets_the_tick_and_starts_no_shell():
    message = from_command("printenv CEC_TICK", 6, every=0)
    assert [message.at(tick) for tick in (1, 2, 3)] == [(1,), (2,), (3,)]
    with pytest.raises(InputError, match=r"printed '\$CEC_TICK'"):
        from_command("echo $CEC_TICK", 6).at(1)


def test_an_answer_holds_for_its_seconds_whatever_the_tick(tmp_path):
    path = tmp_path / "asked"
    command = f"sh -c 'echo >> \"{path}\"; echo $CEC_TICK'"
    held = from_command(command, 6, every=3600).restrict_to([1, 2, 3])
    assert [held.at(tick) for tick in (2, 3, 4, 2)] == [(2,)] * 4
    assert path.read_text() == "\n"
    again = from_command(command, 6, every=1e-9).restrict_to([1, 2, 3])
    assert [again.at(tick) for tick in (2, 3, 4)] == [(2,), (3,), ()]
    assert path.read_text() == "\n" * 4


def test_machines_that_take_no_part_are_never_available():
    availability = from_command("echo 1 2 3 4", 4).restrict_to([2, 3])
    assert availability.at(0) == (2, 3)
    assert availability.max_available(0) == 2
