"""Delivers a sink's messages: one step at a time, each at least once."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import apprise

from kafka_telemetry_lake.pipelines.notify import readable
from kafka_telemetry_lake.pipelines.notify.alerts import Alerts
from kafka_telemetry_lake.pipelines.notify.file import AlertmanagerSink, AppriseSink, KafkaSink, NotifyFile, WebhookSink
from kafka_telemetry_lake.pipelines.notify.http import Answer, RefusedError, SinkDownError, post_json
from kafka_telemetry_lake.pipelines.notify.messages import Message, Messages
from kafka_telemetry_lake.pipelines.notify.outbox import Outbox
from kafka_telemetry_lake.pipelines.notify.topic import Machine, Topic
from kafka_telemetry_lake.pipelines.query.printable import printable_json
from kafka_telemetry_lake.pipelines.runtime.ambient import explicit_settings_win
from kafka_telemetry_lake.pipelines.runtime.trust import trust_what_the_machine_trusts

log = logging.getLogger(__name__)

ALERTS_AT_ONCE = 500
ALERTMANAGER_PATH = "/api/v2/alerts"
ALERTMANAGER_ASKED = "is it an Alertmanager with API v2?"


class Delivery(ABC):
    """What is sent to one sink."""

    def __init__(self, outbox: Outbox) -> None:
        self.name = outbox.sink

    @abstractmethod
    def step(self, now: datetime, at_once: bool) -> float | None:
        """Read new changes and send what is due.

        Args:
            at_once: everything is due.

        Returns:
            Seconds until there may be more to do; None: not before there are new changes.

        Raises:
            SinkDownError: the sink didn't take a message; the next step sends it again.
        """

    def close(self) -> None:  # noqa: B027  # most have none
        """End connections that last from one message to the next."""


class AlertDelivery(Delivery):
    """Sends all open alerts at intervals, and after each change."""

    def __init__(self, alerts: Alerts, sink: AlertmanagerSink) -> None:
        super().__init__(alerts)
        self._alerts, self._sink = alerts, sink
        self._resend_at = datetime.min.replace(tzinfo=UTC)

    def step(self, now: datetime, at_once: bool) -> float | None:
        if self._alerts.take(now):
            self._resend_at = now
            return 0.0
        if now >= self._resend_at:
            alerts = self._alerts.alerts(now, self._sink.expire_seconds)
            for first in range(0, len(alerts), ALERTS_AT_ONCE):
                self._send(alerts[first : first + ALERTS_AT_ONCE])
            self._alerts.done()
            self._resend_at = now + timedelta(seconds=self._sink.resend_seconds)
        return None if at_once else (self._resend_at - now).total_seconds()

    def _send(self, alerts: list[dict[str, Any]]) -> None:
        try:
            post_json(self._sink.url, ALERTMANAGER_PATH, self._sink.headers, alerts, _of_alertmanager)
        except RefusedError as error:  # it has taken the others, and all are sent again
            raise SinkDownError(f"{error}; {ALERTMANAGER_ASKED}") from None


class MessageDelivery(Delivery):
    """Sends one message after the other."""

    def __init__(self, messages: Messages, per_minute: float, send: Callable[[Message], None]) -> None:
        super().__init__(messages)
        self._messages, self._send = messages, send
        self._pause = timedelta(minutes=1 / per_minute)
        self._next_at = datetime.min.replace(tzinfo=UTC)

    def step(self, now: datetime, at_once: bool) -> float | None:
        if self._messages.take(now):
            return 0.0
        seconds = self._messages.seconds_until_due(now)
        if seconds is None or (seconds and not at_once):
            return seconds
        if timedelta() < self._next_at - now <= self._pause:
            return (self._next_at - now).total_seconds()
        message = self._messages.next_message()
        try:
            self._send(message)
        except RefusedError as error:
            parked = self._messages.park(message.id, vars(message))
            log.error("notify: %s: %s; it is stored in %s, and the next one is sent", self.name, error, parked)
        else:
            log.info("notify: %s: %d changes sent", self.name, len(message.changes))
        self._messages.done()
        self._next_at = now + self._pause
        return 0.0


class TopicDelivery(MessageDelivery):
    """Sends the changes of messages as records of a topic."""

    def __init__(self, messages: Messages, sink: KafkaSink, machine: Machine) -> None:
        self._topic = Topic(sink, machine)
        super().__init__(messages, sink.per_minute, lambda message: self._topic.send(message.changes))

    def close(self) -> None:
        self._topic.close()


def _of_alertmanager(answer: Answer) -> None:
    """An Alertmanager answers with nothing, one that is part of another server with JSON."""
    if answer.content_type not in ("", "application/json"):
        said = f"it answers HTTP {answer.status} with {answer.content_type[:80]}"
        raise SinkDownError(f"{said}; {ALERTMANAGER_ASKED}")


def to_webhook(sink: WebhookSink, message: Message) -> None:
    """Post a message.

    Raises:
        SinkDownError: the sink didn't take it.
        RefusedError: the sink would never take it.
    """
    post_json(sink.url, "", {**sink.headers, "Idempotency-Key": message.id}, vars(message))


def to_apprise(sink: AppriseSink, message: Message) -> None:
    """Send a message for people. Raises ``SinkDownError``: it wasn't sent."""
    try:
        target = apprise.Apprise()
        target.add(sink.url.get_secret_value())
        sent = target.notify(
            title=readable.title(message.changes),
            body=readable.text(message.changes),
            notify_type=readable.kind(message.changes),
            body_format=apprise.NotifyFormat.TEXT,
        )
    except Exception as error:  # plugins raise what they like, with the URL in it
        raise SinkDownError(f"apprise fails with {type(error).__name__}") from None
    if not sent:
        raise SinkDownError("apprise can't send it; the command `apprise -vv` of the same URL says why")


def delivery(lake: str, name: str, file: NotifyFile, machine: Machine | None = None) -> Delivery:
    """The delivery for a sink of the file.

    Args:
        machine: provides a JVM; needed only for a sink of type kafka.

    Raises:
        StateError: its file in the lake is damaged.
    """
    trust_what_the_machine_trusts()  # for apprise, which makes its requests itself
    explicit_settings_win()
    sink, is_first = file.sinks[name], name == next(iter(file.sinks))
    if isinstance(sink, AlertmanagerSink):
        return AlertDelivery(Alerts(lake, name, file, counts_unrouted=is_first), sink)
    messages = Messages(lake, name, file, counts_unrouted=is_first)
    if isinstance(sink, KafkaSink):
        assert machine is not None
        return TopicDelivery(messages, sink, machine)
    send = partial(to_webhook, sink) if isinstance(sink, WebhookSink) else partial(to_apprise, sink)
    return MessageDelivery(messages, sink.per_minute, send)


def deliveries(lake: str, file: NotifyFile, machine: Machine | None = None) -> list[Delivery]:
    """One delivery for each sink of the file."""
    return [delivery(lake, name, file, machine) for name in file.sinks]


def previews(lake: str, file: NotifyFile, now: datetime) -> Iterator[str]:
    """A JSON object for each request that would be sent now. Nothing is sent or written."""
    for number, (name, sink) in enumerate(file.sinks.items()):
        if isinstance(sink, AlertmanagerSink):
            alerts = Alerts(lake, name, file, writes=False, counts_unrouted=not number)
            while alerts.take(now):
                pass
            if content := alerts.alerts(now, sink.expire_seconds):
                yield printable_json({"sink": name, "alerts": content})
            continue
        messages = Messages(lake, name, file, writes=False, counts_unrouted=not number)
        while messages.take(now) or messages.seconds_until_due(now) is not None:
            if messages.seconds_until_due(now) is not None:
                message = messages.next_message()
                shown = vars(message)
                if isinstance(sink, AppriseSink):
                    shown = {"title": readable.title(message.changes), "text": readable.text(message.changes)}
                yield printable_json({"sink": name, **shown})
                messages.done()
