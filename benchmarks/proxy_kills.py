"""Which pushes are lost or doubled when proxies are killed and restarted, and when their clients push again.

Two proxies before one broker without the plugin, Java and librdkafka producers with both in `bootstrap.servers`, which
push each second. In turn, the proxy that all clients use is killed (SIGKILL) or stopped (SIGTERM), while the other one
serves, and started again. A client's log says when it sent a push and what it was answered; the landing record of that
push has the same correlation id. So each push is followed alone: none of it is an estimate.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from benchmarks.figures import print_figures
from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LocalCluster
from kafka_telemetry_lake.sandbox.cluster.kroxylicious import TelemetryProxy, filter_config, subscriptions_file
from tests.kafka.receiver_brokers import landed, start_fleet

JAVA, LIBRDKAFKA = 12, 4  # producers
INTERVAL_MS = 1000
DOWN_S, PERIOD_S = 1.0, 12.0
AT_ONCE_S = 10.0  # a client that pushes again later was made to wait
JAVA_WAITS_S = 300.0  # its default interval
MATCH_S = 20.0  # from a push to its record

LOG = """\
log4j.rootLogger=INFO, file
log4j.logger.org.apache.kafka.clients.NetworkClient=DEBUG
log4j.appender.file=org.apache.log4j.FileAppender
log4j.appender.file.File=${log.file}
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=%d{ISO8601} %p %m (%c)%n
"""
OF_JAVA = re.compile(
    r"^(\S+ \S+) DEBUG \[Producer clientId=(\S+)\] (Sending|Received) PUSH_TELEMETRY .*?correlationId=(\d+)"
    r"(?:.*PushTelemetryResponseData\(.*errorCode=(-?\d+))?"
)
OF_LIBRDKAFKA = re.compile(
    r"^%7\|(\d+\.\d+)\|(SEND|RECV)\|.*(?:Sent PushTelemetryRequest|Received PushTelemetryResponse) \(.*CorrId (\d+)"
)
CLOSED = re.compile(r"receiver closed: received (\d+), landed (\d+),")


@dataclass
class Sent:
    """A push as its client saw it. Times are seconds since 1970; an error of None: no answer."""

    at: float
    correlation_id: int
    error: int | None = None
    landed: int = 0


def sent_by(logs: Mapping[str, str]) -> dict[str, list[Sent]]:
    """What the logs of clients, given by client id, say of pushes: by client id, in the order of sending.

    A fleet of Java is one log, whose lines have the client ids. librdkafka's has no errors: an answer counts as 0.
    """
    found: dict[str, list[Sent]] = defaultdict(list)
    for client_id, log in logs.items():
        for line in log.splitlines():
            if java := OF_JAVA.match(line):
                at = datetime.strptime(java[1], "%Y-%m-%d %H:%M:%S,%f").timestamp()  # local, as logged
                _follow(found[java[2]], at, int(java[4]), None if java[3] == "Sending" else int(java[5]))
            elif rd := OF_LIBRDKAFKA.match(line):
                _follow(found[client_id], float(rd[1]), int(rd[3]), None if rd[2] == "SEND" else 0)
    return found


def _follow(pushes: list[Sent], at: float, correlation_id: int, error: int | None) -> None:
    if error is None:
        pushes.append(Sent(at, correlation_id))
        return
    waiting = [push for push in pushes if push.correlation_id == correlation_id and push.error is None]
    waiting[-1].error = error


def match(sent: dict[str, list[Sent]], records: Iterable[tuple[str, float, int]]) -> int:
    """Counts each record, given as client id, time and correlation id, at its push; returns those that have none."""
    strangers = 0
    for client_id, at, correlation_id in records:
        near = [
            push for push in sent[client_id] if push.correlation_id == correlation_id and -1.0 < at - push.at < MATCH_S
        ]
        if near:
            min(near, key=lambda push: abs(at - push.at)).landed += 1
        else:
            strangers += 1
    return strangers


def account(pushes: Sequence[Sent], ends: Sequence[float]) -> dict[str, float]:
    """What became of pushes. `ends` are the times at which proxies were ended."""
    lost = [push for push in pushes if push.error == 0 and not push.landed]
    away = [1000 * min(abs(end - push.at) for end in ends) for push in lost]
    kinds = Counter((push.error is None, push.landed > 0) for push in pushes)
    return {
        "sent": len(pushes),
        "answered": sum(push.error is not None for push in pushes),
        "refused": sum(push.error not in (None, 0) for push in pushes),
        "landed": sum(push.landed > 0 for push in pushes),
        "doubled": sum(push.landed > 1 for push in pushes),
        "answered_lost": len(lost),
        "answered_lost_furthest_from_end_ms": max(away, default=0.0),
        "unanswered_landed": kinds[True, True],
        "unanswered_lost": kinds[True, False],
    }


def pauses(sent: dict[str, list[Sent]], gone: Sequence[float]) -> list[float]:
    """Seconds from when a proxy was gone to the next push that was answered, of each client that pushed until then."""
    found = []
    for pushes in sent.values():
        for at in gone:
            before = [push.at for push in pushes if push.at <= at]
            after = [push.at for push in pushes if push.at > at and push.error is not None]
            if before and after and at - before[-1] < 2.5 * INTERVAL_MS / 1000:
                found.append(after[0] - at)
    return sorted(found)


def measure_kills(times: int) -> None:
    with LocalCluster() as cluster, tempfile.TemporaryDirectory() as scratch:
        cluster.create_topic("work")
        folder = Path(scratch)
        everything = {"name": "all", "metrics": ["*"], "interval_ms": INTERVAL_MS, "match": {}}
        config = filter_config(
            cluster.bootstrap_servers, subscriptions_file(folder / "all.yml", [everything]), require_sasl=False
        )
        with (
            TelemetryProxy(folder / "one", cluster.bootstrap_servers, config | {"name": "one"}) as one,
            TelemetryProxy(folder / "two", cluster.bootstrap_servers, config | {"name": "two"}) as two,
        ):
            for name, end in (("kill", TelemetryProxy.kill), ("restart", TelemetryProxy.stop)):
                print_figures(_measure(name, cluster, folder, (one, two), end, times))


def _measure(
    name: str,
    cluster: LocalCluster,
    folder: Path,
    proxies: tuple[TelemetryProxy, TelemetryProxy],
    end: Callable[[TelemetryProxy], None],
    times: int,
) -> dict[str, float]:
    log = folder / "log4j.properties"
    log.write_text(LOG)
    proxies[1].stop()  # so that all clients begin by the other
    with LocalClients(cluster, ",".join(proxy.bootstrap_servers for proxy in proxies)) as clients:
        options = [f"-Dlog4j.configuration={log.as_uri()}"]
        started = [start_fleet(cluster, clients, f"{name}-java", "work", producers=JAVA, options=options)]
        debug = {"debug": "protocol", "linger.ms": 100}
        started += [
            clients.producer("librdkafka", "work", f"{name}-rd-{number}", rate=2, properties=debug)
            for number in range(LIBRDKAFKA)
        ]
        for client in started:
            client.wait_for("started")
        proxies[1].start()
        logged = [len(proxy.log()) for proxy in proxies]
        time.sleep(5 * INTERVAL_MS / 1000)
        ends, gone = [], []
        for number in range(times):
            ends.append(time.time())
            end(proxies[number % 2])
            gone.append(time.time())
            time.sleep(DOWN_S)
            proxies[number % 2].start()
            time.sleep(max(0.0, ends[-1] + PERIOD_S - time.time()))
        wait_s = JAVA_WAITS_S + 10 * INTERVAL_MS / 1000
        print(f"{name}: {times} times; waiting {wait_s:.0f} s for those that were made to wait", flush=True)
        time.sleep(wait_s)
        counted = [client.close() for client in started]
    sent = sent_by({client.client_id: client.log.read_text(errors="replace") for client in started})
    wait_for_landing_s = 3.0
    time.sleep(wait_for_landing_s)
    records = (
        (push.client_id, int(push.headers["received_at_ms"]) / 1000, int(push.headers["correlation_id"]))
        for push in landed(cluster)
        if push.client_id.startswith(f"{name}-")
    )
    figures = {"times": float(times), "records_of_unknown_pushes": float(match(sent, records))}
    figures |= account([push for pushes in sent.values() for push in pushes], ends)
    # Those that weren't killed say it; refusals of librdkafka's pushes, which its log doesn't show, aren't received.
    said = CLOSED.findall("".join(proxy.log()[offset:] for proxy, offset in zip(proxies, logged, strict=True)))
    figures["closed_received"] = sum(int(received) for received, _ in said)
    figures["closed_landed"] = sum(int(landed_) for _, landed_ in said)
    figures["client_records_failed"] = sum(each["failed"] for each in counted)
    for library in ("java", "rd"):
        waited = pauses({id_: all_ for id_, all_ in sent.items() if f"-{library}" in id_}, gone)
        late = [pause for pause in waited if pause > AT_ONCE_S]
        soon = [pause for pause in waited if pause <= AT_ONCE_S]
        figures |= {f"{library}_pauses": len(waited), f"{library}_pauses_long": len(late)}
        figures |= {
            f"{library}_{which}_{word}_s": value
            for which, of in (("short", soon), ("long", late))
            if of
            for word, value in (("median", of[len(of) // 2]), ("max", of[-1]))
        }
    return {f"proxy_{name}_{key}": float(value) for key, value in figures.items()}
