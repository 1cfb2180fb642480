"""The verdicts about recorded lives: of a client that obeys all rules, and with one fault at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from kafka_telemetry_lake.sandbox.conformance.__main__ import main
from kafka_telemetry_lake.sandbox.conformance.card import Card, as_json, as_table, as_text, read_card
from kafka_telemetry_lake.sandbox.conformance.judge import RULES, Verdict, judge
from kafka_telemetry_lake.sandbox.conformance.lives import ALL, CLOSING, CUT, ENDED, FIRST, HEARD, MOVED, WIDE, Life
from kafka_telemetry_lake.sandbox.conformance.receiver import Exchange
from kafka_telemetry_lake.sandbox.conformance.wire import NO_INSTANCE, Push, Subscription

ME, OTHER = b"\x01" * 16, b"\x02" * 16
SENT, OPENED = "org.apache.kafka.producer.record.send.total", "org.apache.kafka.producer.connection.creation.total"
DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
NEITHER = AggregationTemporality.AGGREGATION_TEMPORALITY_UNSPECIFIED
Lives = dict[str, Life]
CARDS = Path(__file__).parents[2] / "data" / "conformance"
PAGE = Path(__file__).parents[3] / "docs" / "conformance.md"


def metrics(
    temporality: AggregationTemporality.ValueType = DELTA,
    sent: float = 20.0,
    opened: float = 0.0,
    label: str = "client_rack",
) -> bytes:
    data = MetricsData()
    resource = data.resource_metrics.add()
    resource.resource.attributes.add(key=label).value.string_value = "r"
    scope = resource.scope_metrics.add()
    for name, value in ((SENT, sent), (OPENED, opened)):
        total = scope.metrics.add(name=name).sum
        total.aggregation_temporality = temporality
        total.is_monotonic = True
        total.data_points.add(as_double=value)
    return zstandard.compress(data.SerializeToString())


def asked(at: float, subscription: Subscription = FIRST, instance: bytes = ME) -> Exchange:
    return Exchange(at, instance, subscription=subscription, assigned_instance=ME, answered=at)


def pushed(
    at: float, of: int = 1, error: int = 0, codec: int = 4, end: bool = False, data: bytes | None = None
) -> Exchange:
    push = Push(of, end, codec, metrics() if data is None else data)
    return Exchange(at, ME, push=push, error=error, answered=at)


def ended(exchanges: list[Exchange], closing: float, *, says_goodbye: bool = True, **marks: float) -> Life:
    """A life that was asked to end, after which the last push is sent again with the terminating flag."""
    push = exchanges[-1].push
    last = [Exchange(closing + 0.01, ME, push=replace(push, terminating=True))] if says_goodbye and push else []
    return Life((*exchanges, *last), {HEARD: closing, CLOSING: closing, ENDED: closing + 0.1, **marks}, ("mine", "1"))


def begin(first: float) -> list[Exchange]:
    return [asked(0.0, instance=NO_INSTANCE), pushed(first, data=metrics(opened=2)), pushed(first + 1)]


def obedient() -> Lives:
    """Lives of a client that obeys all rules; those with an error differ in what comes after it."""
    wide, whole = replace(FIRST, id=2, metrics=WIDE), replace(FIRST, id=3, metrics=WIDE, delta=False)
    none, every = replace(FIRST, id=4, metrics=()), replace(FIRST, id=5, metrics=ALL)
    gzip, small = replace(FIRST, id=2, codecs=(1,)), replace(FIRST, id=2, max_bytes=len(metrics()) // 2)
    total = metrics(CUMULATIVE, 140)
    obeys = [
        *begin(0.6), pushed(2.8), pushed(3.8), pushed(4.8, error=117), asked(4.9, wide), pushed(5.5, 2), pushed(6.5, 2),
        pushed(7.5, 2, error=117), asked(7.6, whole), pushed(8.4, 3, data=total), pushed(9.4, 3, data=total, error=117),
        asked(9.5, none), asked(10.5, none), asked(11.5, every), pushed(12.3, 5), pushed(13.3, 5),
    ]  # fmt: skip
    large = pushed(4.0, 2, error=118), pushed(5.0, 2, data=b"")
    return {
        "obeys": ended(obeys, 13.6, cut=1.7),
        "throttled": ended([*begin(0.9), pushed(2.9, error=89), asked(3.9), pushed(4.5), pushed(5.5, error=89)], 5.6),
        "codec": ended([*begin(1.0), pushed(3.0, error=76), asked(3.1, gzip), pushed(4.0, 2, codec=0, data=b"")], 5.0),
        "too-large": ended([*begin(1.1), pushed(3.1, error=117), asked(3.2, small), *large], 6.0),
        "invalid-record": ended([*begin(0.7), pushed(2.7, error=87)], 7.0, says_goodbye=False),
        "invalid-request": ended([*begin(0.8), pushed(2.8, error=42)], 7.0, says_goodbye=False),
        "not-authorized": ended([*begin(1.3), pushed(3.3, error=31), asked(6.4)], 8.0, says_goodbye=False),
        "rebootstraps": ended([*begin(1.4), pushed(4.9), pushed(5.9)], 6.5, moved=3.0),
    }


def verdicts(lives: Mapping[str, Life]) -> dict[str, tuple[str, str]]:
    return {each.rule: (each.verdict, each.evidence) for each in judge(lives)}


def test_a_client_that_obeys() -> None:
    found = verdicts(obedient())
    assert {rule: verdict for rule, (verdict, _) in found.items() if verdict != "obeyed"} == {
        "all metrics": "no rule",
        "after CLUSTER_AUTHORIZATION_FAILED": "no rule",
    }
    assert {rule: evidence for rule, (_, evidence) in found.items()} == {
        "well-formed requests": "all 61 telemetry requests",
        "client instance id": "53 later requests with the id of the first answer",
        "first push": "0.60 to 1.40 intervals after 14 subscriptions",
        "push interval": "1.00 intervals between pushes, median 1.00 of 22",
        "subscribed names": "80 names, all asked for",
        "all metrics": '2 names in a push when asked for "*", as brokers ask; by the text of the protocol it is ""',
        "no metrics": "0 pushes; asks again after 1.00 intervals",
        "delta temporality": "76 of 76 sums DELTA",
        "cumulative temporality": "4 of 4 sums CUMULATIVE",
        "deltas counted once": "0 of 2 counters counted again: of 80 in 4 pushes, then 20",
        "codec": "none 2, zstd 42",
        "readable": "all 44 pushes",
        "resource attributes": "client_rack",
        "after UNKNOWN_SUBSCRIPTION_ID": "asks again after 0.10 intervals",
        "after UNSUPPORTED_COMPRESSION_TYPE": "asks again after 0.10 intervals, then pushes none",
        "after THROTTLING_QUOTA_EXCEEDED": "asks again after 1.00, pushes after 1.60 intervals",
        "after TELEMETRY_TOO_LARGE": "at most 61 bytes: refused with 123, then 1 push of 0",
        "after INVALID_RECORD": "0 pushes in 4 intervals",
        "after INVALID_REQUEST": "0 pushes in 4 intervals",
        "after CLUSTER_AUTHORIZATION_FAILED": "asks again after 3.10 intervals",
        "id after a reconnect": "16 later requests with the id of the first answer; pushes again after 1.1 s",
        "id after a rebootstrap": "3 later requests with the id of the first answer; pushes again after 1.9 s",
        "terminating push": "4 of 4 ends have a terminating push",
        "terminating push while throttled": "a terminating push",
    }


def changed(life: str, when: float, **fields: object) -> Callable[[Lives], Lives]:
    """One exchange, by its time, has other fields; those of its push have their names."""

    def change(lives: Lives) -> Lives:
        def other(each: Exchange) -> Exchange:
            if each.at != when:
                return each
            of_push = {name: value for name, value in fields.items() if name in Push.__dataclass_fields__}
            of_exchange = {name: value for name, value in fields.items() if name not in of_push}
            if of_push:
                assert each.push is not None
                of_exchange["push"] = replace(each.push, **of_push)  # type: ignore[arg-type]  # as the test says
            return replace(each, **of_exchange)  # type: ignore[arg-type]  # the same

        return {**lives, life: replace(lives[life], exchanges=tuple(map(other, lives[life].exchanges)))}

    return change


def without(life: str, *times: float) -> Callable[[Lives], Lives]:
    def change(lives: Lives) -> Lives:
        kept = tuple(each for each in lives[life].exchanges if each.at not in times)
        return {**lives, life: replace(lives[life], exchanges=kept)}

    return change


def added(life: str, *more: Exchange) -> Callable[[Lives], Lives]:
    def change(lives: Lives) -> Lives:
        exchanges = sorted((*lives[life].exchanges, *more), key=lambda each: each.at)
        return {**lives, life: replace(lives[life], exchanges=tuple(exchanges))}

    return change


def at_the_same_time(lives: Lives) -> Lives:
    """All first pushes come one interval after the answer."""
    return {
        name: replace(life, exchanges=(life.exchanges[0], replace(life.exchanges[1], at=1.0), *life.exchanges[2:]))
        for name, life in lives.items()
    }


def starts(*waits: float) -> Callable[[Lives], Lives]:
    """Lives alone in which the first push comes so many intervals after the answer."""
    return lambda _: {str(wait): ended(begin(wait), 4.0) for wait in waits}


def hung(life: str, when: float) -> Callable[[Lives], Lives]:
    """No request of any kind came afterwards."""
    return lambda lives: {**lives, life: replace(lives[life], marks={**lives[life].marks, HEARD: when})}


def in_group(lives: Lives) -> Lives:
    return {name: replace(life, in_group=True) for name, life in lives.items()}


def without_names(exchange: Exchange) -> Exchange:
    push = exchange.push
    return exchange if push is None else replace(exchange, push=replace(push, metrics=zstandard.compress(b"")))


GOODBYE = 0.01
FAULTS: list[tuple[Callable[[Lives], Lives], str, str, str]] = [
    (lambda lives: {**lives, "codec": replace(lives["codec"], malformed=("PushTelemetry: cut off",))},
     "well-formed requests", "broken", "1 can't be read: PushTelemetry: cut off"),
    (changed("obeys", 0.0, instance=OTHER), "client instance id", "broken",
     "0 later requests without the id, 0 with another, 1 first ones with one"),
    (changed("obeys", 4.9, instance=NO_INSTANCE), "client instance id", "broken",
     "1 later requests without the id, 0 with another, 0 first ones with one"),
    (changed("obeys", 0.6, at=0.4), "first push", "broken", "0.40 to 1.40 intervals after 14 subscriptions"),
    (changed("obeys", 12.3, at=13.29), "first push", "obeyed", "0.60 to 1.79 intervals after 14 subscriptions"),
    (changed("obeys", 0.0, at=-2.0, answered=-2.0), "first push", "broken",
     "0.60 to 2.60 intervals after 14 subscriptions"),
    (changed("obeys", 12.3, at=11.6), "first push", "obeyed", "0.10 to 1.40 intervals after 14 subscriptions"),
    (lambda _: {"obeys": ended(begin(0.3), 4.0)}, "first push", "not seen", "0.30 intervals after 1 subscription"),
    (starts(1.52, 1.53), "first push", "not seen", "1.52 to 1.53 intervals after 2 subscriptions"),
    (starts(0.9, 1.52, 1.54), "first push", "obeyed", "0.90 to 1.54 intervals after 3 subscriptions"),
    (starts(0.9, 1.56, 1.58), "first push", "broken", "0.90 to 1.58 intervals after 3 subscriptions"),
    (at_the_same_time, "first push", "broken",
     "0.60 to 1.00 intervals after 14 subscriptions; not at random, a client's first ones 1.00"),
    (changed("obeys", 6.5, at=6.35), "push interval", "broken",
     "0.85 to 1.15 intervals between pushes, median 1.00 of 22"),
    (lambda lives: changed("obeys", 4.8, at=4.6)(changed("obeys", 3.8, at=4.2)(lives)), "push interval", "broken",
     "0.40 to 1.40 intervals between pushes, median 1.00 of 22"),
    (changed("obeys", 3.8, at=4.2), "push interval", "obeyed",
     "0.60 to 1.40 intervals between pushes, median 1.00 of 22; 1 short after a long one"),
    (lambda lives: {name: replace(life, exchanges=tuple(without_names(each) for each in life.exchanges))
                    for name, life in lives.items()}, "all metrics", "no rule",
     '0 names in a push when asked for "*", as brokers ask; by the text of the protocol it is ""'),
    (changed("obeys", 5.5, metrics=zstandard.compress(b"")), "subscribed names", "obeyed", "78 names, all asked for"),
    (changed("obeys", 11.5, subscription=replace(FIRST, id=5, metrics=("x.",))), "subscribed names", "broken",
     f"6 of 80 names not asked for, such as {SENT}"),
    (added("obeys", pushed(10.0, 4)), "no metrics", "broken", "1 push; asks again after 1.00 intervals"),
    (changed("obeys", 10.5, at=9.8), "no metrics", "broken", "0 pushes; asks again after 0.30 intervals"),
    (without("obeys", 10.5), "no metrics", "broken", "0 pushes; it doesn't ask again"),
    (without("obeys", 9.5, 10.5), "no metrics", "not seen", "it didn't ask for the subscription"),
    (changed("obeys", 3.8, metrics=metrics(CUMULATIVE)), "delta temporality", "broken", "74 of 76 sums DELTA"),
    (changed("obeys", 3.8, metrics=metrics(NEITHER)), "delta temporality", "broken", "74 of 76 sums DELTA"),
    (changed("obeys", 8.4, metrics=metrics()), "cumulative temporality", "broken", "2 of 4 sums CUMULATIVE"),
    (changed("obeys", 5.5, metrics=metrics(sent=80, opened=2)), "deltas counted once", "broken",
     "2 of 2 counters counted again: of 80 in 4 pushes, then 80"),
    (changed("obeys", 5.5, metrics=metrics(sent=25, opened=2)), "deltas counted once", "obeyed",
     "1 of 2 counters counted again: of 80 in 4 pushes, then 25"),
    (changed("obeys", 3.8, codec=5), "codec", "broken", "1 of another codec; 5 1, none 2, zstd 41"),
    (changed("codec", 4.0, codec=4), "codec", "broken", "1 of another codec; none 1, zstd 43"),
    (changed("codec", 4.0, codec=4), "after UNSUPPORTED_COMPRESSION_TYPE", "broken",
     "asks again after 0.10 intervals, then pushes zstd"),
    (without("codec", 4.0), "after UNSUPPORTED_COMPRESSION_TYPE", "broken",
     "asks again after 0.10 intervals; no push with a codec that is left"),
    (changed("obeys", 3.8, metrics=b"?"), "readable", "broken",
     "1 of 44: INVALID_RECORD, not decompressible as 4: error when determining content size"),
    (changed("obeys", 3.8, metrics=metrics(label="member_id")), "resource attributes", "no rule",
     "client_rack, member_id; not named by the KIP: member_id"),
    (in_group, "resource attributes", "broken", "client_rack: a member of a group without group_id"),
    (lambda lives: in_group(changed("obeys", 3.8, metrics=metrics(label="group_id"))(lives)),
     "resource attributes", "obeyed", "client_rack, group_id"),
    (changed("obeys", 4.9, at=5.4), "after UNKNOWN_SUBSCRIPTION_ID", "obeyed",
     "asks again after 0.10 to 0.60 intervals"),
    (lambda lives: changed("too-large", 3.2, at=3.7)(
        changed("obeys", 7.6, at=8.1)(changed("obeys", 4.9, at=5.4)(lives))),
     "after UNKNOWN_SUBSCRIPTION_ID", "broken", "asks again after 0.10 to 0.60 intervals"),
    (added("obeys", pushed(13.4, 5, error=117)), "after UNKNOWN_SUBSCRIPTION_ID", "obeyed",
     "asks again after 0.10 intervals"),
    (added("rebootstraps", pushed(2.9, error=117)), "after UNKNOWN_SUBSCRIPTION_ID", "obeyed",
     "asks again after 0.10 intervals"),
    (added("rebootstraps", pushed(5.95, error=117), pushed(6.95)), "after UNKNOWN_SUBSCRIPTION_ID", "obeyed",
     "asks again after 0.10 intervals"),
    (changed("obeys", 4.9, subscription=None, push=Push(2, False, 4, metrics())),
     "after UNKNOWN_SUBSCRIPTION_ID", "broken", "asks again after 0.10 intervals, and 1 time not"),
    (without("obeys", 4.9, 5.5, 6.5, 7.5), "after UNKNOWN_SUBSCRIPTION_ID", "obeyed",
     "asks again after 0.10 to 2.80 intervals"),
    (lambda lives: without("throttled", 3.9)(changed("throttled", 4.5, at=3.7)(lives)),
     "after THROTTLING_QUOTA_EXCEEDED", "broken",
     "pushes after 0.80 intervals"),
    (without("throttled", 3.9, 4.5, 5.5, 5.6 + GOODBYE), "after THROTTLING_QUOTA_EXCEEDED", "not seen",
     "no push was answered so"),
    (lambda _: {"throttled": ended([*begin(0.9), pushed(2.9, error=89)], 6.5, says_goodbye=False)},
     "after THROTTLING_QUOTA_EXCEEDED", "broken", "it pushes no more"),
    (lambda _: {"throttled": ended([*begin(0.9), pushed(2.9, error=89)], 6.5)},
     "after THROTTLING_QUOTA_EXCEEDED", "broken", "it pushes no more"),
    (lambda _: {"throttled": ended([*begin(0.9), pushed(2.9, error=89)], 4.0)},
     "terminating push while throttled", "not seen", "no push was throttled right before the end"),
    (changed("too-large", 5.0, error=118, metrics=metrics()), "after TELEMETRY_TOO_LARGE", "broken",
     "at most 61 bytes: refused with 123, then 1 push of 123"),
    (without("too-large", 4.0, 5.0, 6.0 + GOODBYE), "after TELEMETRY_TOO_LARGE", "obeyed",
     "at most 61 bytes: no push, but other requests"),
    (lambda lives: hung("too-large", 3.3)(without("too-large", 4.0, 5.0)(lives)), "after TELEMETRY_TOO_LARGE",
     "not seen", "at most 61 bytes: no push, and no other request"),
    (without("too-large", 4.0), "after TELEMETRY_TOO_LARGE", "obeyed", "at most 61 bytes: 1 push of 0"),
    (without("too-large", 5.0), "after TELEMETRY_TOO_LARGE", "obeyed",
     "at most 61 bytes: refused with 123, then no push, but other requests"),
    (lambda lives: hung("too-large", 4.1)(without("too-large", 5.0)(lives)), "after TELEMETRY_TOO_LARGE",
     "not seen", "at most 61 bytes: refused with 123, then no push, and no other request"),
    (changed("too-large", 6.0 + GOODBYE, error=118, metrics=metrics()), "after TELEMETRY_TOO_LARGE", "obeyed",
     "at most 61 bytes: refused with 123, then 1 push of 0"),
    (added("too-large", pushed(5.5, 2, error=118)), "after TELEMETRY_TOO_LARGE", "broken",
     "at most 61 bytes: refused with 123, then 2 pushes of 0 to 123"),
    (added("invalid-record", pushed(5.0)), "after INVALID_RECORD", "broken", "1 push in 4 intervals"),
    (added("invalid-record", pushed(7.1, end=True)), "after INVALID_RECORD", "obeyed",
     "0 pushes in 4 intervals, and one terminating"),
    (added("invalid-request", pushed(5.0)), "after INVALID_REQUEST", "broken", "1 push in 4 intervals"),
    (without("not-authorized", 6.4), "after CLUSTER_AUTHORIZATION_FAILED", "no rule", "no request in 4 intervals"),
    (changed("obeys", 3.8, instance=OTHER), "id after a reconnect", "broken",
     "0 later requests without the id, 1 with another, 0 first ones with one; pushes again after 1.1 s"),
    (lambda lives: {"obeys": replace(lives["obeys"], exchanges=lives["obeys"].exchanges[:3])},
     "id after a reconnect", "not seen",
     "it pushed no more"),
    (added("rebootstraps", asked(4.0, instance=NO_INSTANCE)), "id after a rebootstrap", "broken",
     "1 later requests without the id, 0 with another, 0 first ones with one; pushes again after 1.9 s"),
    (without("rebootstraps", 4.9, 5.9, 6.5 + GOODBYE), "terminating push", "obeyed",
     "3 of 3 ends have a terminating push"),
    (without("rebootstraps", 6.5 + GOODBYE), "terminating push", "broken", "3 of 4 ends have a terminating push"),
    (without("codec", 5.0 + GOODBYE), "terminating push", "broken", "3 of 4 ends have a terminating push"),
    (without("throttled", 5.6 + GOODBYE), "terminating push while throttled", "broken", "no terminating push"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "rule", "verdict", "evidence"), FAULTS, ids=[f"{at}-{each[1]}" for at, each in enumerate(FAULTS)]
)
def test_a_fault(fault: Callable[[Lives], Lives], rule: str, verdict: str, evidence: str) -> None:
    assert verdicts(fault(obedient()))[rule] == (verdict, evidence)


def test_each_rule_has_a_fault() -> None:
    assert {rule for _, rule, *_ in FAULTS} == RULES.keys()


def test_of_nothing_nothing_is_seen() -> None:
    assert {verdict for verdict, _ in verdicts({}).values()} == {"not seen"}
    silent = Life((), {CLOSING: 1.0, ENDED: 1.1, CUT: 0.5, MOVED: 0.6})
    assert {verdict for verdict, _ in verdicts({"obeys": silent, "throttled": silent}).values()} == {"not seen"}


def test_a_card_as_text_json_and_table(tmp_path: Path) -> None:
    both = [
        Verdict("codec", "Compression", "obeyed", "zstd 4"),
        Verdict("readable", "Format", "broken", "1 of 4: no"),
    ]
    card = Card("mine", "mine 1", both)
    assert as_text(card).splitlines() == [
        "rule      section of KIP-714  verdict  evidence",
        "codec     Compression         obeyed   zstd 4",
        "readable  Format              broken   1 of 4: no",
        "",
        "mine 1: 1 rules obeyed, 1 broken",
    ]
    file = tmp_path / "card.json"
    file.write_text(as_json(card))
    assert read_card(file) == card
    consumer = replace(card, client="other-consumer", verdicts=[both[0], replace(both[1], verdict="not seen")])
    assert as_table([card, consumer]).splitlines() == [
        "| rule | mine 1 | mine 1, consumer |",
        "|---|---|---|",
        "| codec | yes | yes |",
        "| readable | **no** | not seen |",
        "",
        "| rule | client | what it did |",
        "|---|---|---|",
        "| readable | mine 1 | 1 of 4: no |",
        "| readable | mine 1, consumer | 1 of 4: no |",
    ]


def test_the_page_has_the_table_of_the_recorded_cards(capsys: pytest.CaptureFixture[str]) -> None:
    """The cards that `make conformance` made of real clients, in `tests/data/conformance`."""
    assert main(["--table", *map(str, sorted(CARDS.glob("*.json")))]) == 0
    assert capsys.readouterr().out in PAGE.read_text("utf-8")
