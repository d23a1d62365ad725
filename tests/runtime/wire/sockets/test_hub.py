"""The master's end: who becomes which machine, and what becomes of machines that die or err."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

import cec_mpi
from cec_mpi.core.elastic.events import (
    MachineExcluded,
    MachineGivenUp,
    MachineJoined,
    MachineLeft,
    MachineLost,
    Request,
)
from cec_mpi.errors import DismissedError, InputError, MachineError
from cec_mpi.runtime.machine.machine import Report
from cec_mpi.runtime.options.machines import MachineOptions
from cec_mpi.runtime.processes.packing import pack, unpack
from cec_mpi.runtime.processes.places import detect_place
from cec_mpi.runtime.product import Product
from cec_mpi.runtime.roster import State
from cec_mpi.runtime.wire.jobs import JobsAnswered
from cec_mpi.runtime.wire.orders import (
    Admission,
    Opening,
    OpenReport,
    OrderKind,
    pack_report,
    parse_order,
)
from cec_mpi.runtime.wire.sockets.connection_file import read_connection_file
from cec_mpi.runtime.wire.sockets.hub import SocketHub
from cec_mpi.runtime.wire.sockets.listener import Listener
from cec_mpi.runtime.wire.sockets.machine_endpoint import Connection, MasterLostError
from cec_mpi.runtime.wire.sockets.messages import (
    ADMISSION,
    ANSWER,
    HELLO,
    LEAVE,
    LEAVE_ACK,
    MEASURE,
    ORDER,
    PROGRESS,
    STATUS,
    Hello,
    package_fingerprint,
    unpack_order,
)
from cec_mpi.runtime.wire.sockets.zeromq import MAX_FRAME_BYTES
from helpers.waiting import LIMIT
from helpers.waiting import wait_until as until

ROWS, COLUMNS = 6, 4  # of a shard
X = np.arange(2.0 * ROWS * COLUMNS).reshape(2 * ROWS, COLUMNS)


class Process:
    """A process that talks to the master, word for word."""

    def __init__(self, file, **hello):
        self.connection = Connection(file)
        place = replace(detect_place(), **hello.pop("place", {}))
        said_first = Hello(hello.pop("package", package_fingerprint()), os.getpid(), place, **hello)
        self.say(HELLO, pack(said_first))

    def say(self, kind, head=b"", *frames):
        self.connection.send(kind, head, frames)

    def hear(self, kind):
        """The next message, which is of this kind."""
        heard = self.connection.receive(LIMIT)
        assert heard is not None
        assert heard[0] == kind
        return heard[1:]

    def order(self, kind):
        """The next order, which is of this kind."""
        head, *frames = self.hear(ORDER)
        order, _, _ = unpack_order(np.frombuffer(head, np.int64))
        assert order.kind == kind
        return order, b"".join(frames)

    def opens(self):
        """Open a store; the machine that it is in it."""
        order, content = self.order(OrderKind.OPEN)
        self.say(STATUS, pack(OpenReport(shard="file")))
        return parse_order(order, content).machine

    def admission(self):
        """What the master makes of the opening."""
        return unpack(b"".join(self.hear(ADMISSION)[1:]), Admission)

    def answer(self, machine, numbers=ROWS):
        """Answer the job that was asked: so many numbers."""
        report = np.array(pack_report(Report(0.5), machine), dtype=np.float64)
        self.say(ANSWER, report.tobytes() + np.ones(numbers).tobytes())

    def close(self):
        self.connection.close()


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    path = tmp_path_factory.mktemp("hub") / "store"
    return cec_mpi.encode(X, path, 3, 2, scaling="none")


@pytest.fixture
def meanwhile():
    """Do something of the master's while a test says what processes do."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


@pytest.fixture
def make():
    """A hub at 127.0.0.1."""
    made = []

    def make(path=None, **options):
        listener = Listener(["127.0.0.1"], None)
        made.append((SocketHub(listener, path, **options), listener.file))
        return made[-1][0]

    make.made = made
    yield make
    for hub, _ in made:  # without those that a test has stopped
        hub.stop(None)


@pytest.fixture
def come(make):
    """Processes that come to the last hub; they end before it does."""
    processes = []

    def come(**hello):
        processes.append(Process(make.made[-1][1], **hello))
        return processes[-1]

    yield come
    for process in processes:
        with suppress(Exception):
            process.close()


@pytest.fixture
def gathered(make, come, manifest, meanwhile, tmp_path):
    """A hub with so many machines that have opened a store, and spares: and its end."""

    def gathered(machines=3, spares=0, **options):
        hub = make(**options)
        processes = [come(rank=n + 1) for n in range(machines + spares)]
        places = hub.gather(lambda: machines + spares, 2, LIMIT)
        numbers, _ = hub.assign_machines((1, 2, 3), places)
        later = tuple(n for n in (1, 2, 3) if n not in numbers)
        opening = opening_of(manifest, numbers, expected=later)
        opened = meanwhile(hub.open, opening)
        assert [process.opens() for process in processes[:machines]] == [*range(1, machines + 1)]
        opened.result(LIMIT)
        end = hub.admit(None)
        assert all(process.admission() == Admission() for process in processes[:machines])
        return hub, end, processes

    return gathered


def opening_of(manifest, numbers, **more):
    options = MachineOptions(threads=1)
    served = "store", manifest, numbers, options
    return Opening(*served, (1,) * (len(numbers) + 1), **more)


def ask(end, *machines, step=0):
    """The jobs of these machines, or the one job."""
    w = np.ones((1, COLUMNS))
    asked = {Request(machine, ((0, ROWS),)): w for machine in machines}
    jobs = [job for jobs in end.send_jobs(step, Product(), asked) for job in jobs]
    return jobs if len(machines) > 1 else jobs[0]


def numbers_of(job):
    """The numbers of an answer; none if there was no answer."""
    return [number for piece in job.pieces for number in piece.tolist()]


def happened(hub, *kinds):
    """The events until one of each kind has come."""
    events = []

    def look():
        events.extend(hub.events())
        return {type(event) for event in events} >= set(kinds)

    until(look)
    return events


def happens_nothing(hub):
    """For a while: enough for what would happen at once."""
    until_then = time.monotonic() + 0.3
    while time.monotonic() < until_then:
        assert list(hub.events()) == []
        time.sleep(0.01)


# --- who comes ----------------------------------------------------------------------------


def test_who_comes_has_a_rank_and_the_machine_in_its_place(make, come):
    hub = make()
    for rank in (3, 1, 4, 0, 2, 0):
        come(rank=rank, machines=() if rank else (6,))
    places = hub.gather(lambda: 6, 2, 3.0)  # those that no launcher has started are waited for
    assert len(places) == 7
    assert {place.ranks for place in places} == {7}
    numbers, again = hub.assign_machines((1, 3, 4, 6, 7), places)
    assert again is places
    # Those of the launcher first; one that came by itself has what it asks for, or what is left.
    assert numbers == (1, 3, 4, 6, 7, 0)
    assert hub.roster.available == set()  # they have not opened anything


def test_a_process_that_never_comes_is_waited_for_until_the_time_limit(make, come, capsys):
    hub = make()
    come(rank=1)
    come(rank=3)
    places = hub.gather(lambda: 3, 3, 0.5)
    assert len(places) <= 3
    assert "machines have not joined yet, but can still join" in capsys.readouterr().out
    until(lambda: list(hub.events()) or len(hub.roster.hosts) == 2)


def test_who_has_ended_before_it_came_is_not_waited_for(make, come):
    hub = make()
    come(rank=2)
    left = iter([3, 3, 2, 1] + [1] * 10**6)
    assert len(hub.gather(left.__next__, 3, LIMIT)) == 2


def test_who_came_and_has_ended_is_no_machine(make, come):
    hub = make()
    come(rank=1).close()
    come(rank=2)
    come(rank=3)
    hub.gather(lambda: 2, 2, LIMIT)
    until(lambda: list(hub.events()) or len(hub.roster.hosts) == 2)
    assert len(hub.roster.spares()) == 2


def test_a_signal_ends_the_wait(make):
    def look():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make().gather(lambda: 3, 2, LIMIT, look)


def test_another_version_is_refused_with_the_reason(make, come, capsys):
    hub = make()
    version, digest, where = package_fingerprint()
    stranger = come(package=("0.0.1", digest, where))
    until(lambda: list(hub.events()) or capsys.readouterr().out)
    with pytest.raises(InputError, match=rf"0\.0\.1.*{version}|{version}.*0\.0\.1"):
        stranger.connection.receive(LIMIT)
    assert hub.roster.hosts == []


@pytest.mark.parametrize("first", [b"", b"{}", b"[" * 10**5, b"\xff"])
def test_a_process_without_a_hello_is_refused_with_the_reason(make, capsys, first):
    hub = make()
    stranger = Connection(make.made[-1][1])
    stranger.send(HELLO, first)
    until(lambda: list(hub.events()) or capsys.readouterr().out)
    with pytest.raises(InputError, match="its hello is not valid; install the same cec_mpi"):
        stranger.receive(LIMIT)
    stranger.close()
    assert hub.roster.hosts == []


def test_unknown_messages_are_dropped_and_harm_nobody(gathered, caplog):
    hub, end, (first, *_) = gathered()
    first.say(b"?")
    first.say(ANSWER, b"that nobody has asked for")
    first.say(STATUS, b"[1]")
    first.say(STATUS, b"[" * 10**5)
    first.say(b"\xff" * 20, b"", b"")
    until(lambda: list(hub.events()) or caplog.text.count("received an invalid message") == 5)
    job = ask(end, 1)
    first.order(OrderKind.MULTIPLY)
    first.answer(1)
    assert happened(hub, JobsAnswered)[-1].jobs == (job,)
    assert numbers_of(job) == [1.0] * ROWS


def test_who_floods_the_master_is_excluded_and_delays_nobody(gathered):
    hub, end, (first, second, *_, spare) = gathered(spares=1)
    job = ask(end, 2)
    second.order(OrderKind.MULTIPLY)
    for number in range(3000):
        first.say((STATUS, ANSWER, b"?")[number % 3], b'"x"')
    second.answer(2)
    found = []
    until(lambda: found.extend(hub.events()) or any(isinstance(e, JobsAnswered) for e in found))
    assert numbers_of(job) == [1.0] * ROWS
    until(lambda: found.extend(hub.events()) or any(isinstance(e, MachineLost) for e in found))
    lost = next(event for event in found if isinstance(event, MachineLost))
    assert lost == MachineLost(1, "it sends too many unsolicited messages")
    assert spare.opens() == 1


def test_who_is_lost_again_and_again_waits_longer_each_time(gathered, come):
    hub, _, (first, *_) = gathered()
    pauses = []
    for _ in range(4):
        lost = time.monotonic()
        first.close()
        until(lambda: [list(hub.events()), 1 in hub.roster.vacant][1])
        first = come()
        until(lambda: [list(hub.events()), not hub.roster.vacant][1])
        pauses.append(time.monotonic() - lost)
        first.opens()
    for pause, least in zip(pauses, (0.0, 0.4, 0.9, 1.9), strict=True):
        assert pause > least


# --- who lies about itself ----------------------------------------------------------------


@pytest.mark.parametrize("cores", [0, 2**61])
def test_who_lies_about_its_computer_changes_nothing_for_others(cores, gathered, come):
    hub, _, _ = gathered(machines=1)
    lie = {"ranks": 0, "cores": cores, "own_cores": cores, "unbound_cores": cores, "node": 9}
    come(place=lie, machines=(2,))
    until(lambda: list(hub.events()) or hub.roster.vacant == [3])
    honest = come(machines=(3,))
    until(lambda: list(hub.events()) or not hub.roster.vacant)
    order, _ = honest.order(OrderKind.OPEN)
    assert order.step == 1  # threads


# --- the store -------------------------------------------------------------------------------


def test_machines_open_a_store_and_answer(gathered):
    hub, end, processes = gathered()
    assert hub.roster.available == {1, 2, 3}
    jobs = [ask(end, n) for n in (1, 2, 3)]
    assert hub.pending_jobs().keys() == {1, 2, 3}
    for n, process in enumerate(processes, start=1):
        process.order(OrderKind.MULTIPLY)
        process.answer(n)
    answered = []
    until(lambda: answered.extend(hub.events()) or len(answered) == 3)
    assert {event.jobs for event in answered} == {(job,) for job in jobs}
    # They say half a second, which is more than there was.
    assert all(0 < job.report_fields.seconds <= time.monotonic() - job.sent_at for job in jobs)
    assert hub.pending_jobs() == {}


def test_a_machine_that_dies_while_it_opens_is_replaced_by_a_spare(make, come, manifest, meanwhile):
    hub = make()
    processes = [come(rank=n) for n in (1, 2, 3, 4)]
    numbers, _ = hub.assign_machines((1, 2, 3), hub.gather(lambda: 4, 2, LIMIT))
    assert numbers == (1, 2, 3, 0)
    opened = meanwhile(hub.open, opening_of(manifest, numbers))
    processes[1].order(OrderKind.OPEN)
    processes[1].close()
    assert [processes[n].opens() for n in (0, 2)] == [1, 3]
    shown = opened.result(LIMIT)
    assert [each.shard for each in shown] == ["file", "", "file", ""]
    hub.admit(None)
    assert hub.roster.available == {1, 3}
    assert processes[3].opens() == 2
    (joined,) = [
        event for event in happened(hub, MachineJoined) if isinstance(event, MachineJoined)
    ]
    assert (joined.machine, joined.rank) == (2, 4)


@pytest.fixture
def impatient(monkeypatch):
    """Hosts that open a machine without progress are slow at once."""
    monkeypatch.setattr("cec_mpi.runtime.wire.sockets.hub.SLOW_OPEN_SECONDS", 0.5)


def test_who_never_opens_is_replaced_and_is_a_spare_if_it_opens_at_last(
    impatient, make, come, manifest, capsys
):
    hub = make()
    processes = [come(rank=n) for n in (1, 2, 3, 4)]
    numbers, _ = hub.assign_machines((1, 2, 3), hub.gather(lambda: 4, 2, LIMIT))
    hub.open(opening_of(manifest, numbers))  # returns, although none of them opens
    hub.admit(None)
    for process in processes[:3]:
        process.order(OrderKind.OPEN)
    spare, others = processes[3], {1, 2, 3}
    until(lambda: list(hub.events()) or hub.roster[4].machines)
    taken = spare.opens()
    happened(hub, MachineJoined)
    (slow,) = (process for process, n in zip(processes, (1, 2, 3), strict=False) if n == taken)
    assert hub.expected_machines() == others - {taken}  # nobody else can open them
    slow.say(STATUS, pack(OpenReport(shard="file")))
    until(lambda: list(hub.events()) or hub.roster[taken].opening)
    assert "already opened" in slow.admission().failure.text
    assert slow.opens() in others - {taken}  # it is faster now


def test_who_copies_its_shard_is_not_slow(impatient, gathered, come):
    hub, _, _ = gathered(machines=2)
    copying = come()
    until(lambda: list(hub.events()) or hub.roster.opening == {3})
    come()
    begin = time.monotonic()
    while time.monotonic() < begin + 1.5:
        copying.say(PROGRESS)
        assert list(hub.events()) == []
        time.sleep(0.1)
    assert hub.roster.opening == {3}
    assert list(hub.roster[3].machines) == [3]


def test_a_machine_that_cannot_open_is_replaced(make, come, manifest, meanwhile, capsys):
    hub = make()
    processes = [come(rank=n) for n in (1, 2, 3, 4)]
    numbers, _ = hub.assign_machines((1, 2, 3), hub.gather(lambda: 4, 2, LIMIT))
    opened = meanwhile(hub.open, opening_of(manifest, numbers))
    processes[2].order(OrderKind.OPEN)
    processes[2].say(STATUS, pack(OpenReport("machine 3 sees no shard", shard_missing=True)))
    assert [processes[n].opens() for n in (0, 1)] == [1, 2]
    assert opened.result(LIMIT)[2].problem == "machine 3 sees no shard"
    hub.admit(None)
    assert type(processes[2].admission().failure.to_exception()) is MachineError
    with pytest.raises(MachineError, match="excluded this machine: machine 3 sees no shard"):
        processes[2].connection.receive(LIMIT)
    assert "a machine cannot join: machine 3 sees no shard" in capsys.readouterr().out
    assert processes[3].opens() == 3


def test_machines_are_measured_at_once_without_one_that_dies(make, come, manifest, meanwhile):
    hub = make()
    first, second, third = processes = [come(rank=n) for n in (1, 2, 3)]
    numbers, _ = hub.assign_machines((1, 2, 3), hub.gather(lambda: 3, 2, LIMIT))
    options = MachineOptions(threads=1, measures_speed=True)
    opened = meanwhile(hub.open, replace(opening_of(manifest, numbers), options=options))
    for process in processes:
        process.order(OrderKind.OPEN)
    first.say(STATUS, pack(None))
    second.say(STATUS, pack(None))
    third.close()
    for process in (first, second):
        process.hear(MEASURE)
        process.say(STATUS, pack(OpenReport(shard="file", rate=7.0)))
    assert [each.rate for each in opened.result(LIMIT)] == [7.0, 7.0, 0.0]


def test_machines_get_the_reason_why_the_store_is_refused(make, come, manifest, meanwhile):
    hub = make()
    processes = [come(rank=n) for n in (1, 2, 3)]
    numbers, _ = hub.assign_machines((1, 2, 3), hub.gather(lambda: 3, 2, LIMIT))
    opened = meanwhile(hub.open, opening_of(manifest, numbers))
    for process in processes:
        process.opens()
    opened.result(LIMIT)
    hub.refuse(InputError("it is not the store"))
    for process in processes:
        assert process.admission().failure.text == "it is not the store"


def test_who_comes_later_is_a_machine_that_nobody_is(gathered, come):
    hub, end, _ = gathered(machines=2, waits=True)
    assert hub.roster.available == {1, 2}
    assert hub.expected_machines() == {3}
    late = come(rank=3)
    until(lambda: list(hub.events()) or not hub.roster.vacant)
    assert late.opens() == 3
    (joined,) = happened(hub, MachineJoined)
    assert (joined.machine, joined.host) == (3, detect_place().host)
    assert (hub.roster.available, hub.expected_machines()) == ({1, 2, 3}, set())
    ask(end, 3)
    assert late.admission() == Admission()
    late.order(OrderKind.MULTIPLY)


def test_a_run_that_does_not_wait_awaits_only_those_who_open(gathered, come):
    hub, _, _ = gathered(machines=2)
    assert hub.expected_machines() == set()
    late = come(rank=3)
    until(lambda: list(hub.events()) or hub.expected_machines() == {3})
    late.opens()
    happened(hub, MachineJoined)
    assert hub.expected_machines() == set()


# --- answers ------------------------------------------------------------------------------


@pytest.mark.parametrize("numbers", [-1, 0, 1, ROWS - 1, ROWS + 1, 10**5])
def test_an_answer_of_another_length_ends_a_machine(numbers, gathered):
    hub, end, (first, *_, spare) = gathered(spares=1)
    job = ask(end, 1)
    first.order(OrderKind.MULTIPLY)
    if numbers < 0:
        first.say(ANSWER, b"no whole report")
    else:
        first.answer(1, numbers)
    assert happened(hub, MachineLost) == [MachineLost(1, "its answer has the wrong length")]
    assert numbers_of(job) == []
    with pytest.raises(MachineError, match="its answer has the wrong length"):
        first.connection.receive(LIMIT)
    assert spare.opens() == 1


def test_an_answer_that_was_sent_before_the_end_counts(gathered):
    hub, end, (first, *_) = gathered()
    job = ask(end, 1)
    first.order(OrderKind.MULTIPLY)
    first.answer(1)
    first.close()
    time.sleep(0.3)  # so that the master finds both at once
    assert [type(event) for event in happened(hub, MachineLost)] == [JobsAnswered, MachineLost]
    assert numbers_of(job) == [1.0] * ROWS


def test_who_was_given_up_is_a_spare_when_another_is_its_machine(gathered):
    hub, end, (first, *_, spare) = gathered(spares=1)
    old = ask(end, 1)
    first.order(OrderKind.MULTIPLY)
    hub.mark_late(1)
    hub.give_up(1, "no answer")
    assert spare.opens() == 1
    assert happened(hub, MachineGivenUp, MachineJoined) == [
        MachineGivenUp(1, "no answer"),
        MachineJoined(1, 4, detect_place().host),
    ]
    new = ask(end, 1, step=1)
    first.answer(1)  # at last
    (answered,) = happened(hub, JobsAnswered)
    assert answered.jobs == (old,)
    assert numbers_of(new) == []
    assert [each.rank for each in hub.roster.spares()] == [1]
    assert hub.pending_jobs() == {1: new}


@pytest.mark.parametrize(
    ("change", "error"), [(MachineExcluded, DismissedError), (MachineLost, MachineError)]
)
def test_an_excluded_process_gets_the_reason(change, error, gathered):
    hub, _, (first, *_, spare) = gathered(spares=1)
    hub.exclude(1, "wrong in 3 steps", change)
    with pytest.raises(error, match="wrong in 3 steps") as raised:
        first.connection.receive(LIMIT)
    assert type(raised.value) is error
    assert happened(hub, change) == [change(1, "wrong in 3 steps")]
    assert spare.opens() == 1


# --- hosts of several machines ------------------------------------------------------------


def serves(process, hub):
    """The machine that a host opens next, and serves."""
    machine = process.opens()
    happened(hub, MachineJoined)
    assert process.admission() == Admission()
    return machine


@pytest.fixture
def host(gathered, come):
    """A hub with machine 1 in a process, and 2 and 3 on a host."""
    hub, end, (first,) = gathered(machines=1)
    second = come(count=3, memory=10**9)
    until(lambda: list(hub.events()) or hub.roster.opening)
    assert [serves(second, hub), serves(second, hub)] == [2, 3]
    return hub, end, first, second


def test_a_host_gets_w_once_and_answers_for_all_of_its_machines(host):
    hub, end, _, second = host
    jobs = ask(end, 2, 3)
    head, *frames = second.hear(ORDER)
    order, job, content = unpack_order(np.frombuffer(head, np.int64))
    assert (order.shard, [part.machine for part in job.parts]) == (2, [2, 3])
    assert (content.size, frames) == (8 * COLUMNS, [])
    reports = [pack_report(Report(0.5), machine) for machine in (2, 3)]
    second.say(ANSWER, np.array(reports).tobytes() + np.arange(2.0 * ROWS).tobytes())
    assert happened(hub, JobsAnswered) == [JobsAnswered(tuple(jobs))]
    assert list(map(numbers_of, jobs)) == [[*range(ROWS)], [*range(ROWS, 2 * ROWS)]]
    assert hub.roster.machines(State.IDLE) == {1, 2, 3}


def test_machines_of_a_host_can_have_jobs_of_their_own_which_are_answered_in_turn(host):
    hub, end, _, second = host
    first, other = ask(end, 3), ask(end, 2)
    second.order(OrderKind.MULTIPLY)
    second.order(OrderKind.MULTIPLY)
    second.answer(3)
    assert happened(hub, JobsAnswered) == [JobsAnswered((first,))]
    assert hub.pending_jobs() == {2: other}
    second.answer(2)
    assert happened(hub, JobsAnswered) == [JobsAnswered((other,))]


def test_all_machines_of_a_host_are_lost_with_it_and_a_spare_takes_them(host, come):
    hub, _, _, second = host
    second.close()
    lost = [event.machine for event in happened(hub, MachineLost)]
    assert lost == [2, 3]
    spare = come(count=2)
    until(lambda: list(hub.events()) or hub.roster.opening)
    assert [serves(spare, hub), serves(spare, hub)] == [2, 3]


def test_all_machines_of_a_host_leave_with_it(host):
    hub, _, _, second = host
    second.say(LEAVE)
    assert [event.machine for event in happened(hub, MachineLeft)] == [2, 3]
    second.hear(LEAVE_ACK)


def test_all_machines_of_a_silent_host_are_given_up_and_a_spare_takes_them(host, come):
    hub, end, _, second = host
    ask(end, 2)
    second.order(OrderKind.MULTIPLY)
    hub.give_up(2, "silent")
    assert happened(hub, MachineGivenUp) == [
        MachineGivenUp(2, "silent"),
        MachineGivenUp(3, "silent"),
    ]
    spare = come()
    until(lambda: list(hub.events()) or hub.roster.opening)
    taken = serves(spare, hub)
    order, _ = second.order(OrderKind.CLOSE)
    second.answer(2)
    (_, joined) = happened(hub, JobsAnswered, MachineJoined)
    assert taken == order.shard
    assert {taken, joined.machine} == {2, 3}
    assert hub.roster.machines(State.IDLE) == {1, 2, 3}


@pytest.mark.parametrize("waits", [False, True])
def test_only_a_run_that_waits_awaits_machines_of_a_silent_host(waits, gathered):
    hub, end, (first, *_) = gathered(waits=waits)
    ask(end, 1)
    first.order(OrderKind.MULTIPLY)
    hub.give_up(1, "silent")
    assert hub.expected_machines() == ({1} if waits else set())
    assert hub.pending_jobs() == {}
    first.answer(1)
    kinds = [type(event) for event in happened(hub, MachineJoined)]
    assert kinds == [MachineGivenUp, JobsAnswered, MachineJoined]
    assert hub.expected_machines() == set()


def test_a_host_that_comes_back_gets_the_machines_that_it_had(host, come):
    hub, _, _, second = host
    second.close()
    happened(hub, MachineLost)
    again = come(count=2, machines=(3, 2))
    until(lambda: list(hub.events()) or hub.roster.opening)
    assert {serves(again, hub), serves(again, hub)} == {2, 3}


def test_a_host_that_cannot_open_a_machine_keeps_its_others(gathered, come, capsys):
    hub, end, _ = gathered(machines=1)
    second = come(count=2)
    until(lambda: list(hub.events()) or hub.roster.opening)
    assert serves(second, hub) == 2
    second.order(OrderKind.OPEN)
    second.say(STATUS, pack(OpenReport("machine 3 sees no shard", shard_missing=True)))
    assert happened(hub, MachineLost) == [MachineLost(3, "machine 3 sees no shard")]
    assert second.admission().failure.text == "machine 3 sees no shard"
    assert "a machine cannot join: machine 3 sees no shard" in capsys.readouterr().out
    happens_nothing(hub)  # it is not asked again
    assert hub.roster.vacant == [3]
    ask(end, 2)
    second.order(OrderKind.MULTIPLY)


def test_a_machine_that_cannot_compute_leaves_its_host(host):
    hub, _, _, second = host
    hub.exclude(3, "its shard is damaged", MachineLost)
    order, _ = second.order(OrderKind.CLOSE)
    assert order.shard == 3
    assert happened(hub, MachineLost) == [MachineLost(3, "its shard is damaged")]
    assert hub.roster.available == {1, 2}


def test_wrong_answers_of_one_machine_exclude_its_host(host):
    hub, _, _, second = host
    hub.exclude(3, "wrong", MachineExcluded)
    assert happened(hub, MachineExcluded) == [
        MachineExcluded(2, "wrong"),
        MachineExcluded(3, "wrong"),
    ]
    with pytest.raises(DismissedError, match="wrong"):
        second.connection.receive(LIMIT)


def test_an_adopted_machine_goes_to_a_newcomer_once_that_has_opened_it(gathered, come):
    hub, end, (first, _, third) = gathered()
    third.close()
    happened(hub, MachineLost)
    hub.adopt(1, 3)
    assert serves(first, hub) == 3
    job = ask(end, 3)
    newcomer = come()
    until(lambda: list(hub.events()) or State.JOINING in hub.roster.hosts[-1].machines.values())
    assert newcomer.opens() == 3
    first.order(OrderKind.MULTIPLY)
    happens_nothing(hub)  # the first one has a job of this machine
    assert hub.expected_machines() == set()
    first.answer(3)
    answered, joined = happened(hub, JobsAnswered, MachineJoined)
    assert (answered.jobs, joined.machine, joined.rank) == ((job,), 3, 4)
    assert newcomer.admission() == Admission()
    order, _ = first.order(OrderKind.CLOSE)
    assert order.shard == 3


@pytest.mark.parametrize(
    ("hello", "options", "message"),
    [
        ({"count": 4}, {}, "--machines 4: expected 3 at most, because store has 3 machines"),
        (
            {"count": 2},
            {"single_option": "--check"},
            "--machines 2: expected 1 at most, because with --",
        ),
        ({"memory": 5, "is_limited": True}, {}, "--memory is 5 bytes: expected at least 320 bytes"),
        ({"memory": 9}, {}, "90 % of the free memory of .* is 9 bytes: expected at least"),
    ],
)
@pytest.mark.parametrize("comes", ["before", "later"])
def test_who_asks_for_too_much_is_refused_in_one_sentence(
    hello, options, message, comes, make, come, manifest, meanwhile, capsys
):
    hub = make(**options)
    hub.gather(lambda: 0, 0, LIMIT)
    if comes == "before":
        process = come(**hello)
        until(lambda: list(hub.events()) or hub.roster.hosts)
    hub.open(opening_of(manifest, (), expected=(1, 2, 3)))
    hub.admit(None)
    if comes == "later":
        process = come(**hello)
    found = until(lambda: list(hub.events()) or capsys.readouterr().out)
    assert "a host cannot join: " in found
    with pytest.raises(InputError, match=message):
        process.connection.receive(LIMIT)
    assert hub.roster.vacant == [1, 2, 3]


def test_a_host_takes_as_many_machines_as_fit_into_its_memory(gathered, come, manifest):
    hub, _, _ = gathered(machines=1)
    host = come(count=2, memory=2 * manifest.shard_bytes - 1)
    until(lambda: list(hub.events()) or hub.roster.opening)
    assert serves(host, hub) == 2
    happens_nothing(hub)
    assert hub.roster.vacant == [3]


def test_hosts_that_are_left_on_a_computer_share_its_memory(gathered, come, manifest):
    hub, _, _ = gathered(machines=1)
    hosts = [come(memory=6 * manifest.shard_bytes) for _ in range(2)]
    for host in hosts:
        until(lambda: list(hub.events()) or hub.roster.opening)
        serves(host, hub)
    assert [host.capacity for host in hub.roster.hosts][1:] == [2, 2]
    hosts[1].close()
    happened(hub, MachineLost)
    assert hub.roster.hosts[1].capacity == 3


def test_a_host_with_a_device_does_not_share_the_memory_of_the_computer(gathered, come, manifest):
    hub, _, _ = gathered(machines=1)
    for device in ("", "torch:cuda:0"):
        host = come(memory=4 * manifest.shard_bytes, device=device)
        until(lambda: list(hub.events()) or hub.roster.opening)
        serves(host, hub)
    assert [host.capacity for host in hub.roster.hosts][1:] == [2, 3]


# --- reports -----------------------------------------------------------------------------


def test_a_machine_reports_what_went_wrong_before_it_answers(gathered):
    hub, _, (first, *_) = gathered()
    assert hub.last_error(1) == "no report"
    first.say(STATUS, pack("no memory"))
    until(lambda: list(hub.events()) or hub.last_error(1) == "no memory")
    assert hub.last_error(9) == "no report"


# --- the end ------------------------------------------------------------------------------


def test_a_process_that_leaves_with_a_job_answers_first(gathered):
    hub, end, (first, *_) = gathered()
    job = ask(end, 1)
    first.order(OrderKind.MULTIPLY)
    first.say(LEAVE)
    happens_nothing(hub)
    first.answer(1)
    kinds = [type(event) for event in happened(hub, MachineLeft)]
    assert kinds == [JobsAnswered, MachineLeft]
    assert numbers_of(job) == [1.0] * ROWS


def test_the_end_of_the_hub_ends_all_and_removes_the_file(make, come, tmp_path, capsys, meanwhile):
    hub = make(tmp_path / "conn.json", job="7.0")
    hub.listen(prints=True)
    assert f"cec-mpi join {tmp_path / 'conn.json'}" in capsys.readouterr().out
    assert (tmp_path / "conn.json").stat().st_mode & 0o777 == 0o600
    assert read_connection_file(tmp_path / "conn.json").job == "7.0"
    process = come(rank=1)
    hub.gather(lambda: 1, 1, LIMIT)  # and no store is opened
    stopped = meanwhile(hub.stop, InputError("no such store"))
    shown = parse_order(*process.order(OrderKind.STOP))
    assert str(shown.error) == "no such store"
    process.close()
    stopped.result(LIMIT)
    assert hub.stuck_ranks == []
    assert not (tmp_path / "conn.json").exists()
    with pytest.raises(MasterLostError):
        come()
    make.made.clear()


def test_ranks_that_do_not_leave_are_named(make, gathered):
    hub, _, processes = gathered()
    processes[0].close()
    processes[2].close()
    hub.stop(None)
    assert hub.stuck_ranks == [2]
    make.made.clear()


def test_who_sends_too_much_at_once_is_excluded_with_one_reason(gathered):
    hub, end, (first, *_, spare) = gathered(spares=1)
    ask(end, 1)
    first.order(OrderKind.MULTIPLY)
    for _ in range(3):
        first.say(ANSWER, bytes(MAX_FRAME_BYTES))
    why = f"it sends {MAX_FRAME_BYTES + 8} bytes at once, expected at most {MAX_FRAME_BYTES}"
    assert happened(hub, MachineLost)[-1] == MachineLost(1, why)
    with pytest.raises(MachineError, match=f"has excluded this machine: {why}"):
        first.connection.receive(LIMIT)
    assert first.connection.receive(0.5) is None
    assert spare.opens() == 1


def test_a_caller_whose_first_message_is_too_large_is_refused(make, come, capsys):
    hub = make()
    stranger = come(package=("1", "2", "x" * MAX_FRAME_BYTES))
    until(lambda: list(hub.events()) or "cannot join" in capsys.readouterr().out)
    with pytest.raises(InputError, match="at once, expected at most"):
        stranger.connection.receive(LIMIT)
    assert hub.roster.hosts == []


def test_a_connection_is_one_host_once(gathered):
    """One that leaves and comes again and again would keep the master busy."""
    hub, _, (first, *_, spare) = gathered(spares=1)
    first.say(LEAVE)
    assert happened(hub, MachineLeft)[-1].machine == 1
    first.hear(LEAVE_ACK)
    first.say(HELLO, pack(Hello(package_fingerprint(), 1, detect_place())))
    assert until(lambda: list(hub.events()) or spare.connection.receive(0.01))[0] == ORDER
    list(hub.events())
    assert len(hub.roster.hosts) == 3
