"""Notices of preemption, from services with correct, wrong, late or no answers."""

from __future__ import annotations

import io
import socket
import threading
from contextlib import contextmanager, redirect_stdout

import pytest

from cec_mpi.errors import InputError
from cec_mpi.runtime.processes.notices import ADDRESS_VARIABLE, NOTICE_SERVICES, watch_notices
from helpers import metadata
from helpers.waiting import LIMIT, wait_until

PAUSE = 0.02  # seconds between two requests
SERVICES = NOTICE_SERVICES[2:]
EXPECTED = {
    "aws": "the notice of aws (terminate at 2026-11-28T12:00:00Z)",
    "gcp": "the notice of gcp (preempted)",
    "azure": "the notice of azure (Preempt at Sat, 28 Nov 2026 12:00:00 GMT)",
}
FIRST_PATHS = {"aws": "/latest/api/token", "gcp": "/computeMetadata", "azure": "/metadata/instance"}
LAST_PATHS = {
    "aws": "/latest/meta-data",
    "gcp": "/computeMetadata",
    "azure": "/metadata/scheduledevents",
}


class NoticeRecorder:
    """A callback that records the texts of notices."""

    def __init__(self):
        self.has_notice, self.texts = threading.Event(), []

    def __call__(self, text):
        self.texts.append(text)
        self.has_notice.set()


@pytest.fixture
def watch(monkeypatch):
    """Return a context that serves and watches notices; it yields the service and the recorder."""

    @contextmanager
    def watch(name, service_option=None, overrides=None, **attributes):
        recorder = NoticeRecorder()
        with metadata.serve(name) as service:
            monkeypatch.setenv(ADDRESS_VARIABLE, service.address)
            vars(service).update(attributes)
            service.overrides.update(overrides or {})
            if overrides:
                service.is_preempted.set()
            with watch_notices(service_option or name, recorder, PAUSE):
                yield service, recorder

    return watch


def is_watching():
    return any(thread.name == "notices" for thread in threading.enumerate())


@pytest.mark.parametrize("option", ["name", "auto"])
@pytest.mark.parametrize("name", SERVICES)
def test_a_notice_is_reported_once(watch, capfd, name, option):
    with watch(name, name if option == "name" else "auto") as (service, recorder):
        wait_until(lambda: any(LAST_PATHS[name] in request for request in service.requests))
        assert not recorder.texts
        service.is_preempted.set()
        assert recorder.has_notice.wait(LIMIT)
        wait_until(lambda: not is_watching())
    assert recorder.texts == [EXPECTED[name]]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("name", "paths", "answer"),
    [
        ("aws", LAST_PATHS, (200, "<html>sign in</html>")),
        ("aws", LAST_PATHS, (200, "[" * 100_000)),
        ("aws", FIRST_PATHS, (401, "")),
        ("aws", FIRST_PATHS, (200, "two\nlines")),
        ("gcp", FIRST_PATHS, (200, "TRUE")),  # without the header of the service
        ("azure", FIRST_PATHS, (200, "")),
        ("azure", LAST_PATHS, (503, "\x00\n")),
        ("azure", LAST_PATHS, (200, '{"Events": [{"EventType": "Preempt", "Resources": [1]}]}')),
        ("aws", FIRST_PATHS, None),  # no answer within the time limit
    ],
)
def test_a_wrong_answer_is_no_notice_and_the_request_is_repeated(watch, capfd, name, paths, answer):
    with watch(name, overrides={paths[name]: answer}) as (service, recorder):
        wait_until(lambda: sum(paths[name] in request for request in service.requests) > 1)
        assert not recorder.texts
        service.overrides.clear()
        assert recorder.has_notice.wait(LIMIT)
    assert recorder.texts == [EXPECTED[name]]
    (note,) = "".join(capfd.readouterr()).splitlines()
    assert note.startswith(f"notice {name}: no usable answer (")
    assert answer or "timed out" in note


def test_an_expired_token_is_replaced(watch, capfd):
    with watch("aws") as (service, recorder):
        wait_until(lambda: len(service.requests) > 2)
        service.tokens.append("another")
        service.is_preempted.set()
        assert recorder.has_notice.wait(LIMIT)
        assert len(service.tokens) == 3
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("change", "is_notice"),
    [
        ({"Resources": ["vm_2", "vm_10"]}, False),
        ({"EventType": "Reboot"}, False),
        ({"EventType": "Terminate", "Resources": ["vm_2", "VM_1"]}, True),
        ({"EventStatus": "Started", "NotBefore": ""}, True),
    ],
)
def test_only_preemptions_of_this_instance_are_notices(watch, change, is_notice):
    with watch("azure", events=[metadata.EVENT | change]) as (service, recorder):
        service.is_preempted.set()
        before = len(service.requests)
        wait_until(lambda: recorder.texts or len(service.requests) > before + 2)
        assert bool(recorder.texts) is is_notice


def test_auto_ends_with_a_note_if_no_service_answers(monkeypatch, capfd):
    monkeypatch.setattr("cec_mpi.runtime.processes.notices.SERVICE_SECONDS", 0.5)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        monkeypatch.setenv(ADDRESS_VARIABLE, "{}:{}".format(*closed.getsockname()))
        with watch_notices("auto", pytest.fail, PAUSE):
            wait_until(lambda: not is_watching())
    assert "neither aws, gcp nor azure answers" in "".join(capfd.readouterr())


@pytest.mark.parametrize("address", ["127.0.0.1:x", "", "no such host:1", "ü"])
def test_a_wrong_address_is_no_notice(monkeypatch, address):
    monkeypatch.setenv(ADDRESS_VARIABLE, address)
    with redirect_stdout(io.StringIO()) as output, watch_notices("gcp", pytest.fail, PAUSE):
        wait_until(lambda: "notice gcp: no usable answer" in output.getvalue())
    wait_until(lambda: not is_watching())


def test_none_starts_no_watch_and_an_unknown_service_is_refused():
    with watch_notices("none", pytest.fail):
        assert not is_watching()
    with (
        pytest.raises(InputError, match="notice 'oci': expected none, auto, aws, gcp, azure"),
        watch_notices("oci", pytest.fail),
    ):
        pass
