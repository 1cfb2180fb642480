"""Delivers to each sink what its outbox has, each change at least once: one that is slow or down delays no other."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import apprise

from kafka_telemetry_lake.pipelines.notify.alerts import Alert, Alerts
from kafka_telemetry_lake.pipelines.notify.file import AlertmanagerSink, AppriseSink, NotifyFile, WebhookSink
from kafka_telemetry_lake.pipelines.notify.http import Answer, RefusedError, SinkDownError, post_json
from kafka_telemetry_lake.pipelines.notify.messages import Message, Messages, kind, text, title
from kafka_telemetry_lake.pipelines.notify.outbox import Outbox
from kafka_telemetry_lake.pipelines.query.printable import printable_json
from kafka_telemetry_lake.pipelines.runtime.ambient import explicit_settings_win
from kafka_telemetry_lake.pipelines.runtime.retries import describe, pause_after
from kafka_telemetry_lake.pipelines.runtime.trust import trust_what_the_machine_trusts

log = logging.getLogger(__name__)
Clock = Callable[[], datetime]

ALERTS_AT_ONCE = 500
ALERTMANAGER_PATH = "/api/v2/alerts"
ALERTMANAGER_ASKED = "is it an Alertmanager with API v2?"


def _now() -> datetime:
    return datetime.now(UTC)


class Delivery(ABC):
    """What is sent to one sink."""

    def __init__(self, outbox: Outbox[Any]) -> None:
        self.name = outbox.sink

    @abstractmethod
    def deliver(self, ended: threading.Event) -> None:
        """Read the changes that are new, and send all that is due, or what there is time for until `ended` is set.

        Raises:
            SinkDownError: the sink didn't take a message; another delivery sends it again.
        """


class AlertDelivery(Delivery):
    """Sends all open alerts at intervals, and after each change."""

    def __init__(self, alerts: Alerts, sink: AlertmanagerSink, clock: Clock) -> None:
        super().__init__(alerts)
        self._alerts, self._sink, self._clock = alerts, sink, clock
        self._resend_at = datetime.min.replace(tzinfo=UTC)

    def deliver(self, ended: threading.Event) -> None:
        now, is_due = self._clock(), False
        while not ended.is_set() and self._alerts.take():
            is_due = True
        if ended.is_set() or (not is_due and now < self._resend_at):
            return
        alerts = self._alerts.alerts(now, self._sink.expire_seconds)
        for first in range(0, len(alerts), ALERTS_AT_ONCE):
            self._send(alerts[first : first + ALERTS_AT_ONCE])
        self._alerts.done()
        self._resend_at = now + timedelta(seconds=self._sink.resend_seconds)

    def _send(self, alerts: list[Alert]) -> None:
        try:
            post_json(self._sink.url, ALERTMANAGER_PATH, self._sink.headers, alerts, _of_alertmanager)
        except RefusedError as error:  # it has taken the others, and all are sent again
            raise SinkDownError(f"{error}; {ALERTMANAGER_ASKED}") from None


class MessageDelivery(Delivery):
    """Sends one message after the other, at most so many a minute."""

    def __init__(self, messages: Messages, per_minute: int, send: Callable[[Message], None]) -> None:
        super().__init__(messages)
        self._messages, self._send, self._pause_s = messages, send, 60 / per_minute
        self._next_at = time.monotonic()

    def deliver(self, ended: threading.Event) -> None:
        while not ended.is_set():
            while self._messages.take():
                pass
            message = self._messages.next_message()
            if message is None or ended.wait(max(0.0, self._next_at - time.monotonic())):
                return
            try:
                self._send(message)
            except RefusedError as error:
                parked = self._messages.park(message.id, message.content())
                log.error("notify: %s: %s; it is stored in %s, and the next one is sent", self.name, error, parked)
            else:
                log.info("notify: %s: %d changes sent", self.name, len(message.changes))
            self._messages.done()
            self._next_at = time.monotonic() + self._pause_s


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
    post_json(sink.url, "", {**sink.headers, "Idempotency-Key": message.id}, message.content())


def to_apprise(sink: AppriseSink, message: Message) -> None:
    """Send a message for people. Raises ``SinkDownError``: it wasn't sent."""
    try:
        target = apprise.Apprise()
        target.add(sink.url.get_secret_value())
        sent = target.notify(
            title=title(message.changes),
            body=text(message.changes),
            notify_type=kind(message.changes),
            body_format=apprise.NotifyFormat.TEXT,
        )
    except Exception as error:  # plugins raise what they like, with the URL in it
        raise SinkDownError(f"apprise fails with {type(error).__name__}") from None
    if not sent:
        raise SinkDownError("apprise can't send it; the command `apprise -vv` of the same URL says why")


def delivery(lake: str, name: str, file: NotifyFile, clock: Clock = _now) -> Delivery:
    """The delivery for a sink of the file.

    Raises:
        StateError: its file in the lake is damaged.
    """
    trust_what_the_machine_trusts()  # for apprise, which makes its requests itself
    explicit_settings_win()
    sink = file.sinks[name]
    if isinstance(sink, AlertmanagerSink):
        return AlertDelivery(Alerts(lake, name, sink.match), sink, clock)
    send = partial(to_webhook, sink) if isinstance(sink, WebhookSink) else partial(to_apprise, sink)
    return MessageDelivery(Messages(lake, name, sink.match), sink.per_minute, send)


def deliveries(lake: str, file: NotifyFile, clock: Clock = _now) -> list[Delivery]:
    """One delivery for each sink of the file."""
    return [delivery(lake, name, file, clock) for name in file.sinks]


def previews(lake: str, file: NotifyFile, now: datetime) -> Iterator[str]:
    """A JSON object for each request that would be sent now. Nothing is sent or written."""
    for name, sink in file.sinks.items():
        if isinstance(sink, AlertmanagerSink):
            alerts = Alerts(lake, name, sink.match, writes=False)
            while alerts.take():
                pass
            if content := alerts.alerts(now, sink.expire_seconds):
                yield printable_json({"sink": name, "alerts": content})
            continue
        messages = Messages(lake, name, sink.match, writes=False)
        while messages.take() or messages.waiting:
            if (message := messages.next_message()) is not None:
                shown = message.content()
                if isinstance(sink, AppriseSink):
                    shown = {"title": title(message.changes), "text": text(message.changes)}
                yield printable_json({"sink": name, **shown})
                messages.done()


def send_all(deliveries: Sequence[Delivery], stop: threading.Event, give_up_s: float) -> list[str]:
    """Deliver until there is nothing more to send, or until `stop` is set.

    Args:
        give_up_s: try a sink for so long.

    Returns:
        A line for each sink that was given up.
    """
    with ThreadPoolExecutor(len(deliveries), "notify") as threads:
        problems = list(threads.map(lambda each: _send_all(each, stop, give_up_s), deliveries))
    return [f"{each.name}: {problem}" for each, problem in zip(deliveries, problems, strict=True) if problem]


def _send_all(delivery: Delivery, stop: threading.Event, give_up_s: float) -> str | None:
    deadline, failures = time.monotonic() + give_up_s, 0
    while not stop.is_set():
        try:
            delivery.deliver(stop)
            return None
        except Exception as error:
            failures += 1
            pause, reason = pause_after(failures, error), describe(error)
            if time.monotonic() + pause > deadline:
                return reason
            log.warning("notify: %s: %s; tried again in %.0f s", delivery.name, reason, pause)
        stop.wait(pause)
    return None
