"""Available machines of each tick: from files, values, commands and a random model."""

import json

import numpy as np
import pytest

from cec_mpi.errors import InputError
from cec_mpi.runtime.availability.command import from_command
from cec_mpi.runtime.availability.models import (
    ListedAvailability,
    RandomAvailability,
    all_available,
    from_counts,
)
from cec_mpi.runtime.availability.reading import as_availability, read_availability

SETS = [(1, 2, 3), (1, 3), (), (2,)]


def write(directory, content, name="available.json"):
    """Write text, bytes or JSON to a file, and return its path."""
    path = directory / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def counts(data, gap=600):
    return {"metadata": {"gap_seconds": gap}, "data": data}


def list_sets(availability, number):
    return [availability.at(tick) for tick in range(number)]


# --- files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected", "gap"),
    [
        ({"gap_seconds": 600, "available": [[1, 2, 3], [3, 1], [], [2]]}, SETS, 600),
        ({"available": [[1]]}, [(1,)] * 4, None),  # the last entry remains
        (counts([2, 3, 0, 1, 9], 195), [(1, 2), (1, 2, 3), (), (1,), (1, 2, 3)], 195),
        ({"data": [1, 2]}, [(1,), (1, 2)], None),
        ("1,1,1\n1,0,1\n0,0,0\n0,1,0\n", SETS, None),
        (b" m1, m2 ,m3\r\n 1, 1, 1\r\n\r\n1 ,0,1\r\n0,0,0\r\n0,1,0", SETS, None),
        ('"one","two","three"\n"1","1","1"\n1,0,1\n0,0,0\n0,1,0\n', SETS, None),
    ],
)
def test_files_of_all_formats_are_read(tmp_path, content, expected, gap):
    availability = read_availability(str(write(tmp_path, content)), 3)
    assert list_sets(availability, len(expected)) == expected
    assert availability.restrict_to([1, 3]).at(0) == tuple(n for n in expected[0] if n != 2)
    assert availability.gap_seconds == availability.restrict_to([1]).gap_seconds == gap


def test_counts_of_several_files_are_added(tmp_path):
    data = [1, 2, 0, 5], [1], [0, 1, 0]
    paths = [write(tmp_path, counts(entries), f"{n}.json") for n, entries in enumerate(data)]
    sums = [2, 4, 1, 6]
    assert list(map(len, list_sets(read_availability(paths, 6), 6))) == [*sums, 6, 6]
    assert list(map(len, list_sets(read_availability(paths, 6, repeat=True), 8))) == sums * 2


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (counts([1], 1200), "gap_seconds.*600, 1200"),
        (counts([1], None), "gap_seconds.*600, none"),
        ({"available": [[1]]}, r"two\.json lists machines"),
    ],
)
def test_files_that_cannot_be_added_are_rejected(tmp_path, second, message):
    paths = [write(tmp_path, counts([1]), "one.json"), write(tmp_path, second, "two.json")]
    with pytest.raises(InputError, match=message):
        read_availability(paths, 4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("{", "not JSON"),
        (b"\xff\xfe", "is not a text file"),
        ("[" * 100_000, "not JSON"),
        ({"available": 3}, '"available" or "data"'),
        ({"available": []}, "empty"),
        ({"available": [[1], 2]}, "entry 1 .* 2, expected a list"),
        ({"available": [[1], [1, 4]]}, "entry 1 .* machine 4, expected 1 to 3"),
        ({"available": [[0]]}, "entry 0 .* machine 0, expected 1 to 3"),
        ({"available": [[True]]}, "machine True"),
        ({"available": [[3], [2, 2]]}, r"entry 1 .* twice: \[2, 2\]"),
        (counts([]), "empty"),
        (counts([1, -1]), "entry 1 .* -1, expected a number"),
        (counts([1.5]), r"entry 0 .* 1\.5"),
        (counts([1], 0), "gap_seconds is 0, expected a positive number"),
        ({"gap_seconds": -1, "available": [[1]]}, "gap_seconds is -1"),
        ("a,b,c\n", "no rows"),
        ("1,1,1\n1,1,1,1\n", "line 2 is '1,1,1,1', expected 3 columns"),
        ("1,1,1\n" + "1" * 200_000, ""),
        (None, "does not exist"),
    ],
)
def test_invalid_files_are_rejected_by_name(tmp_path, content, message):
    path = tmp_path / "file" if content is None else write(tmp_path, content, "file")
    with pytest.raises(InputError, match=f"file.*{message}"):
        read_availability([path], 3)


def test_a_directory_and_an_empty_list_are_rejected(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_availability([tmp_path], 3)
    with pytest.raises(InputError, match="has no entries"):
        ListedAvailability([])


@pytest.mark.parametrize("repeat", [False, True])
@pytest.mark.parametrize("data", [[3], [0, 3, 1], [3, 2, 1, 0], [1, 0, 2, 0, 1]])
def test_max_available_is_the_maximum_over_later_ticks(data, repeat):
    availability = from_counts(data, 5, repeat)
    for tick in range(2 * len(data) + 1):
        later_counts = [len(availability.at(t)) for t in range(tick, tick + 2 * len(data))]
        assert availability.max_available(tick) == max(later_counts)


# --- the random model ---------------------------------------------------------------------


def test_a_seed_determines_the_sets_in_any_order():
    first, second = (RandomAvailability(20, 0.5, seed=7) for _ in range(2))
    sets = list_sets(first, 50)
    assert [second.at(tick) for tick in reversed(range(50))] == sets[::-1]
    assert list_sets(RandomAvailability(20, 0.5, seed=8), 50) != sets
    assert all(list(machines) == sorted(machines) and json.dumps(machines) for machines in sets)
    restricted = first.restrict_to([2, 3])
    assert list_sets(restricted, 50) == [tuple(n for n in s if n in (2, 3)) for s in sets]
    assert (first.max_available(0), restricted.max_available(0)) == (20, 2)


@pytest.mark.parametrize("probability", [0.1, 1.0])
def test_machines_are_available_independently_with_the_probability(probability):
    model = RandomAvailability(8, probability, seed=1)
    available = np.array([np.isin(range(1, 9), model.at(tick)) for tick in range(4000)], float)
    first, second = available[:, 0], available[:, 1]
    assert np.abs(available.mean(axis=0) - probability).max() < 0.03
    for product in (first * second, first[1:] * first[:-1]):
        assert abs(product.mean() - probability**2) < 0.01


@pytest.mark.parametrize("probability", [0, -0.1, 1.0001, float("nan")])
def test_a_probability_out_of_range_is_rejected(probability):
    message = f"probability {probability}: expected a number above 0 and at most 1"
    with pytest.raises(InputError, match=message):
        RandomAvailability(3, probability)


# --- values -------------------------------------------------------------------------------


def test_availability_may_be_a_path_a_function_a_set_or_a_sequence(tmp_path):
    path = write(tmp_path, {"available": SETS})
    for value, expected in (
        (None, [(1, 2, 3)] * 3),
        (path, SETS[:3]),
        (lambda tick: {3, 1 + tick}, [(1, 3), (2, 3), (3,)]),
        ({3, 1}, [(1, 3)] * 3),
        (np.array([3, 2]), [(2, 3)] * 3),
        ([{2, 1}, (3, 2)], [(1, 2), (2, 3), (2, 3)]),
        (["1-2", "2-3"], [(1, 2), (2, 3), (2, 3)]),
        (all_available(2), [(1, 2)] * 3),
    ):
        assert list_sets(as_availability(value, 3), 3) == expected


@pytest.mark.parametrize("value", [4, {4}, {"one"}, [{1}, {4}], [{1}, 2], "no such file"])
def test_other_values_are_rejected(value):
    with pytest.raises(InputError, match=r"availability|does not exist"):
        as_availability(value, 3)


# --- commands -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("5,1, 2\n\n", (1, 2, 5)),
        (" [5, 1, 2]\n", (1, 2, 5)),
        ("1-3 2 5", (1, 2, 3, 5)),
        ("", ()),
        ("[]", ()),
    ],
)
def test_outputs_of_commands_are_parsed(tmp_path, output, expected):
    path = write(tmp_path, output, "up to date.txt")
    assert from_command(f"cat '{path}'", 6).at(0) == expected


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("echo one", "printed 'one', expected machine numbers"),
        ("echo 3-1", "printed '3-1', expected machine numbers"),
        ("echo 1-99999999999", "expected machine numbers"),
        ("echo [1,true]", "expected machine numbers"),
        ("echo 1 7", r"printed '1 7', which has machine 7, expected numbers from 1\.\.6"),
        ("echo $CEC_TICK", r"printed '\$CEC_TICK'"),  # no shell is started
        ("yes 1", "printed more than 1048576 bytes: expected machine numbers"),
        ("false", "failed with exit code 1 and printed nothing"),
        ("sh -c 'echo 1; echo no luck >&2; exit 3'", "code 3 and printed 'no luck'"),
        ("head -c 10000 /dev/zero", r"\.\.\.', expected machine numbers"),
        ("no-such-program 1", "cannot be started: .*No such file"),
        ("sh -c 'sleep 30 & sleep 30'", "has not ended after 0.3 seconds"),
    ],
)
def test_a_failed_command_is_quoted_with_its_output(command, message):
    availability = from_command(command, 6, limit=0.3 if "sleep" in command else 10)
    with pytest.raises(InputError, match=message) as error:
        availability.at(3)
    assert f"command {command!r} for tick 3 " in str(error.value)
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("command", [" ", "echo 'one"])
def test_a_command_without_words_is_rejected(command):
    with pytest.raises(InputError, match=f"command {command!r}.*(expected|cannot be split)"):
        from_command(command, 6)


def test_an_output_is_reused_until_it_expires(tmp_path):
    path = tmp_path / "calls"
    command = f"sh -c 'echo >> \"{path}\"; echo $CEC_TICK'"
    valid = from_command(command, 6, every=3600).restrict_to([1, 2, 3])
    assert [valid.at(tick) for tick in (2, 3, 4, 2)] == [(2,)] * 4
    assert (valid.max_available(0), path.read_text()) == (3, "\n")
    expired = from_command(command, 6, every=0).restrict_to([1, 2, 3])
    assert [expired.at(tick) for tick in (2, 3, 4)] == [(2,), (3,), ()]
    assert path.read_text() == "\n" * 4
