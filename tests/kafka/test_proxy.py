"""A proxy that receives: brokers without the plugin, Kroxylicious with the filter, real clients, a lake."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafka_telemetry_lake.jobs.cli import run_command
from kafka_telemetry_lake.pipelines.runtime.kafka_reach import GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY, advertised
from kafka_telemetry_lake.sandbox.clients import LocalClients
from kafka_telemetry_lake.sandbox.cluster import LANDING_TOPICS, LocalCluster
from kafka_telemetry_lake.sandbox.cluster.kroxylicious import TelemetryProxy, filter_config, subscriptions_file
from tests.conftest import Ingest
from tests.support.lake_tables import table
from tests.support.patience import PATIENCE_S
from tests.support.telemetry_request import RawClient, ask
from tests.support.topic_messages import messages

from .landing import Landing, Push
from .receiver_brokers import wait_for

USERS = {"orders": "orders-secret", "audit": "audit-secret"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
EVERYTHING = {"name": "everything", "metrics": ["*"], "interval_ms": 300, "match": {"client_id": "telemetry-.*"}}


@pytest.fixture(scope="module")
def stock(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A broker without the plugin, with SASL by PLAIN and SCRAM, with and without TLS, and by unsigned tokens."""
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    properties = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
        "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f"{BEARER} required;",
        "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": UNSECURED,
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{PLAIN} required {users};",
    }
    with LocalCluster(sasl_users=USERS, scram_users=USERS, properties=properties) as cluster:
        cluster.create_topic("work", partitions=2)
        cluster.create_topic("counts")
        yield cluster
        cluster.keep_folder = request.session.testsfailed > 0


@pytest.fixture(scope="module")
def proxy(stock: LocalCluster) -> Iterator[TelemetryProxy]:
    """Before the listener with SASL and without TLS; subscriptions and settings stay as they are."""
    file = subscriptions_file(stock.folder / "shared.yml", [EVERYTHING])
    config = filter_config(stock.bootstrap_servers, file, name="shared")
    with TelemetryProxy(stock.folder / "shared", stock.sasl_bootstrap_servers, config) as proxy:
        yield proxy


@pytest.fixture
def landing(stock: LocalCluster) -> Iterator[Landing]:
    with Landing(stock.bootstrap_servers) as landing:
        yield landing


def by(proxy: TelemetryProxy) -> dict[str, object]:
    """A client's settings that lead it through a proxy."""
    return {"bootstrap.servers": proxy.bootstrap_servers}


def log_in(mechanism: str, jaas: str) -> dict[str, object]:
    """Settings of a Java client."""
    return {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


def scram(user: str) -> dict[str, object]:
    return log_in("SCRAM-SHA-512", f'{SCRAM} required username="{user}" password="{USERS[user]}";')


def of_one_client(pushes: list[Push]) -> set[tuple[str | None, ...]]:
    names = ("client_instance_id", "principal", "client_software_name", "listener", "cluster_id")
    return {tuple(push.headers.get(name) for name in names) for push in pushes}


def test_a_push_lands_once_with_what_a_filter_knows(cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    """Brokers with the plugin see none of it: the proxy answers, by the file's subscriptions and its own limits."""
    file = subscriptions_file(tmp_path / "subscriptions.yml", [EVERYTHING | {"interval_ms": 60_000}])
    config = filter_config(cluster.bootstrap_servers, file, require_sasl=False, telemetryMaxBytes=100)
    config["landing"] |= {"topic": topic, "status.topic": topic, "status.interval.ms": 3_600_000}
    with TelemetryProxy(tmp_path / "proxy", cluster.bootstrap_servers, config) as proxy:
        with RawClient(proxy.bootstrap_port, "telemetry-raw") as client:
            subscribed = client.subscribed()
            errors = [client.push(subscribed, b"x" * 100), client.push(subscribed, b"x")]
            other = client.subscribed()
            errors += [client.push((other[0], other[1] + 1), b"x"), client.push((bytes(16), 0), b"x")]
            large = client.subscribed()
            errors.append(client.push(large, b"x" * 101))
        assert errors == [0, 89, 117, 42, 118]  # throttled, unknown subscription, invalid, too large
        (push,) = wait_for(lambda: messages(cluster, topic), lambda found: found)
    landed = push.headers()
    assert isinstance(landed, list)
    headers = {name: text.decode() for name, text in landed if isinstance(text, bytes)}
    received_at, correlation = headers.pop("received_at_ms"), headers.pop("correlation_id")
    assert int(received_at) > 1_700_000_000_000
    assert correlation == "7"
    instance = base64.urlsafe_b64encode(subscribed[0]).decode().rstrip("=")
    assert headers == {
        "record_version": "1",
        "client_instance_id": instance,
        "client_id": "telemetry-raw",
        "terminating": "false",
        "content_type": "OTLP",
        "compression_type": "none",
        "subscription_id": str(subscribed[1]),
        "push_interval_ms": "60000",
        "listener": "lake",
        "client_software_name": "raw",
        "client_software_version": "1",
        "payload_bytes": "100",
    }
    assert (push.key(), push.value()) == (instance.encode(), b"x" * 100)
    assert "received 1, landed 1, queued 0" in proxy.log()


@pytest.mark.slow
def test_clients_of_a_broker_without_the_plugin_push_to_the_proxy(
    stock: LocalCluster, landing: Landing, ingest: Ingest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Java by PLAIN and SCRAM and librdkafka by PLAIN, a changed subscription, the ends, the records, the lake."""
    assert GET_TELEMETRY_SUBSCRIPTIONS not in stock.broker(1).api_keys()
    file = subscriptions_file(tmp_path / "subscriptions.yml", [EVERYTHING])
    config = filter_config(stock.bootstrap_servers, file)
    with (
        TelemetryProxy(stock.folder / "proxy", stock.sasl_bootstrap_servers, config) as proxy,
        LocalClients(stock) as clients,
    ):
        orders, led = ("orders", USERS["orders"]), by(proxy)
        java = clients.producer("java", "work", "telemetry-java", rate=20, credentials=orders, properties=led)
        rd = clients.consumer("librdkafka", "work", "telemetry-rd", group="rd", credentials=orders, properties=led)
        by_scram = clients.consumer(
            "java", "work", "telemetry-scram", group="scram", properties=by(proxy) | scram("audit")
        )
        other = clients.producer("java", "work", "no-telemetry", records=10, credentials=orders, properties=led)
        assert other.wait_for("done")["records"] == 10
        ids = [each.client_id for each in (java, rd, by_scram)]
        for client_id in ids:
            landing.wait_for_more(client_id, 3)
        (first,) = of_one_client(landing.pushes("telemetry-java"))
        assert first[1:4] == ("User:orders", "apache-kafka-java", "lake")
        (second,) = of_one_client(landing.pushes("telemetry-rd"))
        assert second[1:4] == ("User:orders", "confluent-kafka-python", "lake")
        (third,) = of_one_client(landing.pushes("telemetry-scram"))
        assert third[1:4] == ("User:audit", "apache-kafka-java", "lake")
        assert first[4] is not None
        assert len({first[4], second[4], third[4]}) == 1
        push = landing.pushes("telemetry-java")[-1]
        assert push.headers["compression_type"] == "zstd"
        assert push.headers["push_interval_ms"] == "300"
        assert not push.headers.keys() & {"client_address", "client_port", "broker_id", "security_protocol"}
        assert "org.apache.kafka.producer.record.send.total" in {metric.name for metric in push.metrics()}
        before = {client_id: landing.pushes(client_id)[-1].headers["subscription_id"] for client_id in ids}

        subscriptions_file(file, [EVERYTHING | {"interval_ms": 400, "metrics": ["org.apache.kafka.producer."]}])
        changed = landing.wait("telemetry-java", lambda all_: all_[-1].headers["push_interval_ms"] == "400")
        assert changed[-1].headers["subscription_id"] != before["telemetry-java"]
        assert of_one_client(changed) == {first}  # the same client instance

        file.write_text("subscriptions: 7")  # broken: they stay as they are
        wait_for(proxy.log, lambda log: "subscriptions: allowed: a list" in log)
        landing.wait_for_more("telemetry-java", 2)

        for client in (java, rd, by_scram):
            client.close()
        landing.wait("telemetry-scram", lambda all_: all_[-1].terminating)
    total = sum(len(landing.pushes(client_id)) for client_id in ids)
    assert not landing.pushes("no-telemetry")
    assert not [push for each in ids for push in landing.pushes(each) if "dropped" in push.headers]

    words = ["client-telemetry", "--bootstrap-servers", stock.bootstrap_servers]
    assert run_command("check-landing", words) == 0
    assert re.search(rf"^{total} records, ", capsys.readouterr().out, re.MULTILINE)
    ingest(None, tmp_path / "lake", "--bootstrap-servers", stock.bootstrap_servers, "--topic", "client-telemetry")
    assert table(tmp_path / "lake", "pushes").num_rows == total
    assert table(tmp_path / "lake", "metric_points").num_rows > 10 * total
    assert table(tmp_path / "lake", "quarantine").num_rows == 0
    last = [json.loads(each.value() or b"") for each in messages(stock, LANDING_TOPICS[1])][-1]
    assert (last["received"], last["landed"], last["queue_depth"]) == (total, total, 0)
    assert last["broker_id"] is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classic", "consumer", "streams", "franz-go"])
def test_each_kind_of_client_has_an_id_and_pushes(
    stock: LocalCluster, proxy: TelemetryProxy, landing: Landing, kind: str, request: pytest.FixtureRequest
) -> None:
    name = f"telemetry-{kind}"
    login = log_in("PLAIN", f'{PLAIN} required username="orders" password="{USERS["orders"]}";')
    with LocalClients(stock, proxy.bootstrap_servers) as clients:
        ids: dict[str, str | None] = {}
        if kind == "franz-go":
            settings = {"driver.topic": "work", "driver.records": 10, "driver.rate": 10, "driver.value_bytes": 10}
            settings |= {"sasl.username": "orders", "sasl.password": USERS["orders"]}
            client = clients.start(name, [request.getfixturevalue("franz_go"), "producer"], settings)
            ids = {name: None}  # it doesn't tell
        elif kind == "streams":
            client = clients.word_count("work", "counts", name, properties=login)
            inner = client.wait_for("started")["client_instance_ids"]
            ids = {f"{name}-admin": inner["admin"]}
            ids |= {
                each: inner[each] for each in (f"{name}-StreamThread-1-{part}" for part in ("consumer", "producer"))
            }
        else:
            by_protocol = login | {"group.protocol": kind}
            client = clients.consumer("java", "work", name, group=name, properties=by_protocol)
            ids = {name: client.client_instance_id}
        software = "kgo" if kind == "franz-go" else "apache-kafka-java"
        for client_id, instance in ids.items():
            pushes = landing.wait_for_more(client_id, 2)
            ((key, principal, library, *_),) = of_one_client(pushes)
            assert (principal, library) == ("User:orders", software)
            assert key == instance or kind == "franz-go"
        client.close()


@pytest.mark.slow
def test_share_groups_do_not_pass_this_release_of_the_proxy(stock: LocalCluster, proxy: TelemetryProxy) -> None:
    """Its Kafka client, 4.0, has the first version of their requests alone, and brokers from 4.1 on only later ones."""
    login = log_in("PLAIN", f'{PLAIN} required username="orders" password="{USERS["orders"]}";')
    with LocalClients(stock, proxy.bootstrap_servers) as clients:
        client = clients.share_consumer("work", "telemetry-share", group="share", properties=login)
        log = wait_for(client.log.read_text, lambda log: "UnsupportedVersionException" in log)
    assert "Client telemetry registered with client instance id" in log
    assert "The cluster does not support the share group protocol using ShareGroupHeartbeat API version 1" in log


@pytest.mark.slow
def test_tls_on_both_sides(stock: LocalCluster, landing: Landing, tmp_path: Path) -> None:
    assert stock.tls is not None
    file = subscriptions_file(tmp_path / "subscriptions.yml", [EVERYTHING])
    config = filter_config(stock.bootstrap_servers, file)
    tls: dict[str, object] = {"security.protocol": "SASL_SSL"}
    store = {"ssl.truststore.location": stock.tls.truststore, "ssl.truststore.password": stock.tls.password}
    with (
        TelemetryProxy(tmp_path / "proxy", stock.tls_bootstrap_servers, config, tls=stock.tls) as proxy,
        LocalClients(stock, proxy.bootstrap_servers) as clients,
    ):
        java = clients.producer(
            "java", "work", "telemetry-tls-java", rate=20, credentials=("orders", USERS["orders"]),
            properties=tls | store | {"ssl.truststore.type": "PKCS12"},
        )  # fmt: skip
        rd = clients.consumer(
            "librdkafka", "work", "telemetry-tls-rd", group="tls", credentials=("audit", USERS["audit"]),
            properties=tls | {"sasl.mechanism": "SCRAM-SHA-512", "ssl.ca.location": stock.tls.certificate},
        )  # fmt: skip
        found = {each: of_one_client(landing.wait_for_more(each, 2)) for each in (java.client_id, rd.client_id)}
        for client in (java, rd):
            assert client.close()["failed"] == 0
    assert {(client_id, *which[1:3]) for client_id, (which,) in found.items()} == {
        ("telemetry-tls-java", "User:orders", "apache-kafka-java"),
        ("telemetry-tls-rd", "User:audit", "confluent-kafka-python"),
    }


@pytest.mark.slow
def test_a_token_names_its_subject(stock: LocalCluster, proxy: TelemetryProxy, landing: Landing) -> None:
    """OAUTHBEARER, with unsigned tokens: the broker's own validator of them accepts both."""
    by_java = log_in("OAUTHBEARER", f'{BEARER} required unsecuredLoginStringClaim_sub="shop";')
    by_rd: dict[str, object] = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    by_rd |= {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": "principal=billing"}
    with LocalClients(stock, proxy.bootstrap_servers) as clients:
        java = clients.producer("java", "work", "telemetry-token", rate=20, properties=by_java)
        rd = clients.producer("librdkafka", "work", "telemetry-token-rd", rate=20, properties=by_rd)
        for client, principal in ((java, "User:shop"), (rd, "User:billing")):
            ((_, named, *_),) = of_one_client(landing.wait_for_more(client.client_id, 2))
            assert named == principal
            assert client.close()["failed"] == 0


@pytest.mark.slow
def test_without_sasl_there_is_no_telemetry_unless_the_configuration_says_so(
    stock: LocalCluster, landing: Landing, tmp_path: Path
) -> None:
    file = subscriptions_file(tmp_path / "subscriptions.yml", [EVERYTHING])
    config = filter_config(stock.bootstrap_servers, file)
    with TelemetryProxy(tmp_path / "strict", stock.bootstrap_servers, config) as proxy, LocalClients(stock) as clients:
        client = clients.producer("java", "work", "telemetry-open", records=50, properties=by(proxy))
        assert client.wait_for("done")["records"] == 50
        wait_for(proxy.log, lambda log: "A connection without SASL asked for telemetry" in log)
        with RawClient(proxy.bootstrap_port, "telemetry-raw") as raw:
            assert raw.push((bytes(range(16)), 1), b"x") == 35  # UNSUPPORTED_VERSION
        client.close()
        assert not landing.pushes("telemetry-open")
    relaxed = filter_config(stock.bootstrap_servers, file, require_sasl=False)
    with TelemetryProxy(tmp_path / "relaxed", stock.bootstrap_servers, relaxed) as proxy:
        answer = ask(proxy.bootstrap_port, bytes(16), "telemetry-raw", ("raw", "1"))
        assert (answer.push_interval_ms, answer.requested_metrics) == (300, ("*",))
        answer = ask(proxy.bootstrap_port, bytes(16), "telemetry-go", ("kgo", "1.22"))
        assert answer.requested_metrics == ("org.apache.kafka.",)
        answer = ask(proxy.bootstrap_port, bytes(16), "other", ("raw", "1"))
        assert (answer.push_interval_ms, answer.requested_metrics) == (300_000, ())


@pytest.mark.slow
def test_the_brokers_own_subscriptions(stock: LocalCluster, tmp_path: Path) -> None:
    """Apache Kafka keeps them also without a plugin that would serve them."""
    stock.subscribe("theirs", ["org.apache.kafka.consumer.", "org.apache.kafka.producer."], 700, ["client_id=theirs"])
    config = filter_config(stock.bootstrap_servers, "brokers", require_sasl=False)
    with TelemetryProxy(tmp_path / "proxy", stock.bootstrap_servers, config) as proxy:
        answer = ask(proxy.bootstrap_port, bytes(16), "theirs", ("raw", "1"))
        assert answer.push_interval_ms == 700
        assert sorted(answer.requested_metrics) == ["org.apache.kafka.consumer.", "org.apache.kafka.producer."]
        stock.unsubscribe("theirs")
        wait_for(
            lambda: ask(proxy.bootstrap_port, bytes(16), "theirs", ("raw", "1")).push_interval_ms,
            lambda interval: interval == 300_000,
        )


@pytest.mark.slow
def test_a_landing_topic_that_is_gone_is_one_line_a_minute(stock: LocalCluster, tmp_path: Path) -> None:
    file = subscriptions_file(tmp_path / "subscriptions.yml", [EVERYTHING])
    config = filter_config(stock.bootstrap_servers, file, require_sasl=False)
    config["landing"] |= {"topic": "gone", "producer.max.block.ms": 300, "close.timeout.ms": 0}
    with (
        TelemetryProxy(tmp_path / "proxy", stock.bootstrap_servers, config) as proxy,
        RawClient(proxy.bootstrap_port, "telemetry-raw") as client,
    ):
        assert client.push(client.subscribed(), b"x") == 0
        wait_for(lambda: proxy.log().count("Topic gone not present"), lambda count: count)
        time.sleep(1.5)  # and more tries
    (line,) = [line for line in proxy.log().splitlines() if "Topic gone not present" in line]
    assert (
        "No push can be sent to topic gone, they wait in the queue: org.apache.kafka.common.errors.TimeoutException: "
        "Topic gone not present in metadata after 300 ms." in line
    )


@pytest.mark.slow
def test_a_landing_topic_that_is_gone_stops_nobody(stock: LocalCluster, tmp_path: Path) -> None:
    file = subscriptions_file(tmp_path / "subscriptions.yml", [EVERYTHING])
    config = filter_config(stock.bootstrap_servers, file, require_sasl=False)
    config["landing"] |= {"topic": "gone", "producer.max.block.ms": 3_600_000, "close.timeout.ms": 3_000}
    with TelemetryProxy(tmp_path / "proxy", stock.bootstrap_servers, config) as proxy:
        producer = Producer(
            {"bootstrap.servers": proxy.bootstrap_servers, "enable.metrics.push": False, "linger.ms": 0}
        )
        with RawClient(proxy.bootstrap_port, "telemetry-raw") as client:
            assert [client.push(client.subscribed(), b"x") for _ in range(20)] == [0] * 20
            # The lander waits an hour for its topic's metadata; the event loops don't wait with it.
            for _ in range(20):
                producer.produce("work", b"value")
                assert producer.flush(PATIENCE_S) == 0
            del producer
            with ThreadPoolExecutor(1) as pool:
                stopped = pool.submit(proxy.stop)
                taken = 0
                while (error := client.push(client.subscribed(), b"x")) == 0:  # a new instance each time: none is early
                    taken += 1
                assert error == 89  # what comes while it closes isn't taken, and the client knows
                stopped.result(PATIENCE_S)
    assert f"received {20 + taken}, landed 0, queued 0" in proxy.log()
    assert f"closed={20 + taken}" in proxy.log()


@pytest.mark.slow
def test_a_client_goes_on_by_another_proxy_as_the_same_instance(
    stock: LocalCluster, landing: Landing, tmp_path: Path
) -> None:
    file = subscriptions_file(tmp_path / "subscriptions.yml", [EVERYTHING])
    config = filter_config(stock.bootstrap_servers, file, require_sasl=False)
    with (
        TelemetryProxy(tmp_path / "first", stock.bootstrap_servers, config) as first,
        TelemetryProxy(tmp_path / "second", stock.bootstrap_servers, config | {"name": "second"}) as second,
        LocalClients(stock) as clients,
    ):
        second.stop()  # so that the client begins by the first
        both = f"{first.bootstrap_servers},{second.bootstrap_servers}"
        client = clients.producer(
            "librdkafka", "work", "telemetry-moved", rate=10, properties={"bootstrap.servers": both}
        )
        landing.wait_for_more("telemetry-moved", 3)
        first.kill()
        before = len(landing.pushes("telemetry-moved"))
        second.start()
        pushes = landing.wait("telemetry-moved", lambda all_: len(all_) >= before + 3)
        client.close()
    assert len({push.client_instance_id for push in pushes}) == 1
    assert len({push.headers["subscription_id"] for push in pushes}) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (None, "the filter has no config"),
        (
            {"subscriptions": "/no/such.yml", "landing": {"bootstrap.servers": "127.0.0.1:1"}},
            "/no/such.yml: No such file",
        ),
    ],
)
def test_a_filter_without_a_right_configuration_leaves_the_traffic_as_it_is(
    stock: LocalCluster, tmp_path: Path, config: dict[str, object] | None, reason: str
) -> None:
    with TelemetryProxy(tmp_path / "proxy", stock.bootstrap_servers, config) as proxy:
        (line,) = [line for line in proxy.log().splitlines() if "No telemetry is received" in line]
        assert reason in line
        offered = advertised("127.0.0.1", proxy.bootstrap_port, timeout_s=PATIENCE_S).api_keys
        assert not offered & {GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY}
        producer = Producer({"bootstrap.servers": proxy.bootstrap_servers})
        producer.produce("work", b"value")
        assert producer.flush(PATIENCE_S) == 0
        del producer  # before its broker goes
