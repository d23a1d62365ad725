"""Notices of preemption from the metadata services of AWS, Google Cloud and Azure.

Each service answers HTTP requests at an address that only the instance itself can reach:

- AWS (IMDSv2): a token and, with the token, ``spot/instance-action``, which exists after a notice.
- Google Cloud: ``instance/preempted``, FALSE or TRUE; a request can wait for a change.
- Azure: scheduled events of the instance and its neighbours, of the types Preempt and Terminate.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from cec_mpi.errors import InputError
from cec_mpi.runtime.times import (
    FIRST_EVENTS_SECONDS,
    METADATA_SECONDS,
    NOTICE_POLL_SECONDS,
    NOTICE_WAIT_SECONDS,
    SERVICE_SECONDS,
)
from cec_mpi.text import printable, shorten
from cec_mpi.text.terminal import print_note

if TYPE_CHECKING:
    from http.client import HTTPMessage

ADDRESS_VARIABLE = "CEC_MPI_METADATA"  # HOST:PORT of a server that replaces the services
_ADDRESS = "169.254.169.254"  # of all three services
_MAX_ANSWER_BYTES = 1 << 20
_MAX_NOTICE_LENGTH = 100  # characters
_OK, _UNAUTHORIZED, _NOT_FOUND = 200, 401, 404
_JSON_ERRORS = ValueError, TypeError, KeyError, AttributeError, RecursionError


class _ServiceError(Exception):
    """The service did not answer, or its answer is not as documented."""


def _request(
    path: str, headers: Mapping[str, str], method: str = "GET", seconds: float = METADATA_SECONDS
) -> tuple[int, HTTPMessage, str]:
    """Return the status, headers and text of the answer to a request without a proxy."""
    from http.client import HTTPConnection, HTTPException

    try:
        address = os.environ.get(ADDRESS_VARIABLE, _ADDRESS)
        with closing(HTTPConnection(address, timeout=seconds)) as connection:
            connection.request(method, path, headers=dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read(_MAX_ANSWER_BYTES).decode().strip()
    except (OSError, HTTPException, ValueError) as error:
        raise _ServiceError(str(error) or type(error).__name__) from None


def _unexpected_answer(path: str, status: int, text: str) -> _ServiceError:
    return _ServiceError(f"{path.partition('?')[0]} has status {status}: {shorten(text)}")


def _fetch(path: str, headers: Mapping[str, str], seconds: float = METADATA_SECONDS) -> str:
    """Return the text of the answer to a request; raise unless its status is 200."""
    status, _, text = _request(path, headers, seconds=seconds)
    if status != _OK:
        raise _unexpected_answer(path, status, text)
    return text


# Each of these generators polls a service. It yields an empty string after each request without a
# notice, and the text of a notice. It returns if the caller must create it again.


def _aws_notices() -> Iterator[str]:
    path, lifetime = "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}
    status, _, token = _request(path, lifetime, "PUT")
    if status != _OK or not token.isascii() or not token.isprintable():
        raise _unexpected_answer(path, status, token)
    path = "/latest/meta-data/spot/instance-action"
    while True:
        status, _, text = _request(path, {"X-aws-ec2-metadata-token": token})
        if status == _UNAUTHORIZED:  # the token has expired
            return
        if status not in (_OK, _NOT_FOUND):
            raise _unexpected_answer(path, status, text)
        yield "" if status == _NOT_FOUND else _aws_action(path, text)


def _aws_action(path: str, text: str) -> str:
    try:
        action = json.loads(text)
        return f"{action['action']} at {action['time']}"
    except _JSON_ERRORS:
        raise _unexpected_answer(path, _OK, text) from None


def _gcp_notices() -> Iterator[str]:
    path, flavor = "/computeMetadata/v1/instance/preempted", "Google"
    query, seconds = "", METADATA_SECONDS
    while True:
        status, headers, text = _request(path + query, {"Metadata-Flavor": flavor}, seconds=seconds)
        is_from_google = headers.get("Metadata-Flavor") == flavor
        if status != _OK or not is_from_google or text not in ("FALSE", "TRUE"):
            raise _unexpected_answer(path, status, text)
        yield "preempted" if text == "TRUE" else ""
        if (etag := headers.get("ETag", "")).isalnum():  # identifies the last value
            query = f"?wait_for_change=true&timeout_sec={NOTICE_WAIT_SECONDS:g}&last_etag={etag}"
            seconds = NOTICE_WAIT_SECONDS + METADATA_SECONDS


def _azure_notices() -> Iterator[str]:
    headers = {"Metadata": "true"}
    name = _fetch("/metadata/instance/compute/name?api-version=2021-02-01&format=text", headers)
    if not name:
        raise _ServiceError("the instance has no name")
    yield ""
    path = "/metadata/scheduledevents?api-version=2020-07-01"
    while True:
        text = _fetch(path, headers, seconds=FIRST_EVENTS_SECONDS)
        try:
            events = [
                f"{event['EventType']} at {event.get('NotBefore') or 'once'}"
                for event in json.loads(text)["Events"]
                if event["EventType"] in ("Preempt", "Terminate")
                and name.casefold() in map(str.casefold, event["Resources"])
            ]
        except _JSON_ERRORS:
            raise _unexpected_answer(path, _OK, text) from None
        yield events[0] if events else ""


_SERVICES = {"aws": _aws_notices, "gcp": _gcp_notices, "azure": _azure_notices}
NOTICE_SERVICES = ("none", "auto", *_SERVICES)
"""Choices of the option ``--notice``; auto detects the service that answers."""


def check_notice_service(service: Any) -> None:
    """Raise `InputError` if the service is unknown."""
    if service not in NOTICE_SERVICES:
        raise InputError(f"notice {shorten(service)}: expected {', '.join(NOTICE_SERVICES)}")


@contextmanager
def watch_notices(
    service: str, on_notice: Callable[[str], None], pause: float = NOTICE_POLL_SECONDS
) -> Iterator[None]:
    """Context manager that calls a function in a thread after a notice of preemption.

    If a service does not answer, a note is printed, and the request is repeated. With auto the
    first service that answers within ten seconds is used; if none answers, a note is printed.

    Parameters
    ----------
    service : {"none", "auto", "aws", "gcp", "azure"}
    on_notice : callable
        Called with the text of the notice, at most once.
    pause : float
        Seconds between requests.

    Raises
    ------
    InputError
        The service is unknown.
    """
    check_notice_service(service)
    stop_event = threading.Event()
    if service != "none":
        arguments = service, on_notice, pause, stop_event
        threading.Thread(target=_watch, args=arguments, daemon=True, name="notices").start()
    try:
        yield
    finally:
        stop_event.set()


def _watch(
    service: str, on_notice: Callable[[str], None], pause: float, stop_event: threading.Event
) -> None:
    """Poll a service until a notice comes, or until the watch ends."""
    if service == "auto" and not (service := _detect_service(pause, stop_event)):
        return
    has_failed = False
    while not stop_event.is_set():
        try:
            for notice in _SERVICES[service]():
                if stop_event.wait(0 if notice else pause):
                    return
                if notice:
                    on_notice(f"the notice of {service} ({printable(notice)[:_MAX_NOTICE_LENGTH]})")
                    return
        except _ServiceError as error:
            if not has_failed and not stop_event.is_set():
                print_note(f"notice {service}: no usable answer ({error}); trying again")
            has_failed = True
        stop_event.wait(pause)


def _detect_service(pause: float, stop_event: threading.Event) -> str:
    """Return the service that answers; print a note and return "" if none answers in time."""
    deadline = time.monotonic() + SERVICE_SECONDS
    while time.monotonic() < deadline and not stop_event.is_set():
        for service, notices in _SERVICES.items():
            try:
                next(notices(), None)
            except _ServiceError:
                continue
            return service
        stop_event.wait(pause)
    if not stop_event.is_set():
        print_note(
            "notice auto: neither aws, gcp nor azure answers; this process leaves only on SIGTERM "
            "or SIGUSR1"
        )
    return ""
