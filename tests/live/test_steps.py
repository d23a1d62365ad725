"""What a terminal shows of a run, and that nothing else that is printed is lost."""

import os
import re
import sys
import time
import warnings
from contextlib import suppress
from datetime import timedelta
from itertools import count

import pytest

from cec_mpi.live.screen import Screen
from cec_mpi.live.seen import Seen
from cec_mpi.live.steps import RunView, progress
from cec_mpi.live.strip import strip
from cec_mpi.live.ways import Terminal as Shown
from cec_mpi.records import StepRecord
from cec_mpi.terminal import _State, tell, warn
from helpers.steps import BEGIN, header, step

LOST = {"lost": 4, "reason": "its connection ended\x1b[2J"}


def record(number, **changes):
    fields = step(number, **changes)
    del fields["kind"]
    return StepRecord(**fields)


def seen(steps, **about):
    found = Seen(header(**about))
    for each in steps:
        found.take(each)
    return found


def show(terminal, found):
    """What a screen of this size shows of a run."""
    with Screen(Shown(None, True)) as screen:
        screen.draw(RunView(found).lines(*Shown(None, True).size, screen.is_plain))
        return terminal.settled_text()


def test_a_terminal_shows_step_rate_time_left_machines_makespan_and_the_last_event(on_terminal):
    terminal = on_terminal()
    steps = [step(n, preempted=[4], events=[LOST] if n == 7 else []) for n in range(21)]
    lines = show(terminal, seen(steps, planned_steps=41)).splitlines()
    assert re.fullmatch(r"matvec  step 21 of 41  \S+ +2\.0 steps/s, 0:10 left", lines[0])
    assert re.fullmatch(r"machines   ..▄x▇█  5 of 6 available", lines[1])
    assert lines[2] == "makespan   600 ms, 25.0 % above the optimum"
    assert lines[3] == r"last event step 7: machine 4 was lost: its connection ended\x1b[2J"


def test_where_nobody_knows_how_many_steps_there_are(on_terminal):
    text = show(on_terminal(), seen([step(n) for n in range(5)], planned_steps=None))
    assert text.splitlines()[0] == "matvec  step 5  2.0 steps/s"
    assert "left" not in text


@pytest.mark.parametrize(("columns", "lines"), [(40, 10), (20, 5), (8, 2), (200, 50)])
@pytest.mark.parametrize("machines", [6, 500])
def test_a_screen_of_any_size_is_not_overrun(on_terminal, columns, lines, machines):
    steps = [step(n, machines, preempted=[4], events=[LOST]) for n in range(5)]
    found = seen(steps, machines=machines, planned_steps=10)
    terminal = on_terminal(columns, lines)
    first = show(terminal, found)
    assert first.splitlines()[0].startswith("step 5"[: columns - 1]) or columns == 200
    assert len(first.splitlines()) < lines


def test_many_machines_are_shown_by_the_worst_of_each_group():
    found = seen([step(0, 500, preempted=[250], events=[{"lost": 9}, {"late": 499}])], machines=500)
    marks, each = strip(found, 100, is_plain=True)
    letters = "".join(letter for letter, _ in marks)
    assert (len(marks), each) == (100, 5)
    assert (letters[1], letters[49], letters[99]) == ("x", ".", "!")
    assert set(letters) - set("x.!") <= set("-=#")


def test_a_lost_machine_that_is_back_is_not_shown_as_lost():
    found = seen([step(0, events=[{"lost": 4}]), step(1, events=[{"joined": 4, "rank": 7}])])
    assert "x" not in {letter for letter, _ in strip(found, 6, is_plain=True)[0]}


def test_a_machine_that_has_not_answered_yet_is_not_said_to_be_preempted():
    """Machine 2 was late, the answer of machine 3 did not count; machine 5 is not up."""
    asked = [[0, 100 * n] for n in range(1, 7)]
    first = step(0, preempted=[5], events=[{"late": 2}], assignment=asked)
    first["rows"][2] = 0
    found = seen([first, *(step(n, preempted=[2, 3, 5], assignment=asked) for n in (1, 2))])
    letters = "".join(letter for letter, _ in strip(found, 6, is_plain=True)[0])
    assert (letters[1], letters[2], letters[4]) == ("?", "?", ".")
    found.take(step(3, assignment=asked))
    found.take(step(4, preempted=[2], assignment=asked))
    assert strip(found, 6, is_plain=True)[0][1][0] == "."


def test_letters_and_colours_that_a_terminal_does_not_have(on_terminal, monkeypatch):
    terminal = on_terminal(encoding="ascii")
    monkeypatch.setenv("NO_COLOR", "1")
    show(terminal, seen([step(n, preempted=[2]) for n in range(3)], planned_steps=9))
    assert re.search(rb"machines   +\S*-\.", re.sub(rb"\x1b\[[\d;]*m", b"", terminal.raw))
    assert terminal.raw.isascii()
    assert not re.search(rb"\x1b\[[\d;]*3[0-7]m", terminal.raw)


def test_a_screen_is_drawn_anew_in_its_place_and_goes_in_the_end(on_terminal):
    terminal = on_terminal()
    print("before")
    with Screen(Shown(None, True)) as screen:
        for number in range(3):
            screen.draw(["first", f"second {number}"])
        terminal.await_text("second 2")
        assert terminal.lines == ["before", "first", "second 2"]
        terminal.resize(40, 24)
        screen.draw(["first", "x" * 60])
        terminal.await_text("xxx…")
    print("after")
    terminal.await_text("after")
    assert terminal.lines == ["before", "after"]
    assert terminal.is_clean


def test_whatever_else_is_printed_is_neither_lost_nor_shown_twice(on_terminal):
    terminal = on_terminal()
    with warnings.catch_warnings(action="always"), Screen(Shown(None, True)) as screen:
        warnings.showwarning = lambda message, *_, **__: warn(message)
        number = count()
        for say in (
            lambda: print("a print"),
            lambda: tell("cec-mpi: a remark"),
            lambda: warnings.warn("a warning", stacklevel=1),
            lambda: sys.stderr.write("an error\n"),
            lambda: sys.stdout.writelines(["one\n", "two\n"]),
        ):
            screen.draw(["live", f"number {next(number)}"])
            say()
            screen.draw(["live", f"number {next(number)}"])
    print("end")
    terminal.await_text("end")
    said = ["a print", "cec-mpi: a remark", "cec-mpi: warning: a warning", "an error"]
    assert terminal.lines == [*said, "one", "two", "end"]


def test_what_another_process_tells_is_drawn_over_no_more(on_terminal, monkeypatch):
    terminal = on_terminal(80, 40)
    with Screen(Shown(None, True)) as screen:
        screen.draw(["live", "number 0"])
        other = os.dup(sys.stderr.fileno())
        with os.fdopen(other, "w") as stream, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stream)
            patch.setattr("cec_mpi.terminal._state", _State(leaves_room=True))
            tell("cec-mpi: rank 3 failed\nTraceback\nValueError: why")
        screen.draw(["live", *(f"number {n}" for n in range(1, 9))])
        screen.draw(["live", "number 9"])
        terminal.await_text("number 9")
        lines = [line for line in terminal.lines if line]
        told = ["cec-mpi: rank 3 failed", "Traceback", "ValueError: why"]
        assert lines == ["live", "number 0", *told, "live", "number 9"]


def test_a_line_that_something_else_has_begun_is_left_alone(on_terminal):
    terminal = on_terminal()
    with Screen(Shown(None, True)) as screen:
        screen.draw(["live"])
        print("a bar of one's own: 50 %", end="", flush=True)
        screen.draw(["live"])
        terminal.await_text("50 %")
        assert terminal.lines == ["a bar of one's own: 50 %"]
        print("\ra bar of one's own: done")
        screen.draw(["live"])
        terminal.await_text("live")
    print("end")
    terminal.await_text("end")
    assert terminal.lines == ["a bar of one's own: done", "end"]


def test_a_forked_process_prints_as_without_a_screen(on_terminal):
    terminal = on_terminal()
    with Screen(Shown(None, True)) as screen:
        screen.draw(["live"])
        child = os.fork()
        if child == 0:
            print("of a child", flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        terminal.await_text("of a child")
        assert terminal.lines == ["live", "of a child"]


def test_an_error_ends_with_a_terminal_as_it_was(on_terminal):
    terminal = on_terminal()
    streams = sys.stdout, sys.stderr
    screen = Screen(Shown(None, True))
    with suppress(KeyboardInterrupt), screen:
        screen.draw(["live"])
        raise KeyboardInterrupt
    assert (sys.stdout, sys.stderr) == streams
    tell("cec-mpi: error: why")
    terminal.await_text("why")
    assert terminal.lines == ["cec-mpi: error: why"]
    assert terminal.is_clean


def test_a_terminal_that_is_gone_ends_nothing(on_terminal):
    terminal = on_terminal()
    with Screen(Shown(None, True)) as screen:
        screen.draw(["live"])
        os.close(terminal.end)
        terminal.end = -1
        for name in ("stdout", "stderr"):  # who holds the other end gets an error
            getattr(sys, name).flush()
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, sys.stderr.fileno())
        os.close(full)
        screen.draw(["live"])
        screen.draw(["live"])
    tell("nobody reads this")


def test_each_step_is_taken_and_shown_when_it_is_time(on_terminal, monkeypatch):
    terminal, now = on_terminal(), [100.0]
    monkeypatch.setattr("cec_mpi.live.shown.time.monotonic", lambda: now[0])
    with progress(header(planned_steps=10**6), "auto") as watch:
        for number in range(9):
            watch(record(number))
        assert terminal.settled_text() == ""
        now[0] += 60
        watch(record(9))
        assert "step 10 of" in terminal.settled_text()
        watch(record(10))
        assert "step 10 of" in terminal.settled_text()
        now[0] += 60
        watch(record(11))
        assert "step 12 of" in terminal.settled_text()
    print("end")
    terminal.await_text("end")
    assert terminal.text == "end"


def test_time_goes_on_while_a_step_is_made(on_terminal):
    terminal = on_terminal()

    def waited(count):
        """For how long a step was waited for, as it is shown one after the other."""
        shown, by = [], time.monotonic() + 60
        while len(shown) < count:
            assert time.monotonic() < by
            found = re.search(r"next step +(\d+:\d\d)", terminal.text)
            if found and found[1] not in shown[-1:]:
                shown.append(found[1])
            time.sleep(0.01)
        return shown

    with progress(header(planned_steps=9), "auto") as watch:
        waited(2)
        watch(record(0))
        terminal.await_text("step 1 of 9")
        *_, earlier, later = waited(3)  # the first may be of the step before
    assert earlier < later


def test_a_pause_is_soon_forgotten():
    def at(seconds):
        return (BEGIN + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")

    quick = [step(n, time=at(n / 10)) for n in range(100)]
    found = seen(quick, planned_steps=1000)
    assert found.rate == pytest.approx(10)
    for n in range(100, 160):  # a minute later
        found.take(step(n, time=at(60 + n / 10)))
    assert found.rate == pytest.approx(5.9, rel=0.01)  # 60 steps in ten seconds
    for n in range(160, 205):
        found.take(step(n, time=at(60 + n / 10)))
    assert found.rate == pytest.approx(10, rel=0.01)
    assert found.seconds_left == pytest.approx(79.5, rel=0.01)
    found.wait(0.05)
    assert found.seconds_left == pytest.approx(79.45, rel=0.01)


def test_a_rate_of_slow_steps_is_of_five():
    times = [(BEGIN + timedelta(minutes=n * n)).isoformat() for n in range(9)]
    found = seen([step(n, time=each) for n, each in enumerate(times)])
    assert found.rate == pytest.approx(5 / (60 * (64 - 9)))


def test_nothing_is_shown_where_it_is_not_wanted(on_terminal):
    terminal = on_terminal()
    with progress(header(), "off") as watch:
        assert watch is None
    assert terminal.raw == b""


def test_a_line_of_a_file_says_the_same():
    steps = [step(n, preempted=[4]) for n in range(21)]
    assert RunView(seen(steps, planned_steps=41)).line() == (
        "step 21 of 41: 5 of 6 machines, 600.00 ms (predicted 500.00), 2.0 steps/s, 0:10 left"
    )
