"""A metadata service of AWS, Google Cloud or Azure."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from helpers.waiting import LIMIT

EVENT = {
    "EventId": "1",
    "EventType": "Preempt",
    "ResourceType": "VirtualMachine",
    "Resources": ["vm_1"],
    "EventStatus": "Scheduled",
    "NotBefore": "Sat, 28 Nov 2026 12:00:00 GMT",
}


class MetadataService:
    """A service whose answers a test can change.

    Attributes
    ----------
    service : str
        aws, gcp or azure.
    is_preempted : threading.Event
        Set when the service has a notice of preemption.
    events : list
        Events of the notice of Azure.
    overrides : dict of str to (tuple or None)
        Answers (status, text) to paths with this prefix; None means no answer.
    tokens : list of str
        Tokens of AWS; only the last one is valid.
    requests : list of str
        The requests so far.
    """

    def __init__(self, service: str) -> None:
        self.service = service
        self.is_preempted = threading.Event()
        self.events: list[dict[str, object]] = [EVENT]
        self.overrides: dict[str, tuple[int, str] | None] = {}
        self.tokens: list[str] = []
        self.requests: list[str] = []
        self.has_ended = threading.Event()
        self.address = ""

    def answer(self, method: str, target: str, headers) -> tuple[int, str, dict[str, str]]:
        self.requests.append(f"{method} {target}")
        path = urlsplit(target).path
        for prefix, override in list(self.overrides.items()):
            if path.startswith(prefix):
                if override is None:
                    self.has_ended.wait(LIMIT)
                return *(override or (500, "")), {}
        answer = getattr(self, f"_{self.service}")(
            method, path, parse_qs(urlsplit(target).query), headers
        )
        return answer or (404, "not found", {})

    def _aws(self, method, path, query, headers):
        if (method, path) == ("PUT", "/latest/api/token"):
            assert 1 <= int(headers["X-aws-ec2-metadata-token-ttl-seconds"]) <= 21600
            self.tokens.append(f"token-{len(self.tokens)}==")
            return 200, self.tokens[-1], {}
        if headers["X-aws-ec2-metadata-token"] not in self.tokens[-1:]:
            return 401, "", {}
        if path == "/latest/meta-data/spot/instance-action" and self.is_preempted.is_set():
            action = {"action": "terminate", "time": "2026-11-28T12:00:00Z"}
            return 200, json.dumps(action), {}
        return None

    def _gcp(self, method, path, query, headers):
        if headers["Metadata-Flavor"] != "Google":
            return 403, "", {}
        if (method, path) != ("GET", "/computeMetadata/v1/instance/preempted"):
            return None
        etag = "b" * 16 if self.is_preempted.is_set() else "a" * 16
        if query.get("wait_for_change") == ["true"] and query["last_etag"] == [etag]:
            self.is_preempted.wait(float(query["timeout_sec"][0]))
        is_preempted = self.is_preempted.is_set()
        headers = {"Metadata-Flavor": "Google", "ETag": ("b" if is_preempted else "a") * 16}
        return 200, "TRUE" if is_preempted else "FALSE", headers

    def _azure(self, method, path, query, headers):
        if headers["Metadata"] != "true" or "api-version" not in query:
            return 400, "", {}
        if path == "/metadata/instance/compute/name" and query["format"] == ["text"]:
            return 200, "vm_1", {}
        if path == "/metadata/scheduledevents":
            events = self.events if self.is_preempted.is_set() else []
            return 200, json.dumps({"DocumentIncarnation": 1, "Events": events}), {}
        return None


@contextmanager
def serve(service: str) -> Iterator[MetadataService]:
    """Serve metadata on a port of this computer."""
    metadata = MetadataService(service)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, text, headers = metadata.answer(self.command, self.path, self.headers)
            try:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(text.encode())
            except OSError:  # the client has disconnected
                pass

        do_PUT = do_GET

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        metadata.address = f"127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield metadata
        finally:
            metadata.has_ended.set()
            metadata.is_preempted.set()
            server.shutdown()
            thread.join()
