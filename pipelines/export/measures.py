"""What is exported of a fleet: measures of view `client_measures` under Prometheus' names, and their labels.

Names follow https://prometheus.io/docs/practices/naming/: base units (seconds, bytes, ratios), `_total` of counters.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

PREFIX = "telemetry_lake"
KAFKA = "org.apache.kafka."
CLIENTS = ("producer.", "consumer.", "admin.client.")
FETCHES = ("consumer.fetch.manager.", "consumer.share.fetch.manager.")
OTHER, REST = "other", "rest"  # the value of labels of all series beyond the first N, and the label that only they have
LONGEST_LABEL = 256  # characters
UNCOUNTED = ("duplicate", "conflict", "too_late")  # statuses of points that view counted_points leaves out


@dataclass(frozen=True)
class Dimension:
    """What tells series apart, besides the cluster.

    Attributes:
        columns: column of the counted rows to its label.
    """

    name: str
    columns: dict[str, str]
    whose: str

    @property
    def labels(self) -> tuple[str, ...]:
        return ("cluster_id", *self.columns.values())


DIMENSIONS = {
    each.name: each
    for each in (
        Dimension("client", {"client_id": "client_id"}, "of clients with this client id"),
        Dimension("application", {"application": "application"}, "of an application's clients"),
        Dimension("topic", {"topic": "topic"}, "of a topic"),
        Dimension(
            "software",
            {"client_software_name": "software_name", "client_software_version": "software_version"},
            "of clients of this library and version",
        ),
        Dimension(
            "instance", {"client_instance_id": "client_instance_id", "client_id": "client_id"}, "of a client instance"
        ),
    )
}
DEFAULT_DIMENSIONS = ("client", "application", "topic", "software")


@dataclass(frozen=True)
class Counted:
    """A counter: the sum of the deltas of some metrics.

    Attributes:
        measure: column of `client_measures` with the same sum.
        name: without prefix and `_total`.
        metrics: of whole clients, without `org.apache.kafka.`
        topic_metrics: of topics.
        divisor: what a delta is divided by to get the name's unit.
    """

    measure: str
    name: str
    meaning: str
    metrics: tuple[str, ...]
    topic_metrics: tuple[str, ...] = ()
    divisor: int = 1


@dataclass(frozen=True)
class Level:
    """A gauge: the mean or the greatest of the values that were pushed within the window.

    Attributes:
        above_zero: a value of 0 says that nothing was measured.
    """

    measure: str
    name: str
    meaning: str
    metrics: tuple[str, ...]
    is_mean: bool
    divisor: int = 1
    above_zero: bool = False


def _of(prefixes: tuple[str, ...], *endings: str) -> tuple[str, ...]:
    return tuple(f"{prefix}{ending}" for prefix, ending in itertools.product(prefixes, endings))


COUNTERS = (
    Counted(
        "records_sent", "records_sent", "Records sent",
        ("producer.record.send.total",), ("producer.topic.record.send.total",),
    ),
    Counted(
        "bytes_sent", "sent_bytes", "Bytes of record batches as sent",
        ("producer.topic.byte.total",), ("producer.topic.byte.total",),
    ),
    Counted(
        "record_retries", "record_retries", "Sends of records that were retried",
        ("producer.record.retry.total",), ("producer.topic.record.retry.total",),
    ),
    Counted(
        "record_errors", "record_errors", "Records that could not be sent",
        ("producer.record.error.total",), ("producer.topic.record.error.total",),
    ),
    Counted(
        "records_consumed", "records_consumed", "Records fetched",
        _of(FETCHES, "records.consumed.total"), _of(FETCHES, "records.consumed.total"),
    ),
    Counted(
        "bytes_consumed", "consumed_bytes", "Bytes fetched",
        _of(FETCHES, "bytes.consumed.total"), _of(FETCHES, "bytes.consumed.total"),
    ),
    Counted(
        "rebalance_ms", "rebalance_seconds", "Time spent in rebalances",
        ("consumer.coordinator.rebalance.latency.total",), divisor=1000,
    ),
    Counted(
        "connections_created", "connections_created", "Connections opened", _of(CLIENTS, "connection.creation.total"),
    ),
    Counted("requests", "requests", "Requests sent", _of(CLIENTS, "request.total")),
    Counted("bytes_out", "outgoing_bytes", "Bytes of all requests", _of(CLIENTS, "outgoing.byte.total")),
    Counted("bytes_in", "incoming_bytes", "Bytes of all responses", _of(CLIENTS, "incoming.byte.total")),
)  # fmt: skip
LEVELS = (
    Level("queue_time_avg_ms", "queue_time_mean_seconds", "Mean time of records in the producer's queue",
          ("producer.record.queue.time.avg",), True, 1000),
    Level("queue_time_max_ms", "queue_time_max_seconds", "Longest time of a record in the producer's queue",
          ("producer.record.queue.time.max",), False, 1000),
    Level("compression_ratio", "compression_ratio", "Mean compressed by uncompressed size of batches",
          ("producer.compression.rate.avg",), True),
    Level("records_lag_max", "records_lag_max", "Most records of a partition that a consumer still has to fetch",
          ("consumer.fetch.manager.records.lag.max",), False),
    Level("fetch_latency_avg_ms", "fetch_latency_mean_seconds", "Mean time of a fetch request, with the wait for data",
          _of(FETCHES, "fetch.latency.avg"), True, 1000),
    Level("poll_idle_ratio", "poll_idle_ratio", "Mean share of time that applications spend in poll()",
          ("consumer.poll.idle.ratio.avg", "consumer.share.poll.idle.ratio.avg"), True),
    Level("commit_latency_avg_ms", "commit_latency_mean_seconds", "Mean time of a commit of offsets",
          ("consumer.coordinator.commit.latency.avg",), True, 1000),
    Level("request_latency_avg_ms", "request_latency_mean_seconds", "Mean time from a request to its response",
          _of(CLIENTS, "node.request.latency.avg"), True, 1000, above_zero=True),
    Level("request_latency_max_ms", "request_latency_max_seconds", "Longest time from a request to its response",
          _of(CLIENTS, "node.request.latency.max"), False, 1000, above_zero=True),
    Level("throttle_time_max_ms", "throttle_time_max_seconds", "Longest delay by a quota",
          ("producer.produce.throttle.time.max", *_of(FETCHES, "fetch.throttle.time.max")), False, 1000),
)  # fmt: skip


def counted_rows() -> list[dict[str, str | bool | None]]:
    """Which points count in which counter: metric, measure, level (client or topic), with_topic (None: either)."""
    rows: list[dict[str, str | bool | None]] = []
    for each in COUNTERS:
        both = set(each.metrics) & set(each.topic_metrics)
        for metric in each.metrics:
            # A consumer pushes the same metric for itself and for each topic, a producer its bytes per topic only.
            with_topic = False if metric in both and metric.startswith("consumer.") else None
            rows.append(
                {"metric": KAFKA + metric, "measure": each.measure, "level": "client", "with_topic": with_topic}
            )
        rows += [
            {"metric": KAFKA + metric, "measure": each.measure, "level": "topic", "with_topic": True}
            for metric in each.topic_metrics
        ]
    return rows


def level_rows() -> list[dict[str, str | bool]]:
    """Which points are values of which gauge: metric, measure, above_zero."""
    return [
        {"metric": KAFKA + metric, "measure": each.measure, "above_zero": each.above_zero}
        for each in LEVELS
        for metric in each.metrics
    ]


def read_metrics() -> list[str]:
    """The metrics of both."""
    return sorted({*(str(row["metric"]) for row in counted_rows()), *(str(row["metric"]) for row in level_rows())})
