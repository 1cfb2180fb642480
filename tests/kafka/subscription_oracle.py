"""What Kafka's and Java's own classes answer, for tests that compare; also the maker of the committed answers.

    python -m tests.kafka.subscription_oracle

writes them anew: add a question to tests/data/java_patterns.json or broker_subscriptions.json and run it.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from kafka_telemetry_lake.pipelines.runtime.java import java_program
from kafka_telemetry_lake.sandbox.cluster.java import compile_java, kafka_class_path

VERSION = "4.3.1"
DATA = Path(__file__).parent.parent / "data"
PATTERNS, BROKERS = DATA / "java_patterns.json", DATA / "broker_subscriptions.json"
SOURCE = Path(__file__).with_name("SubscriptionOracle.java")


def ask(questions: dict[str, Any]) -> dict[str, Any]:
    """The answers to `patterns` and `brokers`; see SubscriptionOracle.java."""
    classes = compile_java([SOURCE], kafka_class_path(VERSION))
    class_path = kafka_class_path(VERSION, classes)
    command = [java_program(), "-Xmx256m", "-XX:+UseSerialGC", "-cp", class_path, "SubscriptionOracle"]
    done = subprocess.run(command, input=json.dumps(questions), capture_output=True, text=True, check=True)
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def pattern_answers(patterns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each pattern and its inputs with `matches`: per input, or null where Java refuses the pattern."""
    answers = ask({"patterns": [[each["pattern"], each["inputs"]] for each in patterns]})["patterns"]
    return [
        {"pattern": each["pattern"], "inputs": each["inputs"], "matches": matches}
        for each, matches in zip(patterns, answers, strict=True)
    ]


def broker_answers(brokers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each broker's subscriptions and clients with `answers`: per client, or the error that refuses a subscription."""
    answers = ask({"brokers": brokers})["brokers"]
    return [
        {
            "subscriptions": each["subscriptions"],
            "clients": each["clients"],
            "answers": answer.get("error", answer["clients"]),
        }
        for each, answer in zip(brokers, answers, strict=True)
    ]


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    _write(PATTERNS, pattern_answers(json.loads(PATTERNS.read_text())))
    _write(BROKERS, broker_answers(json.loads(BROKERS.read_text())))
