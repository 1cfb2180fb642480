"""Serves a fleet's figures: what was rendered after a refresh is the answer to all scrapes before the next one."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, make_wsgi_app

from kafka_telemetry_lake.pipelines.export.fleet import Fleet

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

ASKED_BY = ("REQUEST_METHOD", "QUERY_STRING", "HTTP_ACCEPT", "HTTP_ACCEPT_ENCODING")
RENDERED = 8  # forms that are kept: text and OpenMetrics, each plain and compressed, and some more


class RenderedOnce:
    """A WSGI application that answers /metrics with a fleet's figures."""

    def __init__(self, fleet: Fleet) -> None:
        registry = CollectorRegistry()
        registry.register(fleet)
        self._fleet, self._render = fleet, make_wsgi_app(registry)
        self._lock = threading.Lock()
        self._refreshes = -1
        self._answers: dict[tuple[str, ...], tuple[str, list[tuple[str, str]], list[bytes]]] = {}

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        asked = tuple(environ.get(name, "") for name in ASKED_BY)
        with self._lock:  # one of those that ask at the same time renders, the others wait for it
            if self._refreshes != self._fleet.refreshes or len(self._answers) >= RENDERED:
                self._refreshes = self._fleet.refreshes
                self._answers = {}
            if asked not in self._answers:
                self._answers[asked] = self._rendered(environ)
            status, headers, body = self._answers[asked]
        start_response(status, list(headers))
        return body

    def _rendered(self, environ: WSGIEnvironment) -> tuple[str, list[tuple[str, str]], list[bytes]]:
        said: list[Any] = []
        body = list(self._render(environ, lambda status, headers: said.extend((status, headers))))
        status, headers = said
        return status, headers, body
