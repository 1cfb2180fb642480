"""Cards of two real clients, made with a broker: what each obeys, and the rules that it breaks."""

from __future__ import annotations

import pytest

from kafka_telemetry_lake.sandbox.conformance.card import make_card
from kafka_telemetry_lake.sandbox.conformance.seen import BROKEN, NOT_SEEN

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
LIVES = ("obeys", "throttled", "codec", "too-large", "invalid-record")
UNSEEN = {"after INVALID_REQUEST", "after CLUSTER_AUTHORIZATION_FAILED", "id after a rebootstrap"}
# A busy machine makes any client late. What is too late is tested in tests/unit/sandbox/test_conformance_judge.py.
OF_TIME = {
    "first push",
    "push interval",
    "no metrics",
    "after UNKNOWN_SUBSCRIPTION_ID",
    "after THROTTLING_QUOTA_EXCEEDED",
}


GOODBYE = "terminating push"  # about 1 in 10 of librdkafka's are missing (docs/clients.md)
WHILE_THROTTLED = "terminating push while throttled"  # not seen, if the end comes over an interval after the refusal


@pytest.mark.parametrize(
    ("client", "software", "broken"),
    [
        ("librdkafka", "confluent-kafka-python ", {"after TELEMETRY_TOO_LARGE"}),
        ("java-4.4.0", "apache-kafka-java 4.4.0", {"after TELEMETRY_TOO_LARGE", GOODBYE}),
    ],
)
def test_a_card(client: str, software: str, broken: set[str]) -> None:
    card = make_card(client, LIVES)
    assert card.software.startswith(software)
    assert {each.rule for each in card.verdicts if each.verdict == NOT_SEEN} - {WHILE_THROTTLED} == UNSEEN, card
    found = {each.rule: each for each in card.verdicts if each.verdict == BROKEN}
    refused = found.pop("after UNSUPPORTED_COMPRESSION_TYPE", None)  # librdkafka asks an interval later
    assert refused is None or refused.evidence.endswith(", then pushes gzip")
    while_throttled = next(each.verdict for each in card.verdicts if each.rule == WHILE_THROTTLED)
    assert while_throttled in (BROKEN, NOT_SEEN), card
    chance = {GOODBYE} - broken
    assert found.keys() - OF_TIME - chance - {WHILE_THROTTLED} == broken, card
