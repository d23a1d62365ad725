"""Notices of preemption, from the metadata service of AWS, Google Cloud or Azure.

Each service answers HTTP requests at an address that only the instance itself can reach:

- AWS (IMDSv2): a token, and with it ``spot/instance-action``, which is not found until the notice.
- Google Cloud: ``instance/preempted``, FALSE or TRUE; a request can wait for the change.
- Azure: scheduled events of the instance and its neighbours, of the types Preempt and Terminate.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

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

ADDRESS_VARIABLE = "CEC_MPI_METADATA"  # HOST:PORT of a server to ask in place of the services
_ADDRESS = "169.254.169.254"  # of all three services
_MAX_BYTES = 1 << 20  # of an answer
_MAX_TEXT = 100  # characters of a notice
_OK, _UNAUTHORIZED, _NOT_FOUND = 200, 401, 404
_WRONG_JSON = ValueError, TypeError, KeyError, AttributeError, RecursionError


class _NoAnswerError(Exception):
    """The service has not answered as its documentation says."""


def _ask(
    path: str, headers: Mapping[str, str], method: str = "GET", seconds: float = METADATA_SECONDS
) -> tuple[int, HTTPMessage, str]:
    """Return the status, the headers and the text of an answer; no proxy is asked."""
    from http.client import HTTPConnection, HTTPException

    try:
        address = os.environ.get(ADDRESS_VARIABLE, _ADDRESS)
        with closing(HTTPConnection(address, timeout=seconds)) as connection:
            connection.request(method, path, headers=dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read(_MAX_BYTES).decode().strip()
    except (OSError, HTTPException, ValueError) as error:
        raise _NoAnswerError(str(error) or type(error).__name__) from None


def _unexpected(path: str, status: int, text: str) -> _NoAnswerError:
    return _NoAnswerError(f"{path.partition('?')[0]} has status {status}: {shorten(text)}")


def _fetch(path: str, headers: Mapping[str, str], seconds: float = METADATA_SECONDS) -> str:
    """Return the text of an answer with status 200."""
    status, _, text = _ask(path, headers, seconds=seconds)
    if status != _OK:
        raise _unexpected(path, status, text)
    return text


# Each of these generators asks its service again and again. It yields an empty text after each
# request that shows no notice, and the notice in words when it has come. It ends if it must begin
# again.


def _aws_notices() -> Iterator[str]:
    path, lifetime = "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}
    status, _, token = _ask(path, lifetime, "PUT")
    if status != _OK or not token.isascii() or not token.isprintable():
        raise _unexpected(path, status, token)
    path = "/latest/meta-data/spot/instance-action"
    while True:
        status, _, text = _ask(path, {"X-aws-ec2-metadata-token": token})
        if status == _UNAUTHORIZED:  # the token has expired
            return
        if status not in (_OK, _NOT_FOUND):
            raise _unexpected(path, status, text)
        yield "" if status == _NOT_FOUND else _aws_action(path, text)


def _aws_action(path: str, text: str) -> str:
    try:
        action = json.loads(text)
        return f"{action['action']} at {action['time']}"
    except _WRONG_JSON:
        raise _unexpected(path, _OK, text) from None


def _gcp_notices() -> Iterator[str]:
    path, flavor = "/computeMetadata/v1/instance/preempted", "Google"
    query, seconds = "", METADATA_SECONDS
    while True:
        status, headers, text = _ask(path + query, {"Metadata-Flavor": flavor}, seconds=seconds)
        is_flavor = headers.get("Metadata-Flavor") == flavor
        if status != _OK or not is_flavor or text not in ("FALSE", "TRUE"):
            raise _unexpected(path, status, text)
        yield "preempted" if text == "TRUE" else ""
        if (etag := headers.get("ETag", "")).isalnum():  # the last value that was seen
            query = f"?wait_for_change=true&timeout_sec={NOTICE_WAIT_SECONDS:g}&last_etag={etag}"
            seconds = NOTICE_WAIT_SECONDS + METADATA_SECONDS


def _azure_notices() -> Iterator[str]:
    headers = {"Metadata": "true"}
    name = _fetch("/metadata/instance/compute/name?api-version=2021-02-01&format=text", headers)
    if not name:
        raise _NoAnswerError("the instance has no name")
    yield ""
    path = "/metadata/scheduledevents?api-version=2020-07-01"
    while True:
        text = _fetch(path, headers, seconds=FIRST_EVENTS_SECONDS)
        try:
            found = [
                f"{event['EventType']} at {event.get('NotBefore') or 'once'}"
                for event in json.loads(text)["Events"]
                if event["EventType"] in ("Preempt", "Terminate")
                and name.casefold() in map(str.casefold, event["Resources"])
            ]
        except _WRONG_JSON:
            raise _unexpected(path, _OK, text) from None
        yield found[0] if found else ""


_SERVICES = {"aws": _aws_notices, "gcp": _gcp_notices, "azure": _azure_notices}
NOTICES = ("none", "auto", *_SERVICES)
"""Services that can be asked; auto asks the one that answers."""


@contextmanager
def watch_notices(
    service: str, on_notice: Callable[[str], None], pause: float = NOTICE_POLL_SECONDS
) -> Iterator[None]:
    """Within a ``with``, call a function in a thread when the notice of preemption comes.

    A service that does not answer is asked again, after a note. With auto the first one that
    answers within ten seconds is asked; if none does, a note is printed.

    Parameters
    ----------
    service : {"none", "auto", "aws", "gcp", "azure"}
    on_notice : callable
        Takes the notice in words; called once at most.
    pause : float
        Seconds between two requests.

    Raises
    ------
    InputError
        The service is unknown.
    """
    if service not in NOTICES:
        raise InputError(f"notice {shorten(service)}: expected {', '.join(NOTICES)}")
    has_ended = threading.Event()
    if service != "none":
        arguments = service, on_notice, pause, has_ended
        threading.Thread(target=_watch, args=arguments, daemon=True, name="notices").start()
    try:
        yield
    finally:
        has_ended.set()


def _watch(
    service: str, on_notice: Callable[[str], None], pause: float, has_ended: threading.Event
) -> None:
    """Ask a service for the notice until it comes, or until the watch ends."""
    if service == "auto" and not (service := _detect(pause, has_ended)):
        return
    has_failed = False
    while not has_ended.is_set():
        try:
            for notice in _SERVICES[service]():
                if has_ended.wait(0 if notice else pause):
                    return
                if notice:
                    on_notice(f"the notice of {service} ({printable(notice)[:_MAX_TEXT]})")
                    return
        except _NoAnswerError as error:
            if not has_failed and not has_ended.is_set():
                print_note(f"notice {service}: no answer ({error}); asking again")
            has_failed = True
        has_ended.wait(pause)


def _detect(pause: float, has_ended: threading.Event) -> str:
    """Return the service that answers; empty, after a note, if none does in time."""
    due = time.monotonic() + SERVICE_SECONDS
    while time.monotonic() < due and not has_ended.is_set():
        for service, notices in _SERVICES.items():
            try:
                next(notices(), None)
            except _NoAnswerError:
                continue
            return service
        has_ended.wait(pause)
    if not has_ended.is_set():
        print_note(
            "notice auto: neither aws, gcp nor azure answers; this process leaves only when it "
            "gets SIGTERM"
        )
    return ""
