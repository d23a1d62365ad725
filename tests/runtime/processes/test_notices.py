"""Notices of preemption, from services that answer rightly, wrongly, late or not at all."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager

import pytest

from cec_mpi.errors import InputError
from cec_mpi.runtime.processes.notices import ADDRESS_VARIABLE, NOTICES, watch_notices
from helpers import metadata
from helpers.waiting import LIMIT, wait_until

PAUSE = 0.02  # seconds between two requests
SERVICES = NOTICES[2:]
EXPECTED = {
    "aws": "the notice of aws (terminate at 2026-11-28T12:00:00Z)",
    "gcp": "the notice of gcp (preempted)",
    "azure": "the notice of azure (Preempt at Sat, 28 Nov 2026 12:00:00 GMT)",
}
FIRST = {
    "aws": "/latest/api/token",
    "gcp": "/computeMetadata",
    "azure": "/metadata/instance",
}
LAST = {
    "aws": "/latest/meta-data",
    "gcp": "/computeMetadata",
    "azure": "/metadata/scheduledevents",
}


class Notice:
    """The first notice of a watch."""

    def __init__(self):
        self.came, self.texts = threading.Event(), []

    def __call__(self, text):
        self.texts.append(text)
        self.came.set()


@pytest.fixture
def serve(monkeypatch):
    @contextmanager
    def serve(name):
        with metadata.serve(name) as service:
            monkeypatch.setenv(ADDRESS_VARIABLE, service.address)
            yield service

    return serve


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "notices"]


@pytest.mark.parametrize("chosen", ["named", "auto"])
@pytest.mark.parametrize("name", SERVICES)
def test_a_notice_comes_when_the_service_gives_it(serve, capfd, name, chosen):
    notice = Notice()
    with serve(name) as service:
        with watch_notices(name if chosen == "named" else "auto", notice, PAUSE):
            wait_until(lambda: any(LAST[name] in request for request in service.requests))
            assert not notice.texts
            service.is_preempted.set()
            assert notice.came.wait(LIMIT)
        wait_until(lambda: not threads())
    assert notice.texts == [EXPECTED[name]]
    assert capfd.readouterr() == ("", "")


WRONG = [
    ("aws", LAST, (200, "<html>sign in</html>")),
    ("aws", LAST, (200, '{"action": "stop"}')),
    ("aws", LAST, (200, "[" * 100_000)),
    ("aws", FIRST, (401, "")),
    ("aws", FIRST, (404, "")),
    ("aws", FIRST, (200, "two\nlines")),
    ("gcp", FIRST, (404, "")),
    ("gcp", FIRST, (200, "TRUE")),  # without the header of the service
    ("azure", FIRST, (404, "")),
    ("azure", FIRST, (200, "")),
    ("azure", LAST, (503, "\x00\n")),
    ("azure", LAST, (200, '{"Events": [{"EventType": "Preempt"}]}')),
    ("azure", LAST, (200, '{"Events": [{"EventType": "Preempt", "Resources": [1]}]}')),
]


@pytest.mark.parametrize(("name", "where", "wrong"), WRONG)
def test_a_wrong_answer_is_no_notice_and_is_asked_for_again(serve, capfd, name, where, wrong):
    notice = Notice()
    with serve(name) as service:
        service.is_preempted.set()
        service.wrong[where[name]] = wrong
        with watch_notices(name, notice, PAUSE):
            wait_until(lambda: sum(where[name] in request for request in service.requests) > 1)
            assert not notice.texts
            service.wrong.clear()
            assert notice.came.wait(LIMIT)
    assert notice.texts == [EXPECTED[name]]
    notes = "".join(capfd.readouterr()).splitlines()
    assert len(notes) == 1
    assert notes[0].startswith(f"notice {name}: no answer (")


@pytest.mark.parametrize("name", ["aws", "azure"])
def test_a_service_that_does_not_answer_is_asked_again(serve, capfd, name):
    notice = Notice()
    with serve(name) as service:
        service.is_preempted.set()
        service.wrong[FIRST[name]] = None
        with watch_notices(name, notice, PAUSE):
            wait_until(lambda: len(service.requests) > 1)
            service.wrong.clear()
            assert notice.came.wait(LIMIT)
    assert "timed out" in "".join(capfd.readouterr())


def test_a_token_that_has_expired_is_replaced(serve):
    notice = Notice()
    with serve("aws") as service, watch_notices("aws", notice, PAUSE):
        wait_until(lambda: len(service.requests) > 2)
        service.tokens.append("another")
        service.is_preempted.set()
        assert notice.came.wait(LIMIT)
        assert len(service.tokens) == 3


@pytest.mark.parametrize(
    ("change", "leaves"),
    [
        ({"Resources": ["vm_2", "vm_10"]}, False),
        ({"EventType": "Reboot"}, False),
        ({"EventType": "Freeze"}, False),
        ({"EventType": "Terminate", "Resources": ["vm_2", "VM_1"]}, True),
        ({"EventStatus": "Started", "NotBefore": ""}, True),
    ],
)
def test_events_of_azure_for_this_instance_count(serve, change, leaves):
    notice = Notice()
    with serve("azure") as service, watch_notices("azure", notice, PAUSE):
        service.events = [metadata.EVENT | change]
        service.is_preempted.set()
        before = len(service.requests)
        wait_until(lambda: notice.texts or len(service.requests) > before + 2)
        assert bool(notice.texts) is leaves


def test_auto_goes_on_where_no_service_answers(monkeypatch, capfd):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        monkeypatch.setenv(ADDRESS_VARIABLE, "{}:{}".format(*closed.getsockname()))
        with watch_notices("auto", pytest.fail, PAUSE):
            wait_until(lambda: not threads())
    assert "neither aws, gcp nor azure answers" in "".join(capfd.readouterr())


@pytest.mark.parametrize("address", ["127.0.0.1:x", "", "no such host:1", "ü"])
def test_an_address_that_is_none_is_no_notice(monkeypatch, address, capfd):
    monkeypatch.setenv(ADDRESS_VARIABLE, address)
    said = []
    with watch_notices("gcp", pytest.fail, PAUSE):
        wait_until(lambda: said.extend(capfd.readouterr()) or any(said))
    assert "notice gcp: no answer" in "".join(said)
    wait_until(lambda: not threads())


def test_none_asks_nobody_and_another_word_is_refused():
    with watch_notices("none", pytest.fail):
        assert not threads()
    with (
        pytest.raises(InputError, match="notice 'oci': expected none, auto, aws, gcp, azure"),
        watch_notices("oci", pytest.fail),
    ):
        pass
