"""The progress of a run on a terminal, and other output above it."""

import os
import re
import sys
import warnings
from contextlib import suppress
from datetime import timedelta

import pytest

from cec_mpi.errors import InputError
from cec_mpi.report.live.console import render_lines
from cec_mpi.report.live.display import show
from cec_mpi.report.live.progress import RunView, machine_states, show_progress
from cec_mpi.report.live.run_state import RunState
from cec_mpi.runtime.records.recorder import Recorder
from cec_mpi.runtime.records.step import Waiting
from cec_mpi.text.terminal import print_stderr, warn
from helpers.steps import BEGIN, header, record
from helpers.waiting import wait_until

LOST = {"lost": 4, "reason": "its connection ended\x1b[2J"}


def state_after(steps, **fields):
    state = RunState(header(**fields))
    for step in steps:
        state.add(step)
    return state


def await_change(terminal, before=""):
    """Wait until the terminal shows something else; return its text."""
    wait_until(lambda: terminal.settled_text() != before)
    return terminal.text


def draw_on(terminal, state):
    """Return what a terminal shows of a run."""
    with show(RunView(state), "auto"):
        return await_change(terminal)


class CountingView:
    """A view whose lines change each time."""

    def __init__(self):
        self.number = 0

    def line(self):
        return "live"

    def lines(self, width, height):
        self.number += 1
        return ["live", f"number {self.number}"]


def test_a_terminal_shows_the_state_of_a_run(open_terminal):
    terminal = open_terminal()
    steps = [
        record(n, absent_since={"lost": {4: 8}} if n > 7 else {}, events=[LOST] if n == 7 else [])
        for n in range(21)
    ]
    lines = draw_on(terminal, state_after(steps, planned_steps=41)).splitlines()
    assert re.fullmatch(r"matvec  step 21 of 41  \S+ +2\.0 steps/s, 0:10 left", lines[0])
    assert lines[1] == "machines   5 of 6 available"
    assert lines[2] == "makespan   600 ms"
    assert lines[3] == r"last event step 7: machine 4 was lost: its connection ended\x1b[2J"
    unplanned = state_after([record(n) for n in range(5)], planned_steps=None)
    assert draw_on(open_terminal(), unplanned).splitlines()[0] == "matvec  step 5  2.0 steps/s"


@pytest.mark.parametrize(
    ("columns", "lines", "machines"), [(40, 10, 6), (20, 5, 500), (8, 2, 500), (200, 50, 500)]
)
def test_output_fits_terminals_of_any_size(open_terminal, columns, lines, machines):
    steps = [record(n, machines, preempted=[4], events=[LOST]) for n in range(5)]
    state = state_after(steps, machines=machines, planned_steps=10)
    terminal = open_terminal(columns, lines)
    first = draw_on(terminal, state)
    assert first.splitlines()[0].startswith("step 5"[: columns - 1]) or columns == 200
    assert len(first.splitlines()) < lines


def test_a_machine_that_returned_is_not_shown_as_lost():
    state = state_after(
        [record(0, events=[{"lost": 4}]), record(1, events=[{"joined": 4, "rank": 7}])]
    )
    assert "lost" not in machine_states(state).values()


def test_an_absent_machine_is_shown_with_its_reason():
    absent_since = {"late": {2: 1}, "not joined": {3: 0}, "excluded": {4: 1}}
    state = state_after([record(0), record(1, absent_since=absent_since, unanswered=[5])])
    states = ["late", "not joined", "excluded", "late"]
    assert [machine_states(state)[n] for n in (2, 3, 4, 5)] == states
    state.add(record(2, preempted=[2]))
    assert machine_states(state)[2] == "preempted"


def test_the_rate_counts_recent_steps():
    times = [(BEGIN + timedelta(seconds=n / 10)).isoformat() for n in range(200)]
    state = state_after([record(n, time=time) for n, time in enumerate(times)], planned_steps=1000)
    assert state.rate == pytest.approx(10)
    assert state.seconds_left == pytest.approx(80)
    state.set_seconds_since_step(0.05)
    assert state.seconds_left == pytest.approx(79.95)


def test_progress_shows_a_wait_until_the_next_step():
    view = RunView(state_after([record(1)]))
    view.update(Waiting(time="", missing=2, available=(1,), absence_reasons={2: "lost"}))
    assert view.line() == "waiting for 2 more machines, 0:00: 1 available"
    view.update(record(2))
    assert view.line().startswith("step 3")


def test_terminals_without_unicode_or_colours_get_neither(open_terminal, monkeypatch):
    terminal = open_terminal(encoding="ascii")
    monkeypatch.setenv("NO_COLOR", "1")
    draw_on(terminal, state_after([record(n, preempted=[2]) for n in range(3)], planned_steps=9))
    assert b"machines   5 of 6 available" in re.sub(rb"\x1b\[[\d;]*m", b"", terminal.raw)
    assert terminal.raw.isascii()
    assert not re.search(rb"\x1b\[[\d;]*3[0-7]m", terminal.raw)


def test_lines_are_redrawn_in_place_and_erased_at_the_end(open_terminal):
    terminal = open_terminal()
    print("before")
    view = CountingView()
    with show(view, "auto"):
        first = await_change(terminal, "before")
        second = await_change(terminal, first)
        assert [text.splitlines()[:2] for text in (first, second)] == 2 * [["before", "live"]]
        assert len(second.splitlines()) == 3
    print("after")
    terminal.await_text("after")
    assert terminal.lines == ["before", "after"]
    terminal.await_clean_end()


def test_other_output_is_kept_above_the_display(open_terminal):
    terminal = open_terminal()
    text = "a warning that is longer than a line of this terminal: " + 60 * "x"
    with warnings.catch_warnings(action="always"), show(CountingView(), "auto"):
        warnings.showwarning = lambda message, *_, **__: warn(message)
        before = ""
        for write_output in (
            lambda: print("a print"),
            lambda: print_stderr("cec-mpi: a remark"),
            lambda: warnings.warn(text, stacklevel=1),
            lambda: sys.stderr.write("an [bold]error[/bold] :smile:\n"),
            lambda: sys.stdout.writelines(["one\n", "two\n"]),
        ):
            before = await_change(terminal, before)
            write_output()
    print("end")
    terminal.await_text("end")
    warning = f"cec-mpi: warning: {text}"
    expected = ["a print", "cec-mpi: a remark", warning[:80], warning[80:]]
    assert terminal.lines == [*expected, "an [bold]error[/bold] :smile:", "one", "two", "end"]


def test_an_error_restores_the_terminal(open_terminal):
    terminal = open_terminal()
    streams = sys.stdout, sys.stderr
    with suppress(KeyboardInterrupt), show(CountingView(), "auto"):
        await_change(terminal)
        raise KeyboardInterrupt
    assert (sys.stdout, sys.stderr) == streams
    print_stderr("cec-mpi: error: why")
    terminal.await_text("why")
    assert terminal.lines == ["cec-mpi: error: why"]
    terminal.await_clean_end()


def test_a_run_survives_the_loss_of_its_terminal(open_terminal):
    terminal, view = open_terminal(), CountingView()
    with show(view, "auto"):
        await_change(terminal)
        os.close(terminal.tty)
        terminal.tty = -1
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, sys.stderr.fileno())  # later writes fail
        os.close(full)
        number = view.number
        wait_until(lambda: view.number >= number + 2)
        print("nobody reads this")
    print_stderr("nor this")


def test_the_time_of_a_long_step_is_updated(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("cec_mpi.report.live.progress.time.monotonic", lambda: now[0])
    view = RunView(state_after([record(0)]))
    for seconds, clock in ((1, None), (3, "0:03"), (65, "1:05")):
        now[0] = 100.0 + seconds
        text = render_lines(view.lines(80, 24), 80, "utf-8", with_styles=False)
        assert re.findall(r"next step +(\S+)", text) == [clock] * (clock is not None)


def test_an_unknown_display_is_refused():
    with (
        pytest.raises(InputError, match="choice 'loud': expected auto, plain, off"),
        show_progress(Recorder(), "loud"),
    ):
        pass


def test_progress_in_a_file_is_one_line():
    steps = [record(n, preempted=[4]) for n in range(21)]
    assert RunView(state_after(steps, planned_steps=41)).line() == (
        "step 21 of 41: 5 of 6 machines, 600.00 ms (predicted 500.00), 2.0 steps/s, 0:10 left"
    )
