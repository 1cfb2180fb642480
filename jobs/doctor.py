"""``telemetry-lake doctor``: checks a cluster, a lake and this machine. It changes nothing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Generator, Iterator
from dataclasses import asdict
from datetime import UTC, datetime

import pyarrow as pa
from rich.console import Console
from rich.markup import escape

from kafka_telemetry_lake.jobs.settings.doctor import DoctorSettings
from kafka_telemetry_lake.jobs.support.locks import job_runs
from kafka_telemetry_lake.pipelines.doctor.check import Check, exit_code
from kafka_telemetry_lake.pipelines.doctor.cluster_checks import check_cluster, check_statuses, check_subscriptions
from kafka_telemetry_lake.pipelines.doctor.cluster_facts import ClusterFacts, read_cluster, read_statuses
from kafka_telemetry_lake.pipelines.doctor.lake_checks import (
    active_clients,
    check_erasures,
    check_iceberg,
    check_lake,
    read_lake,
)
from kafka_telemetry_lake.pipelines.doctor.machine_checks import check_machine
from kafka_telemetry_lake.pipelines.query.lake_query import is_lake
from kafka_telemetry_lake.pipelines.query.printable import printable
from kafka_telemetry_lake.pipelines.query.query_errors import QueryError
from kafka_telemetry_lake.pipelines.runtime.jars import JarsUnavailableError
from kafka_telemetry_lake.pipelines.runtime.java_machine import java_machine
from kafka_telemetry_lake.pipelines.runtime.kafka_admin import HasJvm, KafkaUnavailableError
from kafka_telemetry_lake.pipelines.runtime.kafka_reach import check_brokers
from kafka_telemetry_lake.pipelines.subscriptions.configured import read_subscriptions

STYLES = {"ok": "green", "warning": "yellow", "failed": "bold red", "skipped": "dim"}


def run_job(settings: DoctorSettings) -> int:
    """Check everything and print the results; the exit code is 0 (all ok), 3 (warnings) or 1 (something failed)."""
    checks: list[Check] = []
    console = Console(highlight=False, soft_wrap=True)
    for check in run_checks(settings):
        checks.append(check)
        if settings.format == "text":
            console.print(_line(check))
    if settings.format == "json":
        content = {"exit_code": exit_code(checks), "checks": [asdict(check) for check in checks]}
        json.dump(content, sys.stdout, ensure_ascii=True, indent=1)
        print()
    return exit_code(checks)


def run_checks(settings: DoctorSettings) -> Iterator[Check]:
    """The results, each as soon as it is known."""
    machine = list(check_machine(settings.lake))
    yield from machine
    newest_ms = None
    if settings.bootstrap_servers is not None:
        has_java = not any(check.name == "java" and check.status == "failed" for check in machine)
        facts = yield from _cluster(settings, settings.bootstrap_servers, has_java)
        if facts is not None and settings.topic in facts.topics:
            newest_ms = facts.topics[settings.topic].newest_ms
    if settings.lake is not None:
        try:
            yield from check_lake(
                settings.lake, read_lake(settings.lake), job_runs(settings.lake), newest_ms, datetime.now(UTC)
            )
            yield from check_erasures(settings.lake, datetime.now(UTC))
            yield from check_iceberg(settings.lake, datetime.now(UTC))
        except QueryError as error:
            yield Check("lake", "failed", str(error), "docs/operate.md")


def _cluster(
    settings: DoctorSettings, bootstrap_servers: str, has_java: bool
) -> Generator[Check, None, ClusterFacts | None]:
    try:
        check_brokers(bootstrap_servers, settings.kafka_options)
    except KafkaUnavailableError as error:
        problem, _, advice = str(error).partition("; ")
        yield Check("reachability", "failed", problem, advice)
        return None
    yield Check("reachability", "ok", f"a broker answers at {bootstrap_servers}")
    if not has_java:
        yield Check("cluster", "skipped", "Kafka's Admin client needs Java")
        return None
    try:
        with java_machine() as java:
            return (yield from _of_cluster(settings, java, bootstrap_servers))
    except JarsUnavailableError as error:
        yield Check("cluster", "skipped", str(error).splitlines()[0])
    except KafkaUnavailableError as error:
        yield Check("access", "failed", str(error), "docs/operate.md")
    return None


def _of_cluster(settings: DoctorSettings, java: HasJvm, bootstrap_servers: str) -> Generator[Check, None, ClusterFacts]:
    options = settings.kafka_options
    topics = (settings.topic, settings.status_topic, settings.quotas_topic)
    facts = read_cluster(java, bootstrap_servers, options, topics)
    yield from check_cluster(facts, topics, _now_ms())
    try:
        found = read_subscriptions(java, bootstrap_servers, options)
        for name, problem in found.unanswered.items():
            text = f"the brokers list it without its configuration ({problem})"
            yield Check(f"subscription {name}", "warning", text, "look at the brokers, and at this user's ACLs")
        yield from check_subscriptions(found.subscriptions, _clients(settings.lake))
    except KafkaUnavailableError as error:
        yield Check("subscriptions", "failed", str(error), "docs/subscriptions.md")
    if settings.status_topic in facts.topics:
        try:
            statuses = read_statuses(java, bootstrap_servers, options, settings.status_topic)
            yield from check_statuses(statuses, facts.brokers, _now_ms())
        except KafkaUnavailableError as error:
            yield Check("receivers", "failed", str(error), "docs/operate.md")
    return facts


def _clients(lake: str | None) -> pa.Table | None:
    """The active clients that the lake knows; None: there is no lake, or it can't be read, which `check_lake` says."""
    try:
        return active_clients(lake) if lake is not None and is_lake(lake) else None
    except QueryError:
        return None


def _line(check: Check) -> str:
    advice = f" -- {check.advice}" if check.advice else ""
    text = escape(printable(f"{check.name}: {check.text}{advice}"))
    return f"[{STYLES[check.status]}]{check.status:<8}[/] {text}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
