"""Traces with times: events of nodes, jobs of Slurm, and the included example."""

import runpy

import pytest

from cec_mpi.availability import read_availability
from cec_mpi.errors import InputError
from cec_mpi.runtime.availability.nodelist import expand_nodelist
from helpers import ROOT

MINUTE = 60_000  # of a trace in milliseconds
JOBS = "JobID|Start|End|State|NodeList\n"


def read_trace(directory, text, machines, name="trace.txt", **options):
    path = directory / name
    path.write_text(text, "utf-8")
    return read_availability([path], machines, **options)


def make_trace(*lines):
    """Return a trace from lines such as '3 + n1', with times in minutes."""
    rows = []
    for line in lines:
        minute, sign, node = line.split()
        event = {"+": "add", "-": "remove"}[sign]
        rows.append(f"{float(minute) * MINUTE:.0f},{event},{node}")
    return "\n".join(rows) + "\n"


def list_sets(availability):
    return [availability.at(tick) for tick in range(len(availability))]


# --- nodes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("machines", "lines", "expected"),
    [
        # numbers in the order of arrival, then of names
        (3, ["0 + n10", "0 + n2", "1 + a", "2 - n2"], [(1, 2), (1, 2, 3), (2, 3)]),
        # a node that returns gets its number
        (3, ["0 + a", "0 + b", "1 - a", "2 + c", "3 + a"], [(1, 2), (2,), (2, 3), (1, 2, 3)]),
        # the number that has been free longest is assigned first
        (
            3,
            ["0 + a", "0 + b", "0 + c", "1 - b", "2 - a", "5 + d"],
            [(1, 2, 3), (1, 3), (3,), (3,), (3,), (2, 3)],
        ),
        # a node is available in a tick if it is up for all of its minute
        (
            4,
            ["0 + a", "0.5 + b", "2.5 - a", "2.6 + c", "3.9 - c", "4 + d"],
            [(1,), (1, 2), (2,), (2,), (2, 3)],
        ),
        # c waits until number 1 has been free for a minute; d gets 1, and e gets 2
        (
            2,
            ["0 + a", "0 + b", "1 + c", "2 - a", "5 + d", "6 - b", "6 - c", "9 + e"],
            [(1, 2), (1, 2), (2,), *[(1, 2)] * 3, (), *[(1,)] * 2, (1, 2)],
        ),
    ],
)
def test_nodes_get_machine_numbers(tmp_path, machines, lines, expected):
    assert list_sets(read_trace(tmp_path, make_trace(*lines), machines)) == expected


@pytest.mark.parametrize(
    ("header", "unit", "begin"),
    [
        ("seconds,event,node\n", 1, 0),
        ("Seconds since boot, what, who\n", 1, 0),
        ("", 1000, 29916666),  # a Unix time
        ("timestamp,event,node\n", 1000, 29916666),
        ("time (ms),event,node\n", 1000, 0),
        ("milliseconds since the epoch,event,node\n", 1000, 29916666),
    ],
)
def test_units_of_times_are_detected(tmp_path, header, unit, begin):
    times = [60 * unit * (begin + minute) for minute in range(3)]
    text = f"{header}{times[0]},add,a\n {times[1]} , add , b\n{times[2]},remove,a\n"
    for name in ("trace.csv", "trace.json"):
        availability = read_trace(tmp_path, text, 2, name)
        assert (list_sets(availability), availability.gap_seconds) == ([(1,), (1, 2), (2,)], 60)
    repeated = read_trace(tmp_path, text, 2, repeat=True)
    assert [repeated.at(tick) for tick in range(4)] == [(1,), (1, 2), (2,), (1,)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time (s),event,node\n0,add,a", r"line 1 .* in milliseconds, or a header seconds"),
        *(
            (f"{unit},event,node\n0,add,a", "in milliseconds, or a header seconds")
            for unit in ("t_sec", "unixtime", "time_µs", "minutes")
        ),
        (
            "1795000000,add,a",
            "line 1 .* seems to be in seconds since 1970, expected .* milliseconds",
        ),
        ("1795000000000000,add,a", "line 1 .* seems to be in micro- or nanoseconds since 1970"),
        ("0,add,a\n1,add", "line 2 is '1,add', expected a time, add or remove, and a node"),
        ("0,add,a\n\n1,drop,b", "line 3 is '1,drop,b', expected"),
        ("0,add,a\n1e400,add,b", "line 2"),
        ("5,add,a\n1,add,b", "line 2 .* earlier than the previous line"),
        ("0,add,a\n1,add,a", "line 2 .* but a is already up"),
        ("0,add,a\n1,remove,b", "line 2 .* but b is not up"),
        ("0,add,a\n1e30,add,b", "covers more than"),
    ],
)
def test_invalid_events_are_rejected(tmp_path, text, message):
    with pytest.raises(InputError, match=rf"trace\.txt.*{message}"):
        read_trace(tmp_path, text, 4)


# --- jobs of Slurm ------------------------------------------------------------------------


def test_nodes_are_up_while_jobs_run_on_them(tmp_path):
    text = (
        "JobID|State|Start|End|NodeList|Elapsed\n"
        "1|PREEMPTED|2026-01-05T23:58:00|2026-01-06T00:01:00|n[1-2]|00:03:00\n"
        "1.batch|CANCELLED|2026-01-05T23:58:00|2026-01-06T00:01:00|n1|00:03:00\n"
        "2|RUNNING|2026-01-06T00:02:00|Unknown|n2,n9|00:01:00\n"
        "3|COMPLETED|2026-01-06T00:02:00|2026-01-06T00:04:00|n1|00:02:00\n"
        "4|PENDING|Unknown|Unknown|None assigned|00:00:00\n"
        "5|CANCELLED by 7|None|2026-01-06T00:01:00|None assigned|00:00:00\n"
    )
    sets = list_sets(read_trace(tmp_path, text, 3))
    assert sets == [*[(1, 2)] * 3, (), *[(1, 2, 3)] * 2, (2, 3)]


def test_jobs_that_overlap_on_a_node_are_merged(tmp_path):
    rows = ["1|2026-01-05T10:00:00|2026-01-05T10:02:30|X|n1", "2|2026-01-05T10:02:10"]
    text = JOBS + rows[0] + "\n" + rows[1] + "|2026-01-05T10:05:00|X|n1\n"
    assert list_sets(read_trace(tmp_path, text, 1)) == [(1,)] * 5


def test_offsets_from_utc_are_applied(tmp_path):
    """The second job begins as the first one ends; the third spans the end of summer time."""
    rows = [
        "1|2026-10-25T00:00:00Z|2026-10-25T00:02:00Z|X|n1",
        "2|2026-10-25T02:02:00+02:00|2026-10-24T20:05:00-0400|X|n2",
        "3|2026-10-25T02:59:00+0200|2026-10-25T02:01:00+0100|X|n3",
    ]
    available = list_sets(read_trace(tmp_path, JOBS + "\n".join(rows) + "\n", 3))
    assert available == [*[(1,)] * 2, *[(2,)] * 3, *[()] * 54, *[(3,)] * 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("JobID|Start|State\n1|2|3\n", "line 1 has no column End, expected the output of sacct -P"),
        (JOBS, "has no job that has started"),
        (JOBS + "1|2026-01-05T10:00:00|X\n", "line 2 has 3 columns, expected 5"),
        (JOBS + "1|yesterday|Unknown|RUNNING|n1\n", "line 2: Start is 'yesterday', expected"),
        (
            JOBS + "1|2026-01-05T10:00:00|2026-01-05T09:00:00|X|n1\n",
            "line 2: End .* is before Start",
        ),
        (JOBS + "1|2026-01-05T10:00:00|Unknown|X|n[1-\n", "line 2: nodes"),
        (
            JOBS + "1|2026-10-25T02:50:00|2026-10-25T02:10:00|X|n1\n",
            "line 2: End .* is before Start .*TZ=UTC sacct",
        ),
        (
            JOBS + "1|2026-01-05T10:00:00Z|2026-01-05T11:00:00|X|n1\n",
            "line 2 .* earlier times have an offset from UTC: expected offsets for all",
        ),
        (
            JOBS + "1|2026-01-05T10:00:00|Unknown|X|n1\n2|2026-01-05T10:00:00+0100|Unknown|X|n2\n",
            "line 3 .* earlier times have no offset from UTC",
        ),
    ],
)
def test_invalid_jobs_are_rejected(tmp_path, text, message):
    with pytest.raises(InputError, match=rf"trace\.txt.*{message}"):
        read_trace(tmp_path, text, 4)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("a-1.example.org,b", ["a-1.example.org", "b"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[09-11]", ["n09", "n10", "n11"]),
        ("n[1,3-4]x,m[2]", ["n1x", "n3x", "n4x", "m2"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
    ],
)
def test_a_node_list_of_slurm_is_expanded(text, names):
    assert expand_nodelist(text) == names


@pytest.mark.parametrize(
    "text", ["n[1-2", "n[2-1]", "n[1-]", "n[1-999999999]", "n[1-9999]m[1-9999]", "a,,b", "$(x)"]
)
def test_an_invalid_node_list_is_rejected(text):
    with pytest.raises(InputError):
        expand_nodelist(text)


# --- the example --------------------------------------------------------------------------


def test_the_example_is_the_output_of_its_script():
    script = runpy.run_path(str(ROOT / "scripts" / "example_trace"))
    assert script["TRACE"].read_text().splitlines() == script["lines"](1)
