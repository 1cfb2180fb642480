"""A receiver of telemetry that answers by a script, in front of a broker that answers everything else."""

from __future__ import annotations

import struct
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from kafka_telemetry_lake.pipelines.runtime.kafka_reach import API_VERSIONS, GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY
from kafka_telemetry_lake.sandbox.cluster.proxy import AddressProxy
from kafka_telemetry_lake.sandbox.conformance.wire import (
    NO_INSTANCE,
    Push,
    Subscription,
    asking_instance,
    header,
    push_answer,
    push_of,
    software_of,
    subscription_answer,
    with_telemetry,
)

_NAMES = {
    API_VERSIONS: "ApiVersions",
    GET_TELEMETRY_SUBSCRIPTIONS: "GetTelemetrySubscriptions",
    PUSH_TELEMETRY: "PushTelemetry",
}
# JoinGroup, ConsumerGroupHeartbeat, ShareGroupHeartbeat, StreamsGroupHeartbeat
_OF_MEMBERS = frozenset((11, 68, 76, 88))
UNKNOWN_SUBSCRIPTION_ID, TELEMETRY_TOO_LARGE = 117, 118


@dataclass
class Exchange:
    """A telemetry request and its answer.

    Attributes:
        at: when it came, in seconds of one clock.
        instance: the client instance id that it has; ``NO_INSTANCE``: none.
        subscription: of a GetTelemetrySubscriptions request, the subscription in the answer.
        assigned_instance: the client instance id in that answer.
        push: what is pushed; None: it is a GetTelemetrySubscriptions request.
        error: code in the answer.
        answered: when the answer was sent; None: it waits for those to earlier requests, or its connection ended.
    """

    at: float
    instance: bytes
    subscription: Subscription | None = None
    assigned_instance: bytes = NO_INSTANCE
    push: Push | None = None
    error: int = 0
    answered: float | None = None


class ScriptedReceiver(AddressProxy):
    """A proxy that answers telemetry requests itself, as a broker with a receiver would, and as its script says.

    A push of another subscription than the current one gets UNKNOWN_SUBSCRIPTION_ID, one larger than allowed
    TELEMETRY_TOO_LARGE. What can't be read goes to the broker, which answers it or ends the connection. Producers
    behind it must ask for acknowledgements: answers are sent in the order of requests.

    Args:
        upstream: port of the broker.
        subscription: what it tells clients from now on.

    Attributes:
        errors: codes for the next pushes, one each, in place of what they would get.
        exchanges: all telemetry requests so far.
        software: name and version, as the client says them (KIP-511).
        malformed: names of requests that can't be read, and why.
        heard: when the last request of any kind came, in seconds of the exchanges' clock.
        in_group: whether a request was one of a member of a group.
        changed: is notified of each request and each answer.
    """

    def __init__(self, upstream: int, subscription: Subscription) -> None:
        super().__init__([upstream], moves=1)
        self.subscription = subscription
        self.errors: list[int] = []
        self.exchanges: list[Exchange] = []
        self.software = "", ""
        self.malformed: list[str] = []
        self.heard = 0.0
        self.in_group = False
        self.changed = threading.Condition()

    def own_answer(self, request: bytes) -> tuple[bytes, Callable[[], None]] | None:
        """The answer to a telemetry request; None: it is another."""
        key, _, correlation_id = header(request)
        self.heard = time.monotonic()
        self.in_group |= key in _OF_MEMBERS
        try:
            if key == API_VERSIONS and not any(self.software):
                self.software = software_of(request)
            if key in (GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY):
                return self._telemetry_answer(key, correlation_id, request)
        except (ValueError, IndexError, struct.error) as error:
            with self.changed:
                self.malformed.append(f"{_NAMES[key]}: {error}")
        return None

    def _telemetry_answer(self, key: int, correlation_id: int, request: bytes) -> tuple[bytes, Callable[[], None]]:
        exchange = Exchange(time.monotonic(), asking_instance(request))
        with self.changed:
            if key == GET_TELEMETRY_SUBSCRIPTIONS:
                exchange.subscription = self.subscription
                known = exchange.instance != NO_INSTANCE
                exchange.assigned_instance = exchange.instance if known else uuid.uuid4().bytes
                answer = subscription_answer(correlation_id, exchange.assigned_instance, exchange.subscription)
            else:
                exchange.push = push_of(request)
                exchange.error = self._error_of(exchange.push)
                answer = push_answer(correlation_id, exchange.error)
            self.exchanges.append(exchange)
            self.changed.notify_all()
        return answer, lambda: self._sent(exchange)

    def passed_on(self, key: int, version: int, answer: bytes) -> bytes:
        """A broker's answer; one to ApiVersions offers telemetry."""
        return with_telemetry(answer, version) if key == API_VERSIONS else answer

    def cut_all(self) -> None:
        """Close all connections. The addresses stay and accept new ones."""
        for port in list(self._servers):
            self._do(self._cut(port))

    def _error_of(self, push: Push) -> int:
        if self.errors:
            return self.errors.pop(0)
        if push.subscription_id != self.subscription.id:
            return UNKNOWN_SUBSCRIPTION_ID
        return TELEMETRY_TOO_LARGE if len(push.metrics) > self.subscription.max_bytes else 0

    def _sent(self, exchange: Exchange) -> None:
        with self.changed:
            exchange.answered = time.monotonic()
            self.changed.notify_all()
