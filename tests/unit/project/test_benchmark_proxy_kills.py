"""How pushes are followed through kills of proxies: from the lines of clients' logs and the landing records."""

from __future__ import annotations

from datetime import datetime

import pytest

from benchmarks.proxy_kills import account, match, pauses, sent_by

BEGAN = datetime(2026, 11, 28, 7, 53, 52).timestamp()  # local, as in Java's log
HEADER = "RequestHeader(apiKey=PUSH_TELEMETRY, apiVersion=0, clientId=java-0, correlationId={}, headerVersion=2)"


def java(second: int, correlation_id: int, error: int | None = None) -> str:
    """A line of the network client: a push, or the answer to one."""
    does, header = ("Sending", "Received")[error is not None], HEADER.format(correlation_id)
    what = f"{does} PUSH_TELEMETRY {'request' if error is None else 'response from node 1'} with header {header}"
    rest = (
        " and timeout 30000 to node 1: PushTelemetryRequestData(...)"
        if error is None
        else f": PushTelemetryResponseData(throttleTimeMs=0, errorCode={error})"
    )
    return f"2026-11-28 07:53:{52 + second},250 DEBUG [Producer clientId=java-0] {what}{rest} (o.a.k.NetworkClient)"


def rd(second: float, correlation_id: int, *, answer: bool = False) -> str:
    text = f"Received PushTelemetryResponse (v0, 8 bytes, CorrId {correlation_id}, rtt 2.05ms)"
    if not answer:
        text = f"Sent PushTelemetryRequest (v0, 544 bytes @ 0, CorrId {correlation_id})"
    return f"%7|{BEGAN + second:.3f}|{'RECV' if answer else 'SEND'}|rd#producer-1| [thrd:1]: 127.0.0.1:9/1: {text}"


def test_each_push_is_followed_from_its_log_to_its_record() -> None:
    logs = {
        "java": "\n".join(
            [java(0, 7), java(0, 7, 0), java(1, 9), java(1, 9, 89), java(2, 11), java(3, 12), java(3, 12, 0)]
        ),
        # librdkafka counts from one again at each connection.
        "rd": "\n".join([rd(0, 4), rd(0, 4, answer=True), rd(2.5, 4), rd(2.6, 4, answer=True), rd(7, 5)]),
    }
    sent = sent_by(logs)
    assert {
        client_id: [(push.correlation_id, push.error) for push in pushes] for client_id, pushes in sent.items()
    } == {
        "java-0": [(7, 0), (9, 89), (11, None), (12, 0)],
        "rd": [(4, 0), (4, 0), (5, None)],
    }
    landed = [("java-0", 0.3, 7), ("java-0", 2.4, 11), ("rd", 0.1, 4), ("rd", 2.5, 4), ("rd", 2.7, 4), ("rd", 3.0, 99)]
    assert match(sent, [(client_id, BEGAN + at, number) for client_id, at, number in landed]) == 1
    pushes = [push for all_ in sent.values() for push in all_]
    assert account(pushes, [BEGAN + 3.5]) == {
        "sent": 7,
        "answered": 5,
        "refused": 1,
        "landed": 4,
        "doubled": 1,
        "answered_lost": 1,
        "answered_lost_furthest_from_end_ms": 250.0,
        "unanswered_landed": 1,
        "unanswered_lost": 1,
    }
    # Of java-0 the push of second 2 had no answer; rd was gone too long at 4.6, and has no answered push after 2.7.
    assert pauses(sent, [BEGAN + 2.0]) == [0.5, 1.25]
    assert pauses(sent, [BEGAN + 2.7, BEGAN + 4.6]) == pytest.approx([0.55])
