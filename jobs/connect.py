"""``telemetry-lake connect``: makes what a cluster lacks, with consent, then runs the job and prints the first rows."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from kafka_telemetry_lake.jobs import ingest
from kafka_telemetry_lake.jobs.settings.base import UsageError
from kafka_telemetry_lake.jobs.settings.connect import ConnectSettings
from kafka_telemetry_lake.jobs.settings.ingest import IngestSettings
from kafka_telemetry_lake.jobs.support.console import log_to_stdout
from kafka_telemetry_lake.jobs.support.new_rows import NewRows
from kafka_telemetry_lake.jobs.support.supervisor import Companion, stateless, supervised
from kafka_telemetry_lake.pipelines.doctor.cluster_checks import (
    LEAST_MESSAGE_BYTES,
    brokers_without_plugin,
    plugin_class,
)
from kafka_telemetry_lake.pipelines.doctor.cluster_facts import ClusterFacts, read_cluster
from kafka_telemetry_lake.pipelines.runtime.java_machine import java_machine
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import HasJvm, create_topic
from kafka_telemetry_lake.pipelines.runtime.kafka_reach import check_brokers
from kafka_telemetry_lake.pipelines.subscriptions.configured import create_subscription, read_subscriptions
from kafka_telemetry_lake.udfs.subscriptions.matching import Subscription

SUBSCRIPTION = "telemetry-lake"
LOOK_S = 2.0
END_PATIENCE_S = 5.0
BROKER_TEXT = """
What each broker needs (docs/receiver.md has the details):

1. The receiver's jar in its libs/ folder: `make receiver` builds receiver/target/client-telemetry-lake-receiver-*.jar
2. These lines in its server.properties:

{properties}

3. A restart
"""

log = logging.getLogger("telemetry-lake")


@dataclass(frozen=True)
class ClusterChange:
    """A change of the cluster."""

    text: str
    make: Callable[[], None]


def run_job(settings: ConnectSettings) -> int:
    """Prepare the cluster, then ingest until a signal; nothing is changed without consent."""
    log_to_stdout("INFO")
    topics = _topics(settings)
    subscription = Subscription(SUBSCRIPTION, (settings.metrics,), round(1000 * settings.interval_seconds)).check()
    check_brokers(settings.bootstrap_servers, settings.kafka_options)
    with java_machine() as java:
        facts = read_cluster(java, settings.bootstrap_servers, settings.kafka_options, topics)
        steps = list(_steps(settings, java, facts, topics, subscription))
        consent_or_refuse(steps, settings.yes)
        for step in steps:
            if settings.yes or consents(step):
                step.make()
                log.info("connect: done: %s", step.text)
            else:
                log.info("connect: not done: %s", step.text)
                if settings.topic in step.text:
                    raise UsageError(f"without topic {settings.topic} nothing can land; nothing more was changed")
        if not steps:
            log.info("connect: the topics are there, and a subscription requests metrics: nothing to change")
    without = brokers_without_plugin(facts.brokers)
    if without:
        print(BROKER_TEXT.format(properties=broker_properties(settings, plugin_class(without))))
        log.info("connect: no plugin yet on brokers %s", ", ".join(str(broker.node_id) for broker in without))
    if not settings.ingest:
        return 0
    log.info("connect: running the job; Ctrl-C ends it. `telemetry-lake ingest` with the same lake goes on")
    with _printing_rows(settings.lake):
        return ingest.run_job(ingest_settings(settings))


def broker_properties(settings: ConnectSettings, entry_class: str) -> str:
    """Lines for each broker's ``server.properties``, those with defaults left out."""
    lines = [f"metric.reporters=org.apache.kafka.common.metrics.JmxReporter,{entry_class}"]
    defaults = ConnectSettings.model_fields
    for key, name in (("topic", "topic"), ("status.topic", "status_topic"), ("quotas.topic", "quotas_topic")):
        if (value := getattr(settings, name)) != defaults[name].default:
            lines.append(f"client.telemetry.lander.{key}={value}")
    protocol = settings.kafka_options.get("kafka.security.protocol", "PLAINTEXT").strip().upper()
    if protocol != "PLAINTEXT":  # secrets of this user aren't printed; the receiver has its own
        lines += [
            f"client.telemetry.lander.bootstrap.servers={settings.bootstrap_servers}",
            f"client.telemetry.lander.producer.security.protocol={protocol}",
            "# and client.telemetry.lander.producer.sasl.* or .ssl.* of a user with Write and Describe on the topics",
        ]
    return "\n".join(lines)


def _topics(settings: ConnectSettings) -> tuple[str, str, str]:
    return settings.topic, settings.status_topic, settings.quotas_topic


def _steps(
    settings: ConnectSettings, java: HasJvm, facts: ClusterFacts, topics: tuple[str, ...], subscription: Subscription
) -> Iterator[ClusterChange]:
    """What the cluster lacks."""
    servers, options = settings.bootstrap_servers, settings.kafka_options
    replicas = min(3, len(facts.brokers))
    config = {"min.insync.replicas": str(max(1, replicas - 1)), "cleanup.policy": "delete"}
    for name in topics:
        if name in facts.topics or name in facts.undescribed:
            continue
        partitions = settings.partitions if name == settings.topic else 1
        of_topic = config | ({"max.message.bytes": str(LEAST_MESSAGE_BYTES)} if name == settings.topic else {})
        yield ClusterChange(
            f"create topic {name} ({partitions} partitions, {replicas} replicas, {_text(of_topic)})",
            _creating(java, servers, options, name, partitions, replicas, of_topic),
        )
    there = read_subscriptions(java, servers, options)
    if not there.unanswered and not any(each.metrics or each.unread for each in there.subscriptions):
        yield ClusterChange(
            f"create subscription {subscription.name} (all clients push {settings.metrics}* every "
            f"{settings.interval_seconds:g} s)",
            lambda: create_subscription(java, servers, options, subscription),
        )


def _creating(
    java: HasJvm,
    servers: str,
    options: Mapping[str, str],
    name: str,
    partitions: int,
    replicas: int,
    config: Mapping[str, str],
) -> Callable[[], None]:
    return lambda: create_topic(java, servers, options, name, partitions, replicas, config)


def _text(config: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in config.items())


def consent_or_refuse(steps: Sequence[ClusterChange], yes: bool) -> None:
    """Raise ``UsageError`` if consent is needed and nobody can be asked for it."""
    if steps and not yes and not (sys.stdin.isatty() and sys.stdout.isatty()):
        wanted = "; ".join(step.text for step in steps)
        raise UsageError(f"connect would {wanted}: run it on a terminal, or consent by --yes; nothing was changed")


def consents(step: ClusterChange) -> bool:
    """Ask on the terminal whether to make a change."""
    try:
        return input(f"{step.text}? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def ingest_settings(settings: ConnectSettings) -> IngestSettings:
    """Settings of the job for the same cluster and lake."""
    return IngestSettings.model_construct(
        source="kafka",
        lake=settings.lake,
        bootstrap_servers=settings.bootstrap_servers,
        kafka_options=settings.kafka_options,
        topic=settings.topic,
        status_topic=settings.status_topic,
        quotas_topic=settings.quotas_topic,
        driver_memory=settings.driver_memory,
        sync_seconds=60.0,
    )


def _printing_rows(lake: str) -> AbstractContextManager[None]:
    """Print what is new in the lake, inside the block."""
    rows = NewRows(lake, log.info)
    return supervised(
        lake, [Companion("new-rows", stateless(lambda _: rows.look()), LOOK_S, END_PATIENCE_S, waits_first=True)]
    )
