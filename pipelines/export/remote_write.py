"""Sends the figures of each refresh to an endpoint of Prometheus' remote write 1.0, in order, and with retries.

https://prometheus.io/docs/specs/prw/remote_write_spec/: an endpoint that is down, or answers 429 or 5xx, gets the same
request again; one that it refuses is dropped. Serving and reading go on meanwhile.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping

import snappy
from prometheus_client import Metric
from pydantic import SecretStr

from kafka_telemetry_lake.pipelines.export.measures import PREFIX
from kafka_telemetry_lake.pipelines.export.metrics import counter, gauge
from kafka_telemetry_lake.pipelines.export.prompb import STALE, write_request
from kafka_telemetry_lake.pipelines.notify.http import RefusedError, SinkDownError, pause_after, post

log = logging.getLogger(__name__)

SERIES = 2000  # of a request
WAITING = 120  # refreshes that wait while the endpoint is down; older ones are dropped
REFUSED = range(400, 500)  # all but 429: must not be sent again
TOO_MANY_REQUESTS = 429
HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}

Key = tuple[tuple[str, str], ...]  # sorted labels


class RemoteWrite:
    """The samples that one endpoint is to get.

    Args:
        headers: of each request, for tokens.
        extra: labels of all series, such as `job`.
    """

    def __init__(self, url: SecretStr, headers: Mapping[str, SecretStr], extra: Mapping[str, str]) -> None:
        self._url, self._extra = url.get_secret_value(), dict(extra)
        self._headers: dict[str, SecretStr | str] = {**headers, **HEADERS}
        self._refused = [status for status in REFUSED if status != TOO_MANY_REQUESTS]
        self._waiting: deque[tuple[bytes, int]] = deque()  # compressed requests, and their numbers of samples
        self._last: set[Key] = set()
        self._lock, self._ready = threading.Lock(), threading.Event()
        self._failures = 0
        self.sent = self.dropped = self.retries = 0

    def take(self, families: Iterable[Metric], time_s: float) -> None:
        """Take the samples of a refresh, and the end of series that are no longer among them."""
        series = {
            tuple(sorted({"__name__": sample.name, **self._extra, **sample.labels}.items())): float(sample.value)
            for family in families
            for sample in family.samples
        }
        samples = [(dict(key), value) for key, value in series.items()]
        samples += [(dict(key), STALE) for key in self._last - series.keys()]
        self._last = set(series)
        requests = [samples[first : first + SERIES] for first in range(0, len(samples), SERIES)]
        made = [(snappy.compress(write_request(part, round(time_s * 1000))), len(part)) for part in requests]
        dropped = 0
        with self._lock:
            self._waiting += made
            while len(self._waiting) > max(WAITING, len(made)):
                dropped += self._waiting.popleft()[1]
            self.dropped += dropped
        if dropped:
            log.warning("export: the endpoint of remote write is down for long: %d samples are dropped", dropped)
        self._ready.set()

    def step(self) -> float | None:
        """Send the next request; returns seconds until there may be more to do, None: when more is taken."""
        with self._lock:
            if not self._waiting:
                self._ready.clear()
                return None
            request = data, size = self._waiting[0]
        try:
            post(self._url, self._headers, data, self._refused)
        except SinkDownError as error:
            self._failures += 1
            self.retries += 1
            pause = pause_after(self._failures, error)
            log.warning("export: remote write: %s; tried again in %.0f s", error, pause)
            return pause
        except RefusedError as error:
            self.dropped += size
            log.error("export: remote write: %s: %d samples are dropped", error, size)
        else:
            self.sent += size
        self._failures = 0
        with self._lock:
            if self._waiting and self._waiting[0] is request:  # else it was dropped meanwhile
                self._waiting.popleft()
        return 0.0

    def run(self, ended: threading.Event) -> None:
        """Send until `ended` is set; then once more what waits, if the endpoint takes it at once."""
        while not ended.is_set():
            pause = self.step()
            if pause is None:
                self._ready.wait(0.5)
            elif pause:
                ended.wait(pause)
        while self._failures == 0 and self.step() == 0.0:
            pass

    def families(self) -> Iterator[Metric]:
        """How the sending goes."""
        for name, meaning, value in (
            ("sent_samples", "Samples that the endpoint of remote write took", self.sent),
            ("dropped_samples", "Samples that it refused, or that waited too long", self.dropped),
            ("retries", "Requests that it did not take, and that were sent again", self.retries),
        ):
            yield counter(f"{PREFIX}_export_remote_write_{name}", meaning, [({}, value)])
        yield gauge(f"{PREFIX}_export_remote_write_waiting_requests", "Requests that wait", [({}, len(self._waiting))])
