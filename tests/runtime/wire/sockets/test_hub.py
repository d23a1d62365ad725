"""The master's hub: assignment of machines to processes, answers, losses and departures."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

import cec_mpi
from cec_mpi.core.elastic.events import (
    MachineExcluded,
    MachineJoined,
    MachineLeft,
    MachineLost,
    MachineUnresponsive,
    Request,
)
from cec_mpi.errors import DismissedError, InputError, MachineError
from cec_mpi.runtime.machine.machine import Report
from cec_mpi.runtime.options.machines import MachineOptions
from cec_mpi.runtime.processes.packing import pack, unpack
from cec_mpi.runtime.processes.resources import detect_process
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
from helpers.waiting import LIMIT, wait_until

ROWS, COLUMNS = 6, 4  # of a shard
X = np.arange(2.0 * ROWS * COLUMNS).reshape(2 * ROWS, COLUMNS)
SHARD_OPENED = OpenReport(shard_path="file")
NO_SHARD = OpenReport("machine 3 sees no shard", is_shard_missing=True)


class Process:
    """A process that sends and receives messages one by one."""

    def __init__(self, file, **hello):
        self.connection = Connection(file)
        process = replace(detect_process(), **hello.pop("process", {}))
        self.send(HELLO, pack(Hello(package_fingerprint(), process, **hello)))

    def send(self, kind, head=b"", *frames):
        self.connection.send(kind, head, frames)

    def receive(self, kind):
        message = self.connection.receive(LIMIT)
        assert message is not None
        assert message[0] == kind
        return message[1:]

    def receive_order(self, kind):
        head, *frames = self.receive(ORDER)
        order, _, _ = unpack_order(np.frombuffer(head, np.int64))
        assert order.kind == kind
        return order, b"".join(frames)

    def open_shard(self, report=SHARD_OPENED):
        """Report on the shard of the next order; return its machine."""
        order, payload = self.receive_order(OrderKind.OPEN)
        self.send(STATUS, pack(report))
        return parse_order(order, payload).machine

    def receive_admission(self):
        return unpack(b"".join(self.receive(ADMISSION)[1:]), Admission)

    def answer(self, machine, values=ROWS):
        """Answer a job with this number of values."""
        report = np.array(pack_report(Report(0.5), machine), dtype=np.float64)
        self.send(ANSWER, report.tobytes() + np.ones(values).tobytes())

    def expect_error(self, error, match):
        with pytest.raises(error, match=match) as raised:
            self.connection.receive(LIMIT)
        assert type(raised.value) is error

    def close(self):
        self.connection.close()


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    path = tmp_path_factory.mktemp("hub") / "store"
    return cec_mpi.encode(X, path, 3, 2, scaling="none")


@pytest.fixture
def run_in_thread():
    """Return a function that calls the hub in a thread, while a test acts as the processes."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


@pytest.fixture
def make_hub():
    """Return a function that makes a hub at 127.0.0.1."""
    hubs = []

    def make_hub(path=None, **options):
        listener = Listener(["127.0.0.1"], None)
        hubs.append((SocketHub(listener, path, **options), listener.file))
        return hubs[-1][0]

    make_hub.hubs = hubs
    yield make_hub
    for hub, _ in hubs:
        hub.stop(None)


@pytest.fixture
def connect(make_hub):
    """Return a function that connects a process to the last hub."""
    processes = []

    def connect(**hello):
        processes.append(Process(make_hub.hubs[-1][1], **hello))
        return processes[-1]

    yield connect
    for process in processes:
        with suppress(Exception):
            process.close()


@pytest.fixture
def begin_opening(make_hub, connect, manifest, run_in_thread):
    """Return a function that begins to open a store; it returns hub, processes and a future."""

    def begin_opening(ranks, hub_options=None, **options):
        hub = make_hub(**hub_options or {})
        processes = [connect(initial_rank=rank) for rank in range(1, ranks + 1)]
        process_infos = hub.await_processes(lambda: ranks, 2, LIMIT)
        machines = hub.assign_machines((1, 2, 3), len(process_infos) - 1)
        unassigned = tuple(n for n in (1, 2, 3) if n not in machines)
        opening = make_opening(manifest, machines, unassigned, **options)
        return hub, processes, run_in_thread(hub.open, opening)

    return begin_opening


@pytest.fixture
def serve(begin_opening):
    """Return a function that serves a store; it returns hub, endpoint and processes."""

    def serve(machines=3, spares=0, **options):
        hub, processes, future = begin_opening(machines + spares, options)
        serving = processes[:machines]
        assert [process.open_shard() for process in serving] == [*range(1, machines + 1)]
        future.result(LIMIT)
        endpoint = hub.admit(None)
        assert all(process.receive_admission() == Admission() for process in serving)
        return hub, endpoint, processes

    return serve


def make_opening(manifest, machines, unassigned=(), **options):
    options = MachineOptions(threads=1, **options)
    threads = (1,) * (len(machines) + 1)
    return Opening("store", manifest, machines, options, threads, unassigned_machines=unassigned)


def send_jobs(endpoint, *machines, step=0):
    w = np.ones((1, COLUMNS))
    operands = {Request(machine, ((0, ROWS),)): w for machine in machines}
    return [job for jobs in endpoint.send_jobs(step, Product(), operands) for job in jobs]


def answer_values(job):
    """Return the values of the answer to a job; none before the answer."""
    return [value for piece in job.pieces for value in piece.tolist()]


def collect_events(hub, *types):
    """Collect events until there is one of each type."""
    events = []
    wait_until(
        lambda: events.extend(hub.events()) or {type(event) for event in events} >= set(types)
    )
    return events


def run_until(hub, condition):
    """Let the hub process messages until a condition is true; return its value."""
    return wait_until(lambda: (list(hub.events()), condition())[1])


def run_without_events(hub, seconds=0.3):
    """Let the hub process messages for a while; check that no event occurs."""
    due = time.monotonic() + seconds
    while time.monotonic() < due:
        assert list(hub.events()) == []
        time.sleep(0.01)


# --- join ---------------------------------------------------------------------------------


def test_processes_get_the_machine_of_their_rank_or_one_that_they_request(make_hub, connect):
    hub = make_hub()
    for rank in (3, 1, 4, 0, 2, 0):
        connect(initial_rank=rank, machines=() if rank else (6,))
    processes = hub.await_processes(lambda: 6, 2, 3.0)  # waits only for ranks of the launcher
    assert len(processes) == 7
    assert {process.ranks for process in processes} == {7}
    assert hub.assign_machines((1, 3, 4, 6, 7), 6) == (1, 3, 4, 6, 7, 0)
    assert hub.roster.available == set()


def test_the_hub_waits_for_expected_processes_that_have_not_ended(make_hub, connect, capsys):
    hub = make_hub()
    connect(initial_rank=1)
    connect(initial_rank=3)
    assert len(hub.await_processes(lambda: 3, 3, 0.5)) <= 3
    assert "machines have not joined yet, but can still join" in capsys.readouterr().out
    run_until(hub, lambda: len(hub.roster.hosts) == 2)
    hub = make_hub()
    connect(initial_rank=2)
    expected = iter([3, 3, 2, 1] + [1] * 10**6)
    assert len(hub.await_processes(expected.__next__, 3, LIMIT)) == 2


def test_an_exception_ends_the_wait_for_processes(make_hub):
    def check_cancelled():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_hub().await_processes(lambda: 3, 2, LIMIT, check_cancelled)


def test_a_process_that_ends_before_the_start_gets_no_machine(make_hub, connect):
    hub = make_hub()
    connect(initial_rank=1).close()
    connect(initial_rank=2)
    connect(initial_rank=3)
    hub.await_processes(lambda: 2, 2, LIMIT)
    run_until(hub, lambda: len(hub.roster.hosts) == 2)
    assert len(hub.roster.spares()) == 2


def pack_hello(*package):
    return pack(Hello(package, detect_process()))


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (b"{}", "its hello is not valid; install the same cec_mpi on all computers"),
        (b"[" * 10**5, "its hello is not valid"),
        (pack_hello("0.0.1", *package_fingerprint()[1:]), "different versions of cec_mpi: .*0.0.1"),
        (pack_hello("1", "2", "x" * MAX_FRAME_BYTES), "bytes at once, expected at most"),
    ],
    ids=["without fields", "nested deeply", "of another version", "too long"],
)
def test_a_process_with_a_wrong_hello_is_refused(hello, reason, make_hub, capsys):
    hub = make_hub()
    connection = Connection(make_hub.hubs[-1][1])
    connection.send(HELLO, hello)
    assert "a machine cannot join: " in run_until(hub, lambda: capsys.readouterr().out)
    with pytest.raises(InputError, match=reason):
        connection.receive(LIMIT)
    connection.close()
    assert hub.roster.hosts == []


def test_invalid_messages_are_ignored(serve, caplog):
    hub, endpoint, (first, *_) = serve()
    first.send(b"?")
    first.send(ANSWER, b"without a job")
    first.send(STATUS, b"[1]")
    first.send(b"\xff" * 20, b"", b"")
    run_until(hub, lambda: caplog.text.count("received an invalid message") == 4)
    (job,) = send_jobs(endpoint, 1)
    first.receive_order(OrderKind.MULTIPLY)
    first.answer(1)
    assert collect_events(hub, JobsAnswered)[-1].jobs == (job,)
    assert answer_values(job) == [1.0] * ROWS


def test_a_process_that_floods_the_master_is_excluded(serve):
    hub, endpoint, (first, second, *_, spare) = serve(spares=1)
    (job,) = send_jobs(endpoint, 2)
    second.receive_order(OrderKind.MULTIPLY)
    for number in range(3000):
        first.send((STATUS, ANSWER, b"?")[number % 3], b'"x"')
    second.answer(2)
    events = collect_events(hub, JobsAnswered, MachineLost)
    assert answer_values(job) == [1.0] * ROWS
    assert MachineLost(1, "it sends too many unsolicited messages") in events
    assert spare.open_shard() == 1


def test_a_process_that_is_lost_repeatedly_waits_before_it_gets_a_machine(serve, connect):
    hub, _, (process, *_) = serve()
    for min_pause in (0.0, 0.4, 0.9):
        lost_at = time.monotonic()
        process.close()
        run_until(hub, lambda: 1 in hub.roster.vacant)
        process = connect()
        run_until(hub, lambda: not hub.roster.vacant)
        assert time.monotonic() - lost_at > min_pause
        process.open_shard()


# --- open a store -------------------------------------------------------------------------


def test_machines_open_a_store_and_answer(serve):
    hub, endpoint, processes = serve()
    assert hub.roster.available == {1, 2, 3}
    jobs = [job for n in (1, 2, 3) for job in send_jobs(endpoint, n)]
    assert hub.pending_jobs().keys() == {1, 2, 3}
    for n, process in enumerate(processes, start=1):
        process.receive_order(OrderKind.MULTIPLY)
        process.answer(n)
    answers = []
    wait_until(lambda: answers.extend(hub.events()) or len(answers) == 3)
    assert {event.jobs for event in answers} == {(job,) for job in jobs}
    # The machines report 0.5 s, which is more than the elapsed time.
    assert all(0 < job.report_fields.seconds <= time.monotonic() - job.sent_at for job in jobs)
    assert hub.pending_jobs() == {}


def test_a_machine_that_is_lost_while_it_opens_is_replaced(begin_opening):
    hub, (first, second, third, spare), future = begin_opening(4)
    second.receive_order(OrderKind.OPEN)
    second.close()
    assert [first.open_shard(), third.open_shard()] == [1, 3]
    assert [report.shard_path for report in future.result(LIMIT)] == ["file", "", "file", ""]
    hub.admit(None)
    assert hub.roster.available == {1, 3}
    assert spare.open_shard() == 2
    joined = collect_events(hub, MachineJoined)[-1]
    assert (joined.machine, joined.rank) == (2, 4)


def test_a_machine_that_cannot_open_is_replaced(begin_opening, capsys):
    hub, (first, second, third, spare), future = begin_opening(4)
    third.open_shard(NO_SHARD)
    assert [first.open_shard(), second.open_shard()] == [1, 2]
    assert future.result(LIMIT)[2].problem == "machine 3 sees no shard"
    hub.admit(None)
    assert type(third.receive_admission().failure.to_exception()) is MachineError
    third.expect_error(MachineError, "excluded this machine: machine 3 sees no shard")
    assert "a machine cannot join: machine 3 sees no shard" in capsys.readouterr().out
    assert spare.open_shard() == 3


@pytest.fixture
def short_slow_limit(monkeypatch):
    """Count hosts that open a machine as slow after half a second without progress."""
    monkeypatch.setattr("cec_mpi.runtime.wire.sockets.hub.SLOW_OPEN_SECONDS", 0.5)


@pytest.mark.usefixtures("short_slow_limit")
def test_a_slow_machine_is_replaced_and_becomes_a_spare_once_it_has_opened(begin_opening):
    hub, (*processes, spare), future = begin_opening(4)
    future.result(LIMIT)  # returns although no machine has opened
    hub.admit(None)
    for process in processes:
        process.receive_order(OrderKind.OPEN)
    run_until(hub, lambda: hub.roster[4].machines)
    replaced_machine = spare.open_shard()
    collect_events(hub, MachineJoined)
    slow_process = processes[replaced_machine - 1]
    assert hub.expected_machines() == {1, 2, 3} - {replaced_machine}
    slow_process.send(STATUS, pack(SHARD_OPENED))
    run_until(hub, lambda: hub.roster[replaced_machine].opening)
    assert "already become" in slow_process.receive_admission().failure.text
    assert slow_process.open_shard() in {1, 2, 3} - {replaced_machine}


@pytest.mark.usefixtures("short_slow_limit")
def test_a_machine_that_copies_its_shard_is_not_slow(serve, connect):
    hub, _, _ = serve(machines=2)
    copying_process = connect()
    run_until(hub, lambda: hub.roster.opening == {3})
    connect()
    for _ in range(15):
        copying_process.send(PROGRESS)
        run_without_events(hub, 0.1)
    assert hub.roster.opening == {3}
    assert list(hub.roster[3].machines) == [3]


def test_machines_measure_their_speeds_at_the_same_time(begin_opening):
    _, processes, future = begin_opening(3, measures_speed=True)
    for process in processes:
        process.receive_order(OrderKind.OPEN)
    first, second, third = processes
    first.send(STATUS, pack(None))
    second.send(STATUS, pack(None))
    third.close()
    for process in (first, second):
        process.receive(MEASURE)
        process.send(STATUS, pack(OpenReport(shard_path="file", rate=7.0)))
    assert [report.rate for report in future.result(LIMIT)] == [7.0, 7.0, 0.0]


def test_machines_get_the_reason_why_the_store_is_refused(begin_opening):
    hub, processes, future = begin_opening(3)
    for process in processes:
        process.open_shard()
    future.result(LIMIT)
    hub.refuse(InputError("wrong store"))
    assert {process.receive_admission().failure.text for process in processes} == {"wrong store"}


@pytest.mark.parametrize("waits_for_joins", [False, True])
def test_a_process_that_joins_later_gets_a_vacant_machine(waits_for_joins, serve, connect):
    hub, _, _ = serve(machines=2, waits_for_joins=waits_for_joins)
    assert hub.roster.available == {1, 2}
    assert hub.expected_machines() == ({3} if waits_for_joins else set())
    late_process = connect(initial_rank=3)
    run_until(hub, lambda: hub.roster.opening)
    assert hub.expected_machines() == {3}
    assert late_process.open_shard() == 3
    assert collect_events(hub, MachineJoined) == [MachineJoined(3, 3, detect_process().host_name)]
    assert hub.expected_machines() == set()


def test_a_restarted_process_gets_the_machine_that_its_computer_had(serve, connect):
    """A computer may have a copy of this shard, or no other shard."""
    hub, _, _ = serve(machines=1)
    processes = []
    for machine, name in ((2, "desk"), (3, "attic")):
        processes.append(connect(process={"host_name": name}))
        run_until(hub, lambda: hub.roster.opening)
        assert processes[-1].open_shard() == machine
        collect_events(hub, MachineJoined)
    for process in processes:
        process.close()
    run_until(hub, lambda: len(hub.roster.vacant) == 2)
    connect(process={"host_name": "attic"})
    run_until(hub, lambda: hub.roster.opening)
    assert hub.roster.opening == {3}


# --- answers ------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [None, ROWS - 1])
def test_an_answer_of_the_wrong_length_excludes_a_machine(values, serve):
    hub, endpoint, (first, *_, spare) = serve(spares=1)
    (job,) = send_jobs(endpoint, 1)
    first.receive_order(OrderKind.MULTIPLY)
    first.send(ANSWER, b"no report") if values is None else first.answer(1, values)
    assert collect_events(hub, MachineLost) == [MachineLost(1, "its answer has the wrong length")]
    assert answer_values(job) == []
    first.expect_error(MachineError, "its answer has the wrong length")
    assert spare.open_shard() == 1


def test_an_answer_that_was_sent_before_a_loss_counts(serve):
    hub, endpoint, (first, *_) = serve()
    (job,) = send_jobs(endpoint, 1)
    first.receive_order(OrderKind.MULTIPLY)
    first.answer(1)
    first.close()
    time.sleep(0.3)  # so that the master receives both in one poll
    assert [type(event) for event in collect_events(hub, MachineLost)] == [
        JobsAnswered,
        MachineLost,
    ]
    assert answer_values(job) == [1.0] * ROWS


def test_a_late_answer_is_assigned_to_its_own_job(serve):
    hub, endpoint, (first, *_, spare) = serve(spares=1)
    (old_job,) = send_jobs(endpoint, 1)
    first.receive_order(OrderKind.MULTIPLY)
    hub.mark_late(1)
    hub.mark_unresponsive(1, "no answer")
    assert spare.open_shard() == 1
    assert collect_events(hub, MachineUnresponsive, MachineJoined) == [
        MachineUnresponsive(1, "no answer"),
        MachineJoined(1, 4, detect_process().host_name),
    ]
    (new_job,) = send_jobs(endpoint, 1, step=1)
    first.answer(1)
    assert collect_events(hub, JobsAnswered) == [JobsAnswered((old_job,))]
    assert answer_values(new_job) == []
    assert [host.rank for host in hub.roster.spares()] == [1]
    assert hub.pending_jobs() == {1: new_job}


# --- hosts of several machines ------------------------------------------------------------


def serve_next(process, hub):
    """Serve the next machine of a host; return its number."""
    machine = process.open_shard()
    collect_events(hub, MachineJoined)
    assert process.receive_admission() == Admission()
    return machine


@pytest.fixture
def hub_with_host(serve, connect):
    """Return a hub, its endpoint, and a host of machines 2 and 3; machine 1 is elsewhere."""
    hub, endpoint, _ = serve(machines=1)
    host = connect(slots=3, memory=10**9)
    run_until(hub, lambda: hub.roster.opening)
    assert [serve_next(host, hub), serve_next(host, hub)] == [2, 3]
    return hub, endpoint, host


def test_a_host_gets_one_message_and_answers_for_all_of_its_machines(hub_with_host):
    hub, endpoint, host = hub_with_host
    jobs = send_jobs(endpoint, 2, 3)
    head, *frames = host.receive(ORDER)
    order, parsed, operand = unpack_order(np.frombuffer(head, np.int64))
    assert (order.machine_or_count, [part.machine for part in parsed.parts]) == (2, [2, 3])
    assert (operand.size, frames) == (8 * COLUMNS, [])
    reports = [pack_report(Report(0.5), machine) for machine in (2, 3)]
    host.send(ANSWER, np.array(reports).tobytes() + np.arange(2.0 * ROWS).tobytes())
    assert collect_events(hub, JobsAnswered) == [JobsAnswered(tuple(jobs))]
    assert list(map(answer_values, jobs)) == [[*range(ROWS)], [*range(ROWS, 2 * ROWS)]]
    assert hub.roster.machines(State.IDLE) == {1, 2, 3}


def test_a_host_answers_jobs_of_several_messages_in_turn(hub_with_host):
    hub, endpoint, host = hub_with_host
    first, second = send_jobs(endpoint, 3) + send_jobs(endpoint, 2)
    host.receive_order(OrderKind.MULTIPLY)
    host.receive_order(OrderKind.MULTIPLY)
    host.answer(3)
    assert collect_events(hub, JobsAnswered) == [JobsAnswered((first,))]
    assert hub.pending_jobs() == {2: second}
    host.answer(2)
    assert collect_events(hub, JobsAnswered) == [JobsAnswered((second,))]


def test_a_host_that_leaves_answers_its_job_first(hub_with_host):
    hub, endpoint, host = hub_with_host
    (job,) = send_jobs(endpoint, 2)
    host.receive_order(OrderKind.MULTIPLY)
    host.send(LEAVE)
    run_without_events(hub)
    host.answer(2)
    answered, *left = collect_events(hub, MachineLeft)
    assert answered == JobsAnswered((job,))
    assert [event.machine for event in left] == [2, 3]
    assert answer_values(job) == [1.0] * ROWS
    host.receive(LEAVE_ACK)
    host.send(HELLO, pack_hello(*package_fingerprint()))  # a connection is a host only once
    run_without_events(hub)
    assert len(hub.roster.hosts) == 1


def test_a_host_that_cannot_open_a_machine_keeps_its_other_machines(serve, connect, capsys):
    hub, endpoint, _ = serve(machines=1)
    host = connect(slots=2)
    run_until(hub, lambda: hub.roster.opening)
    assert serve_next(host, hub) == 2
    host.open_shard(NO_SHARD)
    assert collect_events(hub, MachineLost) == [MachineLost(3, "machine 3 sees no shard")]
    assert host.receive_admission().failure.text == "machine 3 sees no shard"
    assert "a machine cannot join: machine 3 sees no shard" in capsys.readouterr().out
    run_without_events(hub)
    assert hub.roster.vacant == [3]
    send_jobs(endpoint, 2)
    host.receive_order(OrderKind.MULTIPLY)


def test_a_failed_machine_is_removed_from_its_host(hub_with_host):
    hub, _, host = hub_with_host
    hub.exclude(3, "its shard is damaged", MachineLost)
    order, _ = host.receive_order(OrderKind.CLOSE)
    assert order.machine_or_count == 3
    assert collect_events(hub, MachineLost) == [MachineLost(3, "its shard is damaged")]
    assert hub.roster.available == {1, 2}


def test_wrong_answers_of_one_machine_exclude_its_host(hub_with_host):
    hub, _, host = hub_with_host
    hub.exclude(3, "wrong", MachineExcluded)
    expected = [MachineExcluded(machine, "wrong") for machine in (2, 3)]
    assert collect_events(hub, MachineExcluded) == expected
    host.expect_error(DismissedError, "wrong")


def test_a_silent_host_closes_the_shard_of_a_machine_that_another_opens(hub_with_host, connect):
    hub, endpoint, host = hub_with_host
    send_jobs(endpoint, 2)
    host.receive_order(OrderKind.MULTIPLY)
    hub.mark_unresponsive(2, "silent")
    spare = connect()
    run_until(hub, lambda: hub.roster.opening)
    opened_machine = serve_next(spare, hub)
    order, _ = host.receive_order(OrderKind.CLOSE)
    assert order.machine_or_count == opened_machine
    host.answer(2)
    (joined,) = collect_events(hub, JobsAnswered, MachineJoined)[1:]
    assert {opened_machine, joined.machine} == {2, 3}


def test_an_adopted_machine_moves_to_a_new_host_between_two_jobs(serve, connect):
    hub, endpoint, (first, _, third) = serve()
    third.close()
    collect_events(hub, MachineLost)
    hub.adopt(1, 3)
    assert serve_next(first, hub) == 3
    (job,) = send_jobs(endpoint, 3)
    new_process = connect()
    run_until(hub, lambda: State.JOINING in hub.roster.hosts[-1].machines.values())
    assert new_process.open_shard() == 3
    first.receive_order(OrderKind.MULTIPLY)
    run_without_events(hub)
    assert hub.expected_machines() == set()
    first.answer(3)
    answered, joined = collect_events(hub, JobsAnswered, MachineJoined)
    assert (answered.jobs, joined.machine, joined.rank) == ((job,), 3, 4)
    assert new_process.receive_admission() == Admission()
    order, _ = first.receive_order(OrderKind.CLOSE)
    assert order.machine_or_count == 3


@pytest.mark.parametrize(
    ("hello", "options", "message"),
    [
        ({"slots": 4}, {}, "--machines 4: expected 3 at most, because store has 3 machines"),
        (
            {"slots": 2},
            {"single_machine_option": "--check"},
            "--machines 2: expected 1 at most, because with --",
        ),
        ({"machines": (4,)}, {}, "--machine 4: expected 1 to 3, the machines of store"),
        (
            {"memory": 5, "has_memory_option": True},
            {},
            "--memory is 5 bytes: expected at least 320 bytes",
        ),
        ({"memory": 9}, {}, "90 % of the free memory of .* is 9 bytes: expected at least"),
    ],
)
def test_a_host_that_requests_too_much_is_refused(
    hello, options, message, make_hub, connect, manifest, capsys
):
    hub = make_hub(**options)
    hub.await_processes(lambda: 0, 0, LIMIT)
    early_host = connect(**hello)
    run_until(hub, lambda: hub.roster.hosts)
    hub.open(make_opening(manifest, (), unassigned=(1, 2, 3)))
    hub.admit(None)
    late_host = connect(**hello)
    run_until(hub, lambda: len(hub.roster.hosts) == 2)
    assert "a host cannot join: " in capsys.readouterr().out
    for host in (early_host, late_host):
        host.expect_error(InputError, message)
    assert hub.roster.vacant == [1, 2, 3]


def test_a_host_gets_as_many_machines_as_fit_into_its_memory(serve, connect, manifest):
    hub, _, _ = serve(machines=1)
    host = connect(slots=2, memory=2 * manifest.shard_bytes - 1)
    run_until(hub, lambda: hub.roster.opening)
    assert serve_next(host, hub) == 2
    run_without_events(hub)
    assert hub.roster.vacant == [3]


def test_hosts_on_a_computer_share_its_memory_but_not_that_of_devices(serve, connect, manifest):
    hub, _, _ = serve(machines=1)  # also on this computer

    def capacities():
        return [host.capacity for host in hub.roster.hosts][1:]

    memory = 6 * manifest.shard_bytes
    hosts = [connect(memory=memory, device=device) for device in ("", "", "torch:cuda:0")]
    run_until(hub, lambda: len(hub.roster.hosts) == 4)
    assert sorted(capacities()) == [2, 2, 3]
    hosts[0].close()
    run_until(hub, lambda: capacities() == [3, 3])


# --- stop ---------------------------------------------------------------------------------


def test_stop_ends_all_processes_and_removes_the_file(
    make_hub, connect, tmp_path, capsys, run_in_thread
):
    path = tmp_path / "conn.json"
    hub = make_hub(path, job_id="7.0")
    hub.listen(show_command=True)
    assert f"cec-mpi join {path}" in capsys.readouterr().out
    assert path.stat().st_mode & 0o777 == 0o600
    assert read_connection_file(path).job_id == "7.0"
    process = connect(initial_rank=1)
    hub.await_processes(lambda: 1, 1, LIMIT)
    future = run_in_thread(hub.stop, InputError("no such store"))
    stop = parse_order(*process.receive_order(OrderKind.STOP))
    assert str(stop.error) == "no such store"
    process.close()
    future.result(LIMIT)
    assert hub.stuck_ranks == []
    assert not path.exists()
    with pytest.raises(MasterLostError):
        connect()
    make_hub.hubs.clear()


def test_ranks_that_do_not_leave_are_named(make_hub, serve):
    hub, _, (first, _, third) = serve()
    first.close()
    third.close()
    hub.stop(None)
    assert hub.stuck_ranks == [2]
    make_hub.hubs.clear()
