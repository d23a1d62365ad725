"""Traces with times: nodes by name, jobs of Slurm, logs of jobs, and the one that is installed."""

import runpy

import pytest

from cec_mpi.availability import read_availability
from cec_mpi.errors import InputError
from helpers import ROOT

MINUTE = 60_000  # of a trace in milliseconds
JOBS = "JobID|Start|End|State|NodeList\n"


def read(directory, text, machines, name="trace.txt", **how):
    path = directory / name
    path.write_text(text, "utf-8")
    return read_availability([path], machines, **how)


def events(*lines, header=""):
    """A trace of nodes: lines like '3 + n1', in minutes."""
    written = []
    for line in lines:
        minute, sign, node = line.split()
        word = {"+": "add", "-": "remove"}[sign]
        written.append(f"{float(minute) * MINUTE:.0f},{word},{node}")
    return "\n".join([*([header] if header else []), *written]) + "\n"


def ticks(availability):
    return [availability.at(tick) for tick in range(len(availability))]


# --- nodes that come and go ---------------------------------------------------------------


def test_nodes_get_numbers_in_the_order_of_arrival_and_of_names(tmp_path):
    text = events("0 + n10", "0 + n2", "1 + a", "2 - n2")
    assert ticks(read(tmp_path, text, 3)) == [(1, 2), (1, 2, 3), (2, 3)]


def test_a_node_that_returns_has_its_number_again(tmp_path):
    text = events("0 + a", "0 + b", "1 - a", "2 + c", "3 + a")
    assert ticks(read(tmp_path, text, 3)) == [(1, 2), (2,), (2, 3), (1, 2, 3)]


def test_nodes_beyond_n_wait_for_a_number_and_take_it_a_minute_after_it_is_free(tmp_path):
    text = events("0 + a", "0 + b", "1 + c", "2 - a", "5 + d", "6 - b", "6 - c", "9 + e")
    assert ticks(read(tmp_path, text, 2)) == [
        (1, 2),
        (1, 2),
        (2,),  # c waits until number 1 has been free for a minute
        *[(1, 2)] * 3,
        (),
        *[(1,)] * 2,  # b was in front; 1 and 2 are free since the same minute: d takes the lower
        (1, 2),
    ]


def test_a_number_that_is_free_for_longest_goes_first(tmp_path):
    text = events("0 + a", "0 + b", "0 + c", "1 - b", "2 - a", "5 + d")
    assert ticks(read(tmp_path, text, 3)) == [(1, 2, 3), (1, 3), (3,), (3,), (3,), (2, 3)]


def test_a_node_is_there_in_a_minute_only_if_it_is_so_from_beginning_to_end(tmp_path):
    text = events("0 + a", "0.5 + b", "2.5 - a", "2.6 + c", "3.9 - c", "4 + d")
    assert ticks(read(tmp_path, text, 4)) == [(1,), (1, 2), (2,), (2,), (2, 3)]


@pytest.mark.parametrize(
    "header", ["seconds,event,node", "Seconds, what, who", "seconds since boot,event,node"]
)
def test_times_in_seconds(tmp_path, header):
    text = f"{header}\n0,add,a\n 60 , add , b\n120,remove,a\n"
    assert ticks(read(tmp_path, text, 2)) == [(1,), (1, 2), (2,)]


@pytest.mark.parametrize("header", ["", "timestamp,event,node", "time (ms),event,node"])
def test_times_are_milliseconds_otherwise_and_begin_anywhere(tmp_path, header):
    text = events("29916666 + a", "29916667 + b", header=header)  # since 1970
    found = read(tmp_path, text, 2)
    assert ticks(found) == [(1,), (1, 2)]
    assert found.gap_seconds == 60


@pytest.mark.parametrize("header", ["ms", "epoch_ms", "Time/ms", "milliseconds since the epoch"])
def test_a_header_that_names_milliseconds_is_believed(tmp_path, header):
    text = f"{header},event,node\n1795000000,add,a\n1795060000,add,b\n"
    assert ticks(read(tmp_path, text, 2)) == [(1,), (1, 2)]


@pytest.mark.parametrize("name", ["who.csv", "who.json", "who"])
def test_the_content_tells_the_format_and_not_the_name(tmp_path, name):
    assert ticks(read(tmp_path, events("0 + a"), 2, name)) == [(1,)]
    assert ticks(read(tmp_path, '{"available": [[2]]}', 2, name)) == [(2,)]
    assert ticks(read(tmp_path, "0,1\n", 2, name)) == [(2,)]


def test_a_trace_can_be_repeated(tmp_path):
    again = read(tmp_path, events("0 + a", "1 + b"), 2, repeat=True)
    assert [again.at(tick) for tick in range(4)] == [(1,), (1, 2), (1,), (1, 2)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("time (s),event,node\n0,add,a", r"line 1 .* in milliseconds, or a header seconds"),
        ("t_sec,event,node\n0,add,a", "in milliseconds, or a header seconds"),
        *(
            (f"{unit},event,node\n0,add,a", "in milliseconds, or a header seconds")
            for unit in ("unixtime", "epoch", "usec", "timestamp_us", "ns", "time_µs", "time [s]")
        ),
        (
            "1795000000,add,a",
            "line 1 .* seems to be in seconds since 1970, expected .* milliseconds",
        ),
        ("time,event,node\n1795000000,add,a", "line 2 .* seems to be in seconds since 1970"),
        ("1795000000000000,add,a", "line 1 .* seems to be in micro- or nanoseconds since 1970"),
        ("minutes,event,node\n0,add,a", "in milliseconds, or a header seconds"),
        ("time in seconds,event,node\n0,add,a", "in milliseconds, or a header seconds"),
        ("0,add,a\n1,add", "line 2 is '1,add', expected a time, add or remove, and a node"),
        ("0,add,a\nx,add,b", "line 2 is 'x,add,b', expected"),
        ("0,add,a\n\n1,drop,b", "line 3 is '1,drop,b', expected"),
        ("0,add,a\n1,add,", "line 2 is '1,add,', expected"),
        ("0,add,a\nnan,add,b", "line 2"),
        ("0,add,a\n1e400,add,b", "line 2"),
        ("5,add,a\n1,add,b", "line 2 .* earlier than the line before"),
        ("0,add,a\n1,add,a", "line 2 .* but a is already up"),
        ("0,add,a\n1,remove,b", "line 2 .* but b is not up"),
        ("0,add,a\n1e30,add,b", "covers more than"),
    ],
)
def test_events_that_make_no_sense(tmp_path, text, says):
    with pytest.raises(InputError, match=rf"trace\.txt.*{says}"):
        read(tmp_path, text, 4)


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
    assert ticks(read(tmp_path, text, 3)) == [*[(1, 2)] * 3, (), *[(1, 2, 3)] * 2, (2, 3)]


def test_the_job_that_started_last_and_still_runs_is_there_for_ever(tmp_path):
    text = (
        JOBS + "1|2026-01-05T08:00:00|Unknown|RUNNING|a\n2|2026-01-05T10:00:00|Unknown|RUNNING|b\n"
    )
    found = read(tmp_path, text, 2)
    assert ticks(found) == [*[(1,)] * 120, (1, 2)]
    assert found.at(10_000) == (1, 2)


def test_two_jobs_on_a_node_are_one_stay(tmp_path):
    rows = ["1|2026-01-05T10:00:00|2026-01-05T10:02:30|X|n1", "2|2026-01-05T10:02:10"]
    text = JOBS + rows[0] + "\n" + rows[1] + "|2026-01-05T10:05:00|X|n1\n"
    assert ticks(read(tmp_path, text, 1)) == [(1,)] * 5


def test_offsets_from_utc_count(tmp_path):
    """The second job begins as the first one ends; the third lasts over the end of summer time."""
    rows = [
        "1|2026-10-25T00:00:00Z|2026-10-25T00:02:00Z|X|n1",
        "2|2026-10-25T02:02:00+02:00|2026-10-24T20:05:00-0400|X|n2",
        "3|2026-10-25T02:59:00+0200|2026-10-25T02:01:00+0100|X|n3",
    ]
    found = ticks(read(tmp_path, JOBS + "\n".join(rows) + "\n", 3))
    assert found == [*[(1,)] * 2, *[(2,)] * 3, *[()] * 54, *[(3,)] * 2]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("JobID|Start|State\n1|2|3\n", "line 1 has no column End, expected the output of sacct -P"),
        (JOBS, "has no job that has started"),
        (JOBS + "1|Unknown|Unknown|PENDING|None assigned\n", "has no job that has started"),
        (JOBS + "1|2026-01-05T10:00:00|X\n", "line 2 has 3 columns, expected 5"),
        (JOBS + "1|yesterday|Unknown|RUNNING|n1\n", "line 2: Start is 'yesterday', expected"),
        (
            JOBS + "1|2026-01-05T10:00:00|2026-01-05T09:00:00|X|n1\n",
            "line 2: End .* is before Start",
        ),
        (JOBS + "1|2026-01-05T10:00:00|Unknown|X|n[1-\n", "line 2: nodes"),
        (JOBS + "1|1795000000|Unknown|X|n1\n", "line 2: Start is '1795000000', expected"),
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
def test_jobs_that_cannot_be_read(tmp_path, text, says):
    with pytest.raises(InputError, match=rf"trace\.txt.*{says}"):
        read(tmp_path, text, 4)


# --- what was recorded with them ----------------------------------------------------------


def test_the_seconds_between_ticks_are_kept(tmp_path):
    sets = read(tmp_path, '{"gap_seconds": 600, "available": [[1]]}', 2)
    counts = read(tmp_path, '{"metadata": {"gap_seconds": 195}, "data": [1, 2]}', 2)
    assert (sets.gap_seconds, counts.gap_seconds, counts.restrict_to([1]).gap_seconds) == (
        600,
        195,
        195,
    )
    assert read(tmp_path, "1,1\n", 2).gap_seconds is None


def test_the_example_is_a_day_of_16_machines():
    example = read_availability(["example"], 16)
    numbers = [len(up) for up in ticks(example)]
    assert 23 * 60 < len(example) <= 24 * 60
    assert max(numbers) == 16
    assert min(numbers) < 8
    assert sum(numbers) / len(numbers) > 12


def test_the_example_is_what_its_script_writes():
    script = runpy.run_path(str(ROOT / "scripts" / "example_trace"))
    assert script["TRACE"].read_text().splitlines() == script["lines"](1)
