"""The commands of ``telemetry-lake``, and where each one's settings and code are.

Command `x-y` has its settings in ``jobs/settings/x_y.py``, class `XYSettings`, which imports quickly, and its code in
``jobs/x_y.py``, function `run_job(settings)`, which returns the exit code and may have slow imports.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from kafka_telemetry_lake.jobs.settings.base import JobSettings

COMMANDS = {
    "demo": "run real clients and a broker (or use captured pushes), ingest, and print a report",
    "connect": "make the topics and a subscription on a cluster, with consent, then ingest and show the first rows",
    "doctor": "check brokers, topics, subscriptions, the lake and this machine, and say what to do",
    "ingest": "turn landed pushes from a Kafka topic or files into Delta tables",
    "maintain": "apply retention, compact files and VACUUM; safe while ingest runs",
    "query": "run SQL over a lake, without Spark",
    "replay": "decode and convert stored pushes again after a fix, and replace their rows",
    "reshard": "distribute the state to another number of shards, for other cores",
    "forget": "erase a client or a principal from every table and file; the job must be stopped",
    "sync": "record the history of subscriptions, quotas, consumer groups and client aliases",
    "check-landing": "say what is wrong with the landing records of another receiver",
    "quality": "check the lake's data quality rules on rows added since the last check",
    "findings": "evaluate findings and print those that are open, say who looks after one, or list the rules",
    "notify": "send changes of findings to Alertmanager, webhooks, chats and mail",
    "export": "serve fleet figures to Prometheus, and send points and events by OTLP",
    "iceberg": "let Iceberg readers read a lake: Iceberg metadata over the same files, once or after each commit",
    "dashboard": "serve dashboard pages over a lake",
    "mcp": "answer agents' questions about a lake, by the Model Context Protocol",
    "views": "create the SQL views in Spark, or list them with the questions they answer",
    "completion": "print a script that lets bash, zsh or fish complete commands, flags and values",
}
_JOBS = "kafka_telemetry_lake.jobs"


def settings_of(command: str) -> type[JobSettings]:
    """The settings class of a command."""
    module = import_module(f"{_JOBS}.settings.{_module(command)}")
    words = "".join(word.capitalize() for word in command.split("-"))
    settings: type[JobSettings] = getattr(module, f"{words}Settings")
    return settings


def job_of(command: str) -> Callable[[JobSettings], int]:
    """The function that runs a command. The import may take seconds, or raise ``ModuleNotFoundError``."""
    run_job: Callable[[JobSettings], int] = import_module(f"{_JOBS}.{_module(command)}").run_job
    return run_job


def _module(command: str) -> str:
    return command.replace("-", "_")
