"""Judges by KIP-714 what a client did in its lives: a verdict and its evidence for each rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kafka_telemetry_lake.sandbox.conformance import answer_rules, push_rules
from kafka_telemetry_lake.sandbox.conformance.lives import (
    CUT,
    ERRORS,
    INVALID_RECORD,
    INVALID_REQUEST,
    MOVED,
    NOT_AUTHORIZED,
    THROTTLED,
    TOO_LARGE,
    UNKNOWN_SUBSCRIPTION,
    UNSUPPORTED_COMPRESSION,
)
from kafka_telemetry_lake.sandbox.conformance.seen import Found, Lives


@dataclass(frozen=True)
class Verdict:
    """What a client did about one rule.

    Attributes:
        section: of KIP-714.
        verdict: ``OBEYED``, ``BROKEN``, ``NOT_SEEN`` (nothing tells), or ``NO_RULE``: the KIP leaves it open.
        evidence: what was seen, with its figures.
    """

    rule: str
    section: str
    verdict: str
    evidence: str


def judge(lives: Lives) -> list[Verdict]:
    """All rules, in the order of a client's life; of lives that aren't there nothing is seen."""
    return [Verdict(rule, section, *look(lives)) for rule, (section, look) in RULES.items()]


# In the order of a client's life. The sections are KIP-714's.
RULES: Mapping[str, tuple[str, Callable[[Lives], Found]]] = {
    "well-formed requests": ("Protocol", answer_rules.well_formed),
    "client instance id": ("Client behavior", answer_rules.instance),
    "first push": ("Client behavior", push_rules.first_push),
    "push interval": ("Throttling and rate-limiting", push_rules.interval),
    "subscribed names": ("Client metrics subscription", push_rules.names),
    "all metrics": ("Client metrics subscription", push_rules.all_metrics),
    "no metrics": ("Client behavior", push_rules.no_metrics),
    "delta temporality": ("Metric aggregation temporality", push_rules.temporality(True)),
    "cumulative temporality": ("Metric aggregation temporality", push_rules.temporality(False)),
    "deltas counted once": ("Metric aggregation temporality", push_rules.counted_once),
    "codec": ("Compression", push_rules.codec),
    "readable": ("Metrics serialization format", push_rules.readable),
    "resource attributes": ("Client resource labels", push_rules.labels),
    "after " + ERRORS[UNKNOWN_SUBSCRIPTION]: ("Error handling", answer_rules.asks_at_once(UNKNOWN_SUBSCRIPTION)),
    "after " + ERRORS[UNSUPPORTED_COMPRESSION]: ("Error handling", answer_rules.other_codec),
    "after " + ERRORS[THROTTLED]: ("Throttling and rate-limiting", answer_rules.throttled),
    "after " + ERRORS[TOO_LARGE]: ("Error handling", answer_rules.too_large),
    "after " + ERRORS[INVALID_RECORD]: ("Error handling", answer_rules.stops(INVALID_RECORD)),
    "after " + ERRORS[INVALID_REQUEST]: ("Error handling", answer_rules.stops(INVALID_REQUEST)),
    "after " + ERRORS[NOT_AUTHORIZED]: ("Error handling", answer_rules.left_open(NOT_AUTHORIZED)),
    "id after a reconnect": ("Client behavior", answer_rules.id_after(CUT)),
    "id after a rebootstrap": ("Client behavior", answer_rules.id_after(MOVED)),
    "terminating push": ("Client termination", answer_rules.goodbye),
    "terminating push while throttled": ("Client termination", answer_rules.goodbye_while_throttled),
}
